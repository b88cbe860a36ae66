//! Time of a schedule, and how much of it there may be.

/// The most events of a scenario.
pub const MOST_EVENTS: usize = 1_000_000;
/// No schedule goes on for longer: nanoseconds of about 146 years.
const LONGEST: f64 = (1u64 << 62) as f64;

/// `None` for what is never.
pub(crate) fn nanoseconds(seconds: Option<f64>) -> Option<u64> {
    let nanoseconds = (seconds? * 1e9).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, and none is negative")]
    (nanoseconds < LONGEST).then_some(nanoseconds as u64)
}

pub(crate) fn after(now: u64, seconds: Option<f64>) -> Option<u64> {
    nanoseconds(seconds).and_then(|more| now.checked_add(more))
}

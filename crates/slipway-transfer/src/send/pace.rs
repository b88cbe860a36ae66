//! `--limit`: one bucket for all streams.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far the bucket fills while nobody sends: a thread may sleep longer than it asked to.
const BURST: Duration = Duration::from_millis(50);
/// Milliseconds that one frame takes at the rate, about: longer frames would be bursts.
const FRAME: u64 = 5;
/// Shortest frame that the rate leads to, bytes: tags and records of TLS stay below 1 %.
const SHORTEST: usize = 16 << 10;

/// A rate that all streams share.
pub(super) struct Pace {
    nanos_per_byte: f64,
    /// Bytes of a frame that keep it short in time.
    pub(super) frame: usize,
    /// When the bytes taken so far are sent, at the rate.
    free: Mutex<Option<Instant>>,
}

impl Pace {
    /// `limit` in bits per second.
    pub(super) fn new(limit: u64) -> Self {
        let frame = usize::try_from(limit / 8 * FRAME / 1000).unwrap_or(usize::MAX).max(SHORTEST);
        Self { nanos_per_byte: 8e9 / limit.max(1) as f64, frame, free: Mutex::new(None) }
    }

    /// Takes `bytes` from the bucket. They are due after the time that it gives: so the rate never passes the limit, from
    /// the first frame on.
    pub(super) fn take(&self, bytes: usize, now: Instant) -> Duration {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = free.map_or(now, |free| free.max(earliest));
        // Less than a century for a frame, at a bit per second.
        let due = start + Duration::from_secs_f64((bytes as f64 * self.nanos_per_byte / 1e9).min(1e9));
        *free = Some(due);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_share_one_rate() {
        let pace = Pace::new(8_000_000);
        let now = Instant::now();
        let waits: Vec<Duration> = (0..1001).map(|_| pace.take(1000, now)).collect();
        assert_eq!(waits[0], Duration::from_millis(1), "the first is not free");
        let last = waits[1000].as_secs_f64();
        assert!((last - 1.001).abs() < 1e-6, "a megabyte at 1 MB/s: {last}");
    }

    #[test]
    fn idleness_is_saved_up_to_a_bound() {
        let pace = Pace::new(8_000_000);
        let now = Instant::now();
        pace.take(1, now);
        let later = now + Duration::from_mins(1);
        let unhindered = (0..100).filter(|_| pace.take(1000, later).is_zero()).count();
        assert!((48..=50).contains(&unhindered), "{unhindered}");
    }

    #[test]
    fn frames_are_short_in_time_but_not_too_short() {
        assert_eq!(Pace::new(8_000_000_000).frame, 5_000_000);
        assert_eq!(Pace::new(1).frame, SHORTEST);
    }
}

//! Clocks of two machines, compared by round trips.
//!
//! The coordinator notes its time, asks, and notes its time again when the answer is there. The other machine read its clock
//! in between. So the true offset differs from the middle's by at most half of the round trip, however unequal the two ways
//! are (RFC 5905, section 8). Of several round trips the best says most: the filter keeps that.

use rustix::time::{ClockId, clock_gettime};

/// Alarm level: how far a machine's events may be from the others' by its clock, nanoseconds.
pub const PROMISE: u64 = 10_000_000;
/// Two clocks drift apart by at most this share, as `1/DRIFT`. Linux lets NTP slew each by 500 ppm (`adjtimex(2)`).
const DRIFT: u64 = 1_000;

/// Now, on this machine's monotonic clock, nanoseconds. Steps of the wall clock do not move it.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative on this clock.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Now, on this machine's wall clock, nanoseconds since 1970.
#[must_use]
pub fn date() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned())
}

/// A round trip. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// When the question left, on this machine's clock.
    pub sent: u64,
    /// The other machine's clock.
    pub there: u64,
    /// When the answer was here, on this machine's clock.
    pub received: u64,
}

/// An offset of another machine's clock, and how far it can be from the truth. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// The other clock less this one.
    pub offset: i64,
    /// The truth differs by no more.
    pub uncertainty: u64,
}

impl Trip {
    /// The offset that it says. `None` where the answer came before the question, which no clock here does.
    #[must_use]
    pub fn offset(&self) -> Option<Offset> {
        let trip = self.received.checked_sub(self.sent)?;
        let middle = self.sent + trip / 2;
        // One more for the halved nanosecond.
        Some(Offset { offset: self.there.wrapping_sub(middle).cast_signed(), uncertainty: trip.div_ceil(2) + 1 })
    }
}

/// The best of the round trips so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// When it was received, and the offset then.
    best: Option<(u64, Offset)>,
}

impl Filter {
    /// Takes note of a round trip.
    pub fn add(&mut self, trip: Trip) {
        let Some(new) = trip.offset() else { return };
        if self.at(trip.received).is_none_or(|held| new.uncertainty <= held.uncertainty) {
            self.best = Some((trip.received, new));
        }
    }

    /// The offset at a time of this machine's clock. Its uncertainty grows with its age, since clocks drift.
    #[must_use]
    pub fn at(&self, now: u64) -> Option<Offset> {
        let (taken, Offset { offset, uncertainty }) = self.best?;
        // Before the answer as after it: a question's clock was read up to a round trip earlier.
        let age = now.abs_diff(taken).saturating_add(2 * uncertainty);
        Some(Offset { offset, uncertainty: uncertainty.saturating_add(age / DRIFT + 1) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Another clock: `offset` nanoseconds from this one at time zero, and faster by so many parts in a million.
    fn there(here: u64, offset: i64, ppm: i64) -> u64 {
        let drift = i128::from(here) * i128::from(ppm) / 1_000_000;
        u64::try_from(i128::from(here) + i128::from(offset) + drift).expect("it stays positive")
    }

    proptest! {
        #[test]
        fn the_truth_lies_within_the_uncertainty(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            ppm in -900i64..900,
            trips in prop::collection::vec((0u64..2_000_000_000, 0u64..50_000_000, 0u64..50_000_000), 1..40),
            later in 0u64..10_000_000_000,
        ) {
            let (mut filter, mut now) = (Filter::default(), 2_000_000_000_000);
            for (pause, way, back) in trips {
                let sent = now + pause;
                now = sent + way + back;
                filter.add(Trip { sent, there: there(sent + way, offset, ppm), received: now });
            }
            now += later;
            let estimate = filter.at(now).expect("there were trips");
            let truth = i128::from(there(now, offset, ppm)) - i128::from(now);
            let error = (truth - i128::from(estimate.offset)).unsigned_abs();
            prop_assert!(error <= u128::from(estimate.uncertainty), "{error} > {estimate:?}");
        }

        #[test]
        fn a_short_trip_is_never_worse_than_a_long_one(short in 0u64..1_000_000, more in 1u64..1_000_000_000) {
            let mut filter = Filter::default();
            filter.add(Trip { sent: 0, there: 5, received: short });
            let before = filter.at(short + more).expect("there was a trip");
            filter.add(Trip { sent: short, there: 5, received: short + more });
            let after = filter.at(short + more).expect("there was a trip");
            prop_assert!(after.uncertainty <= before.uncertainty);
        }
    }

    #[test]
    fn an_answer_before_its_question_says_nothing() {
        let mut filter = Filter::default();
        filter.add(Trip { sent: 10, there: 5, received: 9 });
        assert_eq!(filter.at(10), None);
        assert_eq!(
            Trip { sent: 10, there: 1_015, received: 20 }.offset(),
            Some(Offset { offset: 1_000, uncertainty: 6 })
        );
    }
}

//! The time that points take: it gives limits, and the number of points that a worker gets at once.

use std::collections::VecDeque;
use std::time::Duration;

/// Results from which a time limit is learnt.
pub(crate) const PILOTS: usize = 5;
/// A learnt limit is this many times the pilots' median.
const TIMES: f64 = 10.0;
/// Shortest learnt limit in seconds: a busy machine must not fail short points.
const SHORTEST: f64 = 60.0;
/// Results that tell the present pace.
const RECENT: usize = 15;
/// Seconds of work that a worker gets at once, where points are shorter.
const TURN: f64 = 0.1;
/// Most points that a worker gets at once.
const MOST: usize = 64;

/// The time that points take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    given: Option<Duration>,
    pilots: Vec<f64>,
    recent: VecDeque<f64>,
}

impl Pace {
    /// With the campaign's own limit, if it has one.
    pub(crate) fn new(given: Option<Duration>) -> Self {
        Self { given, ..Self::default() }
    }

    /// Notes the seconds of an attempt that gave a result.
    pub(crate) fn note(&mut self, seconds: f64) {
        if self.pilots.len() < PILOTS {
            self.pilots.push(seconds);
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(seconds);
    }

    /// The time limit of an attempt; `None` until it is learnt.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let learnt = || {
            let seconds = median(self.pilots.iter().copied()).filter(|_| self.pilots.len() == PILOTS)?;
            Duration::try_from_secs_f64((seconds * TIMES).max(SHORTEST)).ok()
        };
        self.given.or_else(learnt)
    }

    /// The number of points for a worker at once: one, but several where calls would take longer than points.
    pub(crate) fn batch(&self) -> usize {
        match median(self.recent.iter().copied()) {
            Some(seconds) if self.recent.len() >= PILOTS => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to MOST")]
                let count = (TURN / seconds.max(1e-6)).clamp(1.0, MOST as f64) as usize;
                count
            }
            _ => 1,
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(seconds: &[f64]) -> Pace {
        let mut pace = Pace::default();
        for &seconds in seconds {
            pace.note(seconds);
        }
        pace
    }

    #[test]
    fn a_limit_is_learnt_from_the_median_of_the_first_results() {
        assert_eq!(pace(&[20.0; 4]).limit(), None);
        assert_eq!(pace(&[20.0, 20.0, 900.0, 20.0, 1.0, 5000.0]).limit(), Some(Duration::from_secs(200)));
        assert_eq!(pace(&[0.1; 5]).limit(), Some(Duration::from_mins(1)));
        let given = Some(Duration::from_secs(3));
        assert_eq!(Pace { given, ..pace(&[20.0; 9]) }.limit(), given);
    }

    #[test]
    fn short_points_come_in_batches() {
        assert_eq!(pace(&[0.001; 4]).batch(), 1);
        assert_eq!(pace(&[0.01; 5]).batch(), 10);
        assert_eq!(pace(&[0.0; 20]).batch(), 64);
        assert_eq!(pace(&[3.0; 20]).batch(), 1);
    }
}

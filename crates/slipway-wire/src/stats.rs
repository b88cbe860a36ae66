//! The counts of a port.

use serde::{Deserialize, Serialize};

/// A port's counters, since it was attached. Frames; a large segment counts as the packets it becomes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// The number of the port.
    pub port: u32,
    /// False once its device is gone.
    pub alive: bool,
    /// Came in.
    pub received: u64,
    /// Went out, copies included.
    pub sent: u64,
    /// Lost as asked.
    pub lost: u64,
    /// Damaged as asked.
    pub corrupted: u64,
    /// Copied as asked.
    pub duplicated: u64,
    /// Sent ahead of others as asked.
    pub reordered: u64,
    /// Dropped because as many as may wait did.
    pub over_limit: u64,
    /// Not taken by the device when they were due: it is down or gone.
    pub refused: u64,
    /// Dropped: parts of large segments whose headers are not what they should be.
    pub malformed: u64,
    /// Wait now.
    pub waiting: u64,
    /// Wait now, bytes.
    pub waiting_bytes: u64,
    /// How late delayed frames went out.
    pub late: Late,
}

/// How much later than due frames went out, nanoseconds. Percentiles are the upper ends of histogram buckets that are a
/// sixteenth of their value wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// How many frames this is about: those that had to wait.
    pub count: u64,
    /// Half of them were no later.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The latest, exactly.
    pub max: u64,
    /// Later than [`ALARM_NS`]: the machine did not keep up, and results are to be doubted.
    pub alarms: u64,
}

/// Lateness from which on a frame counts as an alarm: 1 ms, what is promised of the 99th percentile.
pub const ALARM_NS: u64 = 1_000_000;

/// Buckets per power of two: a bucket is a sixteenth of its value wide.
const SUB: usize = 16;
/// Lateness up to 2^40 ns (18 minutes) is told apart; later counts as that.
const POWERS: usize = 40;

/// Counts of lateness in buckets that widen with the value.
#[derive(Debug)]
pub(crate) struct Lateness {
    buckets: Box<[u64; SUB * POWERS]>,
    late: Late,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: Box::new([0; SUB * POWERS]), late: Late::default() }
    }
}

impl Lateness {
    pub(crate) fn add(&mut self, late: u64) {
        self.buckets[bucket(late)] += 1;
        self.late.count += 1;
        self.late.max = self.late.max.max(late);
        self.late.alarms += u64::from(late > ALARM_NS);
    }

    pub(crate) fn late(&self) -> Late {
        let at = |per_mille: u64| {
            let wanted = (self.late.count * per_mille).div_ceil(1000);
            let mut seen = 0;
            let found = self.buckets.iter().position(|&count| {
                seen += count;
                seen >= wanted && count > 0
            });
            found.map_or(0, |bucket| upper(bucket).min(self.late.max))
        };
        Late { p50: at(500), p90: at(900), p99: at(990), p999: at(999), ..self.late }
    }
}

/// Values below [`SUB`] have a bucket each; above, the highest bit chooses the row and the next four the place in it.
fn bucket(value: u64) -> usize {
    // At most 63 - 4 rows: fits anything.
    let row = (value | (SUB as u64 - 1)).ilog2() as usize - 3;
    let place = if row == 0 { value } else { (value >> (row - 1)) & (SUB as u64 - 1) };
    (row * SUB + usize::try_from(place).unwrap_or(0)).min(SUB * POWERS - 1)
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let (row, place) = ((bucket / SUB) as u64, (bucket % SUB) as u64);
    match row {
        0 => place,
        _ => ((SUB as u64 + place + 1) << (row - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket_and_buckets_are_narrow(value in 0u64..1 << 40) {
            let bucket = bucket(value);
            prop_assert!(value <= upper(bucket));
            prop_assert!(bucket == 0 || value > upper(bucket - 1));
            prop_assert!(upper(bucket) - value <= value / 16);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values(mut values in proptest::collection::vec(0u64..10_000_000, 1..500)) {
            let mut lateness = Lateness::default();
            for &value in &values {
                lateness.add(value);
            }
            values.sort_unstable();
            let rank = |per_mille: usize| values[(values.len() * per_mille).div_ceil(1000) - 1];
            let late = lateness.late();
            for (told, exact) in [(late.p50, rank(500)), (late.p90, rank(900)), (late.p99, rank(990))] {
                prop_assert!(told >= exact && told - exact <= exact / 16, "{told} {exact}");
            }
            prop_assert_eq!(late.max, *values.last().unwrap());
            prop_assert_eq!(late.alarms, values.iter().map(|&value| u64::from(value > ALARM_NS)).sum::<u64>());
        }

        #[test]
        fn any_value_has_a_bucket(value: u64) {
            Lateness::default().add(value);
        }
    }
}

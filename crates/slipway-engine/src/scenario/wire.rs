//! Whether the wire kept up while a scenario was played: a frame that goes out late was delayed by the machine, not by
//! conditions.

use std::collections::BTreeMap;

use slipway_lab::id::NodeId;

use crate::condition::LinkReport;

/// Frames that had to wait, and how many of them were late, by interface and direction, as last seen.
#[derive(Debug, Default)]
pub(super) struct WireWatch {
    seen: BTreeMap<(NodeId, usize, bool), Count>,
    /// What ports had counted that are gone by now.
    past: Count,
    /// What had been counted before.
    before: Count,
    /// The worst 99th percentile of a port, nanoseconds.
    worst: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    frames: u64,
    late: u64,
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, late: self.late + other.late }
    }
}

impl WireWatch {
    /// Watches from now on.
    pub(super) fn since(report: &LinkReport) -> Self {
        let mut watch = Self::default();
        watch.look(report);
        Self { before: watch.sum(), worst: 0, ..watch }
    }

    /// Takes note of how it is.
    pub(super) fn look(&mut self, report: &LinkReport) {
        for interface in &report.interfaces {
            for (egress, direction) in [(true, &interface.egress), (false, &interface.ingress)] {
                let Some(late) = direction.statistics.as_ref().map(|statistics| statistics.late) else { continue };
                let now = Count { frames: late.count, late: late.alarms };
                let place = (interface.node, interface.slot, egress);
                let known = self.seen.insert(place, now).unwrap_or_default();
                if now.frames < known.frames {
                    // Another port by now.
                    self.past = self.past.plus(known);
                }
                self.worst = self.worst.max(late.p99);
            }
        }
    }

    fn sum(&self) -> Count {
        self.seen.values().fold(self.past, |sum, &count| sum.plus(count))
    }

    /// What to know before trusting the result, if anything: more than one frame in a hundred was late.
    pub(super) fn alarm(&self) -> Option<String> {
        let sum = self.sum();
        let frames = sum.frames.saturating_sub(self.before.frames);
        let late = sum.late.saturating_sub(self.before.late);
        (late * 100 > frames).then(|| {
            format!(
                "the wire was late: {late} of {frames} delayed frames by more than 1 ms (99 % of one link's by at most {:.1} ms)",
                self.worst as f64 / 1e6
            )
        })
    }
}

//! How many streams: a few, and twice as many for as long as that makes the transfer faster.

use std::time::Duration;

use super::TICK;
use crate::path_rules::MOST;

/// Time between two judgements of the streams' speed.
pub(crate) const INTERVAL: Duration = TICK;
/// Intervals that new streams get before they are judged: congestion windows must grow first.
const SETTLE: u32 = 4;
/// A gain below this share is noise.
const GAIN: f64 = 1.08;
/// A small file costs about as much as this many bytes.
const FILE: u64 = 16 << 10;

/// Decides about streams.
#[derive(Default)]
pub(crate) struct Streams {
    count: u32,
    work: u64,
    rates: Vec<f64>,
    before: f64,
    done: bool,
}

impl Streams {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Opens more. `start` opens stream `number`.
    pub(crate) fn open(&mut self, more: u32, start: &mut impl FnMut(u32)) {
        for _ in 0..more {
            // Orders and answers are 0 and 1.
            start(self.count + 2);
            self.count += 1;
        }
    }

    /// Opens more where that has helped so far, given bytes and files that are done. To be called once in an interval.
    pub(crate) fn grow(&mut self, (bytes, files): (u64, u64), start: &mut impl FnMut(u32)) {
        let more = self.judge(bytes + files * FILE);
        self.open(more, start);
    }

    fn judge(&mut self, work: u64) -> u32 {
        let rate = work.saturating_sub(std::mem::replace(&mut self.work, work)) as f64;
        if self.done || work == 0 {
            return 0;
        }
        self.rates.push(rate);
        if self.rates.len() < SETTLE as usize {
            return 0;
        }
        let best = self.rates.drain(..).skip(1).fold(0.0, f64::max);
        let grew = best > self.before * GAIN;
        self.before = best.max(self.before);
        let more = self.count.min(MOST - self.count.min(MOST));
        self.done = !grew || more == 0;
        if self.done { 0 } else { more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams at the beginning.
    const FIRST: u32 = 2;

    /// Streams that a path gets where each of them is worth `each` up to `most`.
    fn on(each: u64, most: u64) -> u32 {
        let mut streams = Streams { count: FIRST, ..Streams::default() };
        let mut work = 0;
        for _ in 0..100 {
            work += (each * u64::from(streams.count)).min(most);
            streams.count += streams.judge(work);
        }
        streams.count
    }

    #[test]
    fn streams_grow_while_that_helps() {
        assert_eq!(on(1 << 20, u64::MAX), MOST);
        assert_eq!(on(1 << 20, 2 << 20), 4, "the first try shows no gain");
        assert_eq!(on(1 << 20, 6 << 20), 16, "6 streams would do");
        assert_eq!(on(0, 0), FIRST);
    }
}

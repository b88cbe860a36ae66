//! The kernel's token bucket (`net/sched/sch_tbf.c`), for a rate alone.

use std::collections::VecDeque;

use slipway_sys::netlink::Tbf;

const SECOND: f64 = 1e9;

/// A bucket, full at first.
#[derive(Debug)]
pub(crate) struct Model {
    /// Nanoseconds that a byte takes.
    per_byte: f64,
    /// Bytes that may wait.
    limit: u64,
    /// Most tokens that the bucket holds, nanoseconds of sending.
    depth: f64,
    /// Tokens that it held at `at`.
    tokens: f64,
    at: f64,
    /// Packets that wait: the time at which each goes, and its bytes.
    waiting: VecDeque<(f64, u64)>,
    bytes: u64,
}

impl Model {
    pub(super) fn new(tbf: Tbf) -> Self {
        let per_byte = SECOND / tbf.rate.max(1) as f64;
        let depth = f64::from(tbf.burst) * per_byte;
        let (tokens, at) = (depth, 0.0);
        Self { per_byte, limit: tbf.limit.into(), depth, tokens, at, waiting: VecDeque::new(), bytes: 0 }
    }

    /// When a packet goes; `None` where it finds no room.
    pub(super) fn pass(&mut self, now: u64, bytes: u32) -> Option<u64> {
        let now = now as f64;
        while let Some((_, gone)) = self.waiting.pop_front_if(|(goes, _)| *goes <= now) {
            self.bytes -= gone;
        }
        if self.bytes + u64::from(bytes) > self.limit {
            return None;
        }
        // Behind those that wait, and with the tokens that come until then.
        let from = now.max(self.at);
        let held = (self.tokens + from - self.at).min(self.depth);
        let needs = f64::from(bytes) * self.per_byte;
        let goes = from + (needs - held).max(0.0);
        (self.tokens, self.at) = ((held - needs).max(0.0), goes);
        self.waiting.push_back((goes, bytes.into()));
        self.bytes += u64::from(bytes);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds, not negative")]
        Some(goes.ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut model = Model::new(Tbf { rate: 1_000_000, burst: 3000, limit: 4000 });
        let due: Vec<_> = (0..8).map(|_| model.pass(0, 1000)).collect();
        // Four of a thousand bytes wait, beside three that went; those went at 0 and wait no more.
        let ms = |ms: u64| Some(ms * 1_000_000);
        assert_eq!(due, [ms(0), ms(0), ms(0), ms(1), ms(2), ms(3), ms(4), None]);
        assert_eq!(model.pass(10_000_000, 1000), ms(10), "filled again");
    }
}

//! The kernel's netem (`net/sched/sch_netem.c`, `netem_enqueue`): its order of events, its numbers of 32 bits, and what its
//! correlation makes of a share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use slipway_sys::netlink::{self, Netem, scaled_share};

use super::{Damage, Out, mix};

/// `NETEM_DIST_SCALE`.
const SCALE: i64 = 8192;
/// Bits of an Ethernet frame that only a switch may mind when they are turned over: the sender's address, all but the one
/// that tells a group.
const ADDRESS_BITS: f64 = 47.0;

/// A netem on which nothing waits.
#[derive(Debug)]
pub(crate) struct Model {
    random: Random,
    limit: usize,
    delay: i64,
    jitter: i32,
    shape: Option<Arc<[i16]>>,
    delays: Correlated,
    duplicate: Chance,
    loss: netlink::Loss,
    losses: Chance,
    state: State,
    corrupt: Chance,
    reorder: Chance,
    /// 0: none is ahead.
    gap: u32,
    counter: u32,
    /// Nanoseconds that a byte takes.
    per_byte: f64,
    /// Of what waits, when it leaves; and the latest time at which something is due.
    leaving: BinaryHeap<Reverse<u64>>,
    last: u64,
    late: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Between,
    Bad,
    Alone,
}

#[derive(Debug)]
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) >> 32) as u32
    }

    fn share(&mut self) -> f64 {
        f64::from(self.word()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// `get_crandom`: a draw averaged with the one before.
#[derive(Debug)]
struct Correlated {
    rho: u64,
    last: u64,
}

impl Correlated {
    fn new(correlation: f64, random: &mut Random) -> Self {
        Self { rho: scaled_share(correlation).into(), last: random.word().into() }
    }

    fn next(&mut self, random: &mut Random) -> u32 {
        let value = u64::from(random.word());
        if self.rho == 0 {
            return u32::try_from(value).unwrap_or(u32::MAX);
        }
        let rho = self.rho + 1;
        // Both products are below 2^64, and so is their sum: the weights add up to 2^32.
        let answer = (value * ((1 << 32) - rho) + self.last * rho) >> 32;
        self.last = answer;
        u32::try_from(answer).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
struct Chance {
    share: u32,
    draws: Correlated,
}

impl Chance {
    fn new(share: f64, correlation: f64, random: &mut Random) -> Self {
        Self { share: scaled_share(share), draws: Correlated::new(correlation, random) }
    }

    fn happens(&mut self, random: &mut Random) -> bool {
        self.share > 0 && self.share >= self.draws.next(random)
    }
}

impl Model {
    pub(super) fn new(netem: &Netem, shape: Option<Arc<[i16]>>, seed: u64, late: u64) -> Self {
        let mut random = Random(mix(seed));
        let lost = if let netlink::Loss::Random(lost) = netem.loss { lost } else { 0.0 };
        Self {
            limit: netem.limit as usize,
            delay: i64::try_from(netem.delay.as_nanos()).unwrap_or(i64::MAX),
            jitter: i32::try_from(netem.jitter.as_nanos()).unwrap_or(i32::MAX),
            shape,
            delays: Correlated::new(netem.delay_correlation, &mut random),
            duplicate: Chance::new(netem.duplicate, netem.duplicate_correlation, &mut random),
            loss: netem.loss,
            losses: Chance::new(lost, netem.loss_correlation, &mut random),
            state: State::Good,
            corrupt: Chance::new(netem.corrupt, netem.corrupt_correlation, &mut random),
            reorder: Chance::new(netem.reorder, netem.reorder_correlation, &mut random),
            gap: if netem.reorder > 0.0 { netem.gap.max(1) } else { 0 },
            counter: 0,
            per_byte: netem.rate.map_or(0.0, |rate| 1e9 / rate.max(1) as f64),
            leaving: BinaryHeap::new(),
            last: 0,
            late,
            random,
        }
    }

    pub(super) fn pass(&mut self, now: u64, bytes: u32, out: &mut Vec<Out>) {
        while self.leaving.peek().is_some_and(|Reverse(leaves)| *leaves <= now) {
            self.leaving.pop();
        }
        let copied = self.duplicate.happens(&mut self.random);
        let lost = self.loses();
        if lost && !copied {
            return;
        }
        // A copy makes up for a loss; otherwise it is queued first, and may be lost itself.
        if copied && !lost && !self.loses() {
            self.enqueue(now, bytes, out);
        }
        self.enqueue(now, bytes, out);
    }

    /// `loss_event`.
    fn loses(&mut self) -> bool {
        let random = &mut self.random;
        match self.loss {
            netlink::Loss::Random(_) => self.losses.happens(random),
            netlink::Loss::GilbertElliott { p, r, one_minus_h, one_minus_k } => {
                let (step, loss, next) = match self.state {
                    State::Bad => (r, one_minus_h, State::Good),
                    _ => (p, one_minus_k, State::Bad),
                };
                if random.share() < step {
                    self.state = next;
                }
                random.share() < loss
            }
            netlink::Loss::FourState { p13, p31, p32, p23, p14 } => {
                let drawn = random.share();
                self.state = match self.state {
                    State::Good if drawn < p14 => State::Alone,
                    State::Good if drawn < p14 + p13 => State::Bad,
                    State::Between if drawn < p23 => State::Bad,
                    State::Bad if drawn < p32 => State::Between,
                    State::Bad if drawn < p32 + p31 => State::Good,
                    State::Alone => State::Good,
                    stays => stays,
                };
                matches!(self.state, State::Bad | State::Alone)
            }
        }
    }

    fn enqueue(&mut self, now: u64, bytes: u32, out: &mut Vec<Out>) {
        let random = &mut self.random;
        let damage = if !self.corrupt.happens(random) {
            Damage::None
        } else if random.share() < ADDRESS_BITS / (f64::from(bytes) * 8.0) {
            Damage::Address
        } else {
            Damage::Deadly
        };
        if self.leaving.len() >= self.limit {
            return;
        }
        let delayed = self.gap == 0 || self.counter < self.gap - 1 || !self.reorder.happens(random);
        let due = if delayed {
            self.counter = self.counter.saturating_add(1);
            self.due(now, bytes)
        } else {
            self.counter = 0;
            now
        };
        self.leaving.push(Reverse(due.max(now).saturating_add(self.late)));
        out.push(Out { due: due.max(now), ahead: !delayed, damage });
    }

    fn due(&mut self, now: u64, bytes: u32) -> u64 {
        let delay = self.tabledist();
        if self.per_byte <= 0.0 {
            return now.saturating_add_signed(delay);
        }
        // Behind the last one that waits.
        let from = if self.last > now && !self.leaving.is_empty() {
            self.last.max(now.saturating_add_signed(delay))
        } else {
            now.saturating_add_signed(delay)
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds, not negative")]
        let sending = (f64::from(bytes) * self.per_byte) as u64;
        self.last = from.saturating_add(sending);
        self.last
    }

    /// `tabledist`.
    fn tabledist(&mut self) -> i64 {
        if self.jitter == 0 {
            return self.delay;
        }
        let drawn = i64::from(self.delays.next(&mut self.random));
        let sigma = i64::from(self.jitter);
        match &self.shape {
            None => drawn % (2 * sigma) + self.delay - sigma,
            Some(table) => {
                let at = usize::try_from(drawn).unwrap_or(0) % table.len().max(1);
                let t = table.get(at).copied().map_or(0, i64::from);
                let x = sigma % SCALE * t;
                let rounded = if x >= 0 { x + SCALE / 2 } else { x - SCALE / 2 };
                rounded / SCALE + sigma / SCALE * t + self.delay
            }
        }
    }
}

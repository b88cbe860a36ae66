//! Expected values of the measured paths: the same trains are sent often through models of the mechanisms.

use std::time::Duration;

use slipway_lab::condition::LinkConditions;

use super::chance::{self, Range};
use super::flood::Flood;
use super::model::Damage;
use super::train::{Train, quantile};
use super::world::{Sent, Way, World, loses};

/// How late a machine may be, nanoseconds: what it may add to a delay, and how late packets may leave a full queue.
pub(super) const LATE: u64 = 500_000;
/// Packets that are simulated through all ports together, about.
const WORK: usize = 1_000_000;
/// How often trains are simulated.
const RUNS: std::ops::RangeInclusive<usize> = 24..=120;
/// Trains from which it is told what overtakes.
const PILOTS: usize = 8;

/// Expected values of a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Expected {
    /// Packets that do not arrive.
    pub(super) loss: Option<Range>,
    /// Second copies, of those that arrive.
    pub(super) duplicate: Option<Range>,
    /// Packets that overtake, of those that arrive; `None` where none should.
    pub(super) reorder: Option<Reorder>,
    /// Median, of those that do not overtake, seconds. `None` where the mechanism adds none.
    pub(super) delay: Option<Range>,
    /// Half the distance between which 68 of 100 delays lie, seconds; `None` where it does not vary.
    pub(super) jitter: Option<Range>,
    /// A packet that took less overtook.
    pub(super) early: Option<f64>,
}

/// The expected share of packets that overtake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reorder {
    /// A share within a range.
    Share(Range),
    /// It saves packets so little time that this cannot be told from lateness.
    TooClose,
}

/// Readings of a train, measured or simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) sent: f64,
    pub(super) got: f64,
    pub(super) twice: f64,
    pub(super) early: f64,
    /// Packets that arrived and did not overtake.
    pub(super) delayed: f64,
    /// Median of their delays, seconds.
    pub(super) delay: f64,
    /// Jitter of their delays, seconds, reckoned as [`Expected::jitter`] is.
    pub(super) spread: f64,
}

impl Seen {
    /// `early`: a packet that took less overtook.
    pub(super) fn of(train: &Train, early: Option<f64>) -> Self {
        let arrived = train.delays.iter().flatten();
        let mut delays: Vec<f64> = arrived.copied().filter(|&delay| early.is_none_or(|early| delay >= early)).collect();
        delays.sort_unstable_by(f64::total_cmp);
        let got = train.delays.iter().flatten().count() as f64;
        let at = |share| quantile(&delays, share).unwrap_or(0.0);
        Self {
            sent: train.delays.len() as f64,
            got,
            twice: f64::from(train.twice),
            early: got - delays.len() as f64,
            delayed: delays.len() as f64,
            delay: at(0.5),
            spread: (at(0.84) - at(0.16)) / 2.0,
        }
    }
}

/// Expected values of each path, for trains sent so.
pub(super) fn expect(world: &World, sent: &[Sent]) -> Vec<Expected> {
    let counts = lengths(world, sent);
    let random = world.is_random();
    // Without chance, trains differ only by how late queues are emptied.
    let runs = if random { (WORK / sent.len().max(1)).clamp(*RUNS.start(), *RUNS.end()) } else { PILOTS };
    let early = early(world, sent, runs.min(PILOTS));
    let mut seen: Vec<Vec<Seen>> = vec![Vec::with_capacity(runs); world.ways.len()];
    for run in 0..runs {
        let trains = simulate(world, sent, &counts, run);
        for ((seen, train), early) in seen.iter_mut().zip(&trains).zip(&early) {
            seen.push(Seen::of(train, early.threshold()));
        }
    }
    world.ways.iter().zip(&seen).zip(&early).map(|((way, seen), early)| of_path(way, seen, *early)).collect()
}

fn of_path(way: &Way, seen: &[Seen], early: Early) -> Expected {
    let all = |of: fn(&Seen) -> f64| seen.iter().map(of).collect::<Vec<f64>>();
    let is = |of: fn(&LinkConditions) -> bool| way.asked.iter().any(of);
    let missing: Vec<f64> = seen.iter().map(|seen| seen.sent - seen.got).collect();
    let loss = if is(loses) || missing.iter().any(|&missing| missing > 0.0) {
        chance::share(&missing, &all(|seen| seen.sent))
    } else {
        Some(Range::exactly(0.0))
    };
    let some = |share: Option<slipway_document::units::Fraction>| share.is_some_and(|share| share.0 > 0.0);
    let got = all(|seen| seen.got);
    let any = got.iter().any(|&got| got > 0.0);
    let duplicate = any && way.asked.iter().any(|of| some(of.duplicate));
    let reorder = match early {
        _ if !any => None,
        Early::None => None,
        Early::TooClose => Some(Reorder::TooClose),
        Early::Below(_) => chance::share(&all(|seen| seen.early), &got).map(Reorder::Share),
    };
    let of_delayed = |of: fn(&Seen) -> f64| {
        let delayed = seen.iter().filter(|seen| seen.delayed >= 2.0);
        chance::value(&delayed.map(of).collect::<Vec<f64>>())
    };
    let delay = of_delayed(|seen| seen.delay).filter(|delay| is(|of| of.delay.is_some()) || delay.expected > 0.0);
    let jitter = is(|of| of.jitter.is_some_and(|jitter| jitter.0 > 0.0));
    Expected {
        loss,
        duplicate: duplicate.then(|| chance::share(&all(|seen| seen.twice), &got)).flatten(),
        reorder,
        delay,
        jitter: jitter.then(|| of_delayed(|seen| seen.spread)).flatten(),
        early: early.threshold(),
    }
}

/// The time that packets take at most, seconds, if they overtake.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Early {
    None,
    TooClose,
    Below(f64),
}

impl Early {
    fn threshold(self) -> Option<f64> {
        if let Self::Below(threshold) = self { Some(threshold) } else { None }
    }
}

/// For each path, between what packets take that overtake, and the others.
fn early(world: &World, sent: &[Sent], runs: usize) -> Vec<Early> {
    let overtakes = |way: &Way| way.asked.iter().any(|of| of.reorder.is_some_and(|share| share.0 > 0.0));
    if !world.ways.iter().any(overtakes) {
        return vec![Early::None; world.ways.len()];
    }
    let mut delays = vec![[Vec::new(), Vec::new()]; world.ways.len()];
    for run in 0..runs {
        world.simulate(run as u64, 0, sent, &mut |arrival| {
            let took = arrival.at.saturating_sub(arrival.sent.at) as f64 / 1e9;
            delays[arrival.sent.way][usize::from(arrival.ahead)].push(took);
        });
    }
    let told = |(way, [ordinary, ahead]): (&Way, &mut [Vec<f64>; 2])| {
        if !overtakes(way) {
            return Early::None;
        }
        ordinary.sort_unstable_by(f64::total_cmp);
        ahead.sort_unstable_by(f64::total_cmp);
        match (quantile(ordinary, 0.5), quantile(ahead, 0.95)) {
            (Some(ordinary), Some(ahead)) if ordinary - ahead > 2.0 * LATE as f64 / 1e9 => {
                Early::Below(f64::midpoint(ordinary, ahead))
            }
            _ => Early::TooClose,
        }
    };
    world.ways.iter().zip(&mut delays).map(told).collect()
}

/// How many packets each path is sent.
fn lengths(world: &World, sent: &[Sent]) -> Vec<usize> {
    let mut counts = vec![0; world.ways.len()];
    for sent in sent {
        counts[sent.way] = counts[sent.way].max(sent.number as usize + 1);
    }
    counts
}

/// Trains as they may come out. Every second run takes damage to an Ethernet address for what a switch drops, and runs
/// differ by how late queues are emptied.
pub(super) fn simulate(world: &World, sent: &[Sent], counts: &[usize], run: usize) -> Vec<Train> {
    let mut trains: Vec<Train> = counts.iter().map(|&count| Train { delays: vec![None; count], twice: 0 }).collect();
    let late = LATE * (run % PILOTS) as u64 / (PILOTS as u64 - 1);
    world.simulate(run as u64 + 1, late, sent, &mut |arrival| {
        let dropped = match arrival.damage {
            Damage::None => false,
            Damage::Address => run.is_multiple_of(2),
            Damage::Deadly => true,
        };
        if !dropped {
            let took = arrival.at.saturating_sub(arrival.sent.at) as f64 / 1e9;
            trains[arrival.sent.way].note(arrival.sent.number as usize, took);
        }
    });
    trains
}

/// The expected time that packets take while the queue of a path is full that is flooded with these, seconds.
pub(super) fn standing(world: &World, sent: &[Sent], flood: &Flood) -> Option<Range> {
    let runs = if world.is_random() { PILOTS } else { 1 };
    let standing = |run: usize| {
        let mut arrivals = Vec::with_capacity(sent.len());
        world.simulate(run as u64 + 1, 0, sent, &mut |arrival| {
            if arrival.damage != Damage::Deadly {
                arrivals.push((arrival.at, arrival.at.saturating_sub(arrival.sent.at).cast_signed()));
            }
        });
        flood.standing(&arrivals)
    };
    let all: Vec<f64> = (0..runs).filter_map(standing).collect();
    if all.len() == runs { chance::value(&all) } else { None }
}

/// The expected rate of a path that is flooded with these packets, bits per second, reckoned as a measured one is. Also
/// gives the time at which the last packet is through.
pub(super) fn rate(world: &World, sent: &[Sent], reckon: &dyn Fn(&[u64]) -> Option<f64>) -> (Option<Range>, Duration) {
    let runs = if world.is_random() { PILOTS } else { 1 };
    let (mut rates, mut end) = (Vec::new(), 0);
    for run in 0..runs {
        let mut arrivals = Vec::with_capacity(sent.len());
        world.simulate(run as u64 + 1, 0, sent, &mut |arrival| {
            end = end.max(arrival.at);
            if arrival.damage != Damage::Deadly {
                arrivals.push(arrival.at);
            }
        });
        rates.extend(reckon(&arrivals));
    }
    (if rates.len() == runs { chance::value(&rates) } else { None }, Duration::from_nanos(end))
}

//! The times at which packets are sent, and the time that all of it takes. A train is as long as its path's conditions
//! need, as far as the time for measuring reaches.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_document::units::Seconds;
use slipway_lab::condition::{LinkConditions, Loss};

use super::Effort;
use super::flood::Flood;
use super::path::{HEADERS, PACKET};
use super::world::{Sent, Way, World};

/// Packets sent in a second over all paths together: few enough that sending does not disturb what is measured.
const MOST_PER_SECOND: f64 = 20_000.0;
/// Packets of a path where nothing needs more.
const PACKETS: u32 = 1000;
/// The fewest that say anything.
const LEAST: u32 = 10;
/// How many packets something must happen to, that twice as many can be told from it in 199 of 200 trains.
const EVENTS: f64 = 70.0;
/// The part of a rate that trains take: a queue that is mostly empty.
const LOAD: f64 = 0.2;
/// Between two packets of a path, where nothing asks for more or fewer.
const INTERVAL: Duration = Duration::from_millis(1);
/// And where a long train would not fit into its time.
const SHORTEST: Duration = Duration::from_micros(250);
/// How long trains take at most, where no time is given: without a rate to measure, and with one.
const TRAIN: [Duration; 2] = [Duration::from_secs(9), Duration::from_secs(5)];
/// After the last packet, for what is late.
const PATIENCE: Duration = Duration::from_millis(500);

/// The train of a path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Train {
    pub(super) packets: u32,
    pub(super) interval: Duration,
    /// Packets that would tell everything that is asked.
    pub(super) needed: u32,
}

/// The packets to send, with their times.
#[derive(Debug)]
pub(super) struct Timetable {
    /// One for each path.
    pub(super) trains: Vec<Train>,
    pub(super) patience: Duration,
    /// One for each path with a rate.
    pub(super) floods: Vec<Option<Flood>>,
}

impl Timetable {
    pub(super) fn of(world: &World, mtus: &[usize], effort: Effort) -> Self {
        let rated = world.ways.iter().filter(|way| way.rate().is_some()).count();
        let patience = world.ways.iter().map(Way::longest).max().unwrap_or_default() + PATIENCE;
        let most = match effort.time {
            None => TRAIN[usize::from(rated > 0)],
            Some(time) => (if rated > 0 { time / 2 } else { time }).saturating_sub(patience),
        };
        let train = |at: usize| train(world, at, effort, most);
        let trains: Vec<Train> = (0..world.ways.len()).map(train).collect();
        let flood = |(at, way): (usize, &Way)| way.rate().map(|rate| Flood::new(world, at, rate, mtus[at], effort));
        let floods = world.ways.iter().enumerate().map(flood).collect();
        Self { trains, patience, floods }
    }

    /// Time that the longest train takes, with the patience behind it.
    pub(super) fn trains_last(&self) -> Duration {
        self.trains.iter().map(|train| train.interval * train.packets).max().unwrap_or_default() + self.patience
    }

    /// How long all of it takes, as far as there is time.
    pub(super) fn lasts(&self, effort: Effort) -> Duration {
        let floods: Duration = self.floods.iter().flatten().map(Flood::lasts).sum();
        let all = self.trains_last() + floods;
        effort.time.map_or(all, |time| all.min(time.max(self.trains_last())))
    }
}

/// The packets of all trains, in order. Those of different paths are apart, so that they do not meet in a queue.
pub(super) fn packets(trains: &[Train]) -> Vec<Sent> {
    let bytes = u32::try_from(PACKET + HEADERS).unwrap_or(u32::MAX);
    let mut packets = Vec::new();
    for (way, train) in trains.iter().enumerate() {
        let interval = train.interval.as_nanos() as f64;
        // Multiples of the golden ratio are spread evenly, however many there are.
        let offset = (way as f64 * 0.618_033_988_749_895).fract() * interval;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds, not negative")]
        let at = |number: u32| (offset + f64::from(number) * interval) as u64;
        packets.extend((0..train.packets).map(|number| Sent { at: at(number), way, number, bytes }));
    }
    packets.sort_unstable();
    packets
}

fn train(world: &World, at: usize, effort: Effort, most: Duration) -> Train {
    let way = &world.ways[at];
    let together = world.ways.len() as f64 / MOST_PER_SECOND;
    let bits = ((PACKET + HEADERS) * 8 * world.sharing(at)) as f64;
    let slow = Duration::from_secs_f64(together.max(way.rate().map_or(0.0, |rate| bits / LOAD / rate)));
    let needed = needed(way);
    let wanted = effort.packets.unwrap_or(needed);
    let interval = effort.interval.unwrap_or_else(|| (most / wanted.max(1)).clamp(SHORTEST, INTERVAL)).max(slow);
    let fits = most.as_nanos() / interval.as_nanos().max(1);
    let fits = u32::try_from(fits).unwrap_or(u32::MAX).max(LEAST);
    // Send as many as were asked for, unless a time was asked for too.
    let packets = if effort.packets.is_some() && effort.time.is_none() { wanted } else { wanted.min(fits) };
    Train { packets, interval, needed }
}

fn needed(way: &Way) -> u32 {
    let of = |asked: &LinkConditions| {
        let memory = (1.0 + memory(asked)) / (1.0 - memory(asked));
        let share = |share: Option<slipway_document::units::Fraction>| share.map_or(0.0, |share| share.0);
        let ahead = share(asked.reorder);
        let gap = f64::from(asked.gap.unwrap_or(1).max(1));
        let ahead = if ahead > 0.0 { 1.0 / (gap - 1.0 + 1.0 / ahead) } else { 0.0 };
        let lost = lost(asked) / memory;
        [lost, share(asked.corrupt), share(asked.duplicate), ahead]
    };
    let shares = way.asked.iter().flat_map(of).filter(|share| *share > 0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is what is meant")]
    let packets = (EVENTS / shares.fold(1.0, f64::min)).ceil() as u32;
    packets.max(PACKETS)
}

impl Way {
    /// The slowest rate on it, bits per second; `None` where nothing passes.
    pub(super) fn rate(&self) -> Option<f64> {
        let rates = self.asked.iter().filter_map(|asked| asked.rate).map(|rate| rate.0 as f64);
        let slowest = rates.fold(f64::INFINITY, f64::min);
        (slowest.is_finite() && !self.closed).then_some(slowest)
    }

    /// Longest time that a packet may take, about.
    pub(super) fn longest(&self) -> Duration {
        let time = |time: Option<Seconds>| time.map_or(0.0, |time| time.0);
        let of = |asked: &LinkConditions| {
            let sending = asked.rate.map_or(0.0, |rate| 20.0 * ((PACKET + HEADERS) * 8) as f64 / rate.0 as f64);
            time(asked.delay) + 4.0 * time(asked.jitter) + sending
        };
        Duration::try_from_secs_f64(self.asked.iter().map(of).sum()).unwrap_or(Duration::MAX / 4)
    }

    /// Packets that arrive whole, about, 0 to 1.
    pub(super) fn intact(&self) -> f64 {
        let of = |asked: &LinkConditions| (1.0 - lost(asked)) * (1.0 - asked.corrupt.map_or(0.0, |share| share.0));
        self.asked.iter().map(of).product()
    }
}

/// Packets lost in the long run, 0 to 1.
fn lost(conditions: &LinkConditions) -> f64 {
    match conditions.loss {
        None => 0.0,
        Some(Loss::Random(share)) => share.0,
        Some(Loss::GilbertElliott { p, r, one_minus_h, one_minus_k }) => {
            let bad = if p.0 + r.0 > 0.0 { p.0 / (p.0 + r.0) } else { 0.0 };
            bad * one_minus_h.0 + (1.0 - bad) * one_minus_k.0
        }
        // Salsano et al., section 5: from the balance of the four states' flows.
        Some(Loss::FourState { p13, p31, p32, p23, p14 }) => {
            let burst = if p31.0 > 0.0 { p13.0 / p31.0 } else { f64::INFINITY };
            let within = if p23.0 > 0.0 { p32.0 / p23.0 } else { f64::INFINITY };
            if burst.is_infinite() {
                return 1.0;
            }
            let all = 1.0 + burst * (1.0 + if burst > 0.0 { within } else { 0.0 }) + p14.0;
            (burst + p14.0) / all
        }
    }
}

/// How much one packet's loss says of the next one's.
fn memory(conditions: &LinkConditions) -> f64 {
    match conditions.loss {
        Some(Loss::GilbertElliott { p, r, .. }) => (1.0 - p.0 - r.0).clamp(0.0, 0.999),
        Some(Loss::FourState { p13, p31, .. }) => (1.0 - p13.0 - p31.0).clamp(0.0, 0.999),
        _ => conditions.loss_correlation.map_or(0.0, |share| share.0.min(0.999)),
    }
}

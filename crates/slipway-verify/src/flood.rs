//! The rate of a path: more is sent than it should carry, and what arrives is counted.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::path::{HEADERS, HEADERS_IN_MTU, PACKET, Path};
use super::train::{quantile, receive, stamp};
use super::world::{Sent, World};
use super::{Effort, VerifyError};

/// How much more than the rate is offered.
const SURPLUS: f64 = 1.3;
/// The part of the time that is left for a burst at the beginning to pass, not counted.
const SETTLING: f64 = 0.3;
/// Packets whose spacing is to say a rate, where there is time.
const PACKETS: f64 = 40.0;
/// The fewest that say one.
const LEAST: usize = 5;
/// Packets of one flood: more is more than this machine can send.
const MOST: f64 = 400_000.0;
/// How long one takes at most, where no time is given.
const LONGEST: Duration = Duration::from_secs(5);

/// A flood to be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Flood {
    /// Rate that the path should carry, bits per second as the kernel counts them, headers included.
    pub(super) rate: f64,
    /// Bytes of UDP payload.
    payload: usize,
    /// Counted from when the first packet came.
    time: Duration,
    /// Packets sent at once, at the beginning.
    burst: f64,
    /// Bits per second that are sent afterwards, headers included.
    offered: f64,
    /// All packets.
    count: u32,
    /// When the last of it is through, about.
    through: Duration,
    /// Time that the path's queue takes to empty, where it is asked to have one.
    queue: Option<Duration>,
}

/// Rates offered and received, bits per second as the kernel counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Flooded {
    pub(super) offered: f64,
    /// `None` where too few packets came to tell.
    pub(super) received: Option<f64>,
    /// Seconds that packets took while the queue was full; `None` where too few came.
    pub(super) took: Option<f64>,
    /// The receiving socket had no room for some.
    pub(super) overflown: bool,
}

impl Flooded {
    /// Both parts as one: the sender's machine says the rate offered, the receiver's all else.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            offered: self.offered.max(other.offered),
            received: self.received.or(other.received),
            took: self.took.or(other.took),
            overflown: self.overflown || other.overflown,
        }
    }
}

impl Flood {
    /// Of the path `way`, whose slowest rate is `rate`.
    pub(super) fn new(world: &World, way: usize, rate: f64, mtu: usize, effort: Effort) -> Self {
        let most = effort.time.map_or(LONGEST, |time| (time / 4).min(LONGEST)).max(effort.rate_time);
        let bits = |payload: usize| ((payload + HEADERS) * 8) as f64;
        // A slow path takes smaller packets, so that enough of them come.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in the range that follows")]
        let fits = (rate * most.as_secs_f64() / 2.0 / PACKETS / 8.0) as usize;
        let payload = fits.saturating_sub(HEADERS).clamp(PACKET, mtu.saturating_sub(HEADERS_IN_MTU).max(PACKET));
        let bits = bits(payload);
        let queued = f64::from(world.queued(way, payload + HEADERS).unwrap_or(0));
        let queue =
            world.queued(way, payload + HEADERS).map(|queued| Duration::from_secs_f64(f64::from(queued) * bits / rate));
        let time = effort
            .rate_time
            .max(Duration::from_secs_f64(PACKETS * bits / rate))
            .max(queue.unwrap_or_default().mul_f64(2.0))
            .min(most);
        let offered = rate * SURPLUS / world.ways[way].intact().max(0.01);
        let time = time.min(Duration::from_secs_f64(MOST * bits / offered));
        // As much is sent at once as a bucket lets pass at once.
        let burst = f64::from(world.burst(way)) * 8.0 / bits + queued.min(MOST / 4.0);
        let count = burst + offered * time.as_secs_f64() / bits;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some hundred thousand")]
        let count = count.ceil() as u32;
        let through = time.mul_f64(SURPLUS) + world.ways[way].longest() + queue.unwrap_or_default();
        Self { rate, payload, time, burst, offered, count, through, queue }
    }

    /// All packets, with the times at which they are sent over the path `way`.
    pub(super) fn packets(&self, way: usize) -> Vec<Sent> {
        let bytes = u32::try_from(self.payload + HEADERS).unwrap_or(u32::MAX);
        (0..self.count).map(|number| Sent { at: self.due(number), way, number, bytes }).collect()
    }

    /// The time at which a packet is sent, nanoseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds, not negative")]
    fn due(&self, number: u32) -> u64 {
        let bits = ((self.payload + HEADERS) * 8) as f64;
        ((f64::from(number) - self.burst).max(0.0) * bits / self.offered * 1e9) as u64
    }

    /// How long it takes, until nothing of it is under way any more.
    pub(super) fn lasts(&self) -> Duration {
        self.through
    }

    /// Rate by the times of arrival (nanoseconds), bits per second; `None` where too few came to tell.
    pub(super) fn reckon(&self, arrivals: &[u64]) -> Option<f64> {
        let first = *arrivals.first()?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let counted: Range<u64> = first + nanoseconds(self.time.mul_f64(SETTLING))..first + nanoseconds(self.time);
        let counted: Vec<u64> = arrivals.iter().copied().filter(|at| counted.contains(at)).collect();
        let [first, .., last] = counted.as_slice() else { return None };
        let bits = ((self.payload + HEADERS) * 8) as f64;
        let time = last.saturating_sub(*first) as f64 / 1e9;
        (counted.len() >= LEAST && time > 0.0).then(|| (counted.len() - 1) as f64 * bits / time)
    }

    /// Time that packets took while the queue was full, seconds, by the times of arrival and the times taken (nanoseconds).
    /// `None` where too few came to tell.
    pub(super) fn standing(&self, arrivals: &[(u64, i64)]) -> Option<f64> {
        let first = arrivals.first()?.0;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let counted = first + nanoseconds(self.time / 2)..first + nanoseconds(self.time);
        let took = arrivals.iter().filter(|(at, _)| counted.contains(at)).map(|(_, took)| *took as f64 / 1e9);
        let mut took: Vec<f64> = took.collect();
        took.sort_unstable_by(f64::total_cmp);
        quantile(&took, 0.5).filter(|_| took.len() >= LEAST)
    }

    /// Time that a packet lasts at the rate, and that a full queue takes to empty, where one is asked; seconds.
    pub(super) fn queue(&self) -> Option<(f64, f64)> {
        let packet = ((self.payload + HEADERS) * 8) as f64 / self.rate;
        self.queue.map(|queue| (packet, queue.as_secs_f64()))
    }

    /// Whether a queue is full by half the time.
    pub(super) fn fills(&self) -> bool {
        self.queue.is_none_or(|queue| queue * 2 <= self.time)
    }

    /// Floods the path from `begun` on, and waits until nothing of it is under way: by `through` at the latest. Does so for
    /// the ends that are here.
    pub(super) fn run(
        &self,
        path: &Path,
        through: Duration,
        begun: Instant,
        progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
    ) -> Result<Flooded, VerifyError> {
        let mut packet = vec![0u8; self.payload.max(PACKET)];
        let end = through.max(self.time) + QUIET;
        let (mut arrivals, mut overflown) = (Vec::new(), 0);
        let mut taken = Vec::new();
        let (mut sent, mut offered_for, mut last) = (0u32, Duration::ZERO, begun);
        while begun.elapsed() < end {
            let elapsed = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            // In small batches, so that the socket's queue does not swallow them all at once.
            for _ in 0..64 {
                let Some(sender) = path.sender.as_ref().filter(|_| begun.elapsed() <= self.time) else { break };
                if sent >= self.count || self.due(sent) > elapsed {
                    break;
                }
                // A full queue loses what is offered beyond it; that is the point.
                stamp(&mut packet, sent);
                let _ = sender.send(&packet);
                sent += 1;
                offered_for = begun.elapsed();
            }
            while let Some(received) = receive(path)? {
                arrivals.push(received.at);
                taken.extend(received.took().map(|took| (received.at, took)));
                overflown = overflown.max(received.overflown);
                last = Instant::now();
            }
            // The last of it is through when nothing comes although it could.
            if begun.elapsed() > self.time && last.elapsed() > QUIET + self.gap() {
                break;
            }
            progress((begun.elapsed().as_secs_f64() / end.as_secs_f64()).min(1.0))?;
            std::thread::sleep(Duration::from_micros(200));
        }
        let bits = ((self.payload + HEADERS) * 8) as f64;
        let offered = f64::from(sent) * bits / offered_for.max(self.time / 2).as_secs_f64();
        let (received, took) = (self.reckon(&arrivals), self.standing(&taken));
        Ok(Flooded { offered, received, took, overflown: overflown > 0 })
    }

    /// Between two packets at the rate, with room.
    fn gap(&self) -> Duration {
        Duration::from_secs_f64(3.0 * ((self.payload + HEADERS) * 8) as f64 / self.rate)
    }
}

/// How long nothing comes, once nothing is under way any more.
const QUIET: Duration = Duration::from_millis(100);

//! One ring of a relayed connection: records move from one end's memory to the other's, no faster than a rate.
//!
//! Both memories have the same layout and the same counters, so a relay copies bytes to where they were. It reads of a record
//! only its length, from a copy of its own. All numbers of programs are bounded before they lead anywhere.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::layout::{BLOCK, REQUEST_HEAD, REQUEST_TAIL, REQUESTS, RESPONSE_HEAD, RESPONSE_TAIL, RESPONSES, RINGS};
use crate::plugin::memory::{Mapping, copy, load};

/// Bytes of a record's header, and the unit of a record.
const UNIT: u64 = HEADER as u64;
/// Bytes of a header.
const HEADER: usize = 64;
/// Time whose bytes may go at once after a pause. A relay that wakes late makes up for it within this time.
const BURST: Duration = Duration::from_millis(10);
/// Most bytes of a lane in one turn, so that no connection holds others up.
const TURN: u64 = 256 << 10;

/// A program has lied about a counter or a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lie;

/// The bytes of one direction in time.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bits a second; `None`: as fast as it goes.
    rate: Option<u64>,
    due: Instant,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>, now: Instant) -> Self {
        Self { rate, due: now }
    }

    pub(super) fn set(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    /// When the next record may go; `None`: now.
    fn waits(&self, now: Instant) -> Option<Instant> {
        (self.rate.is_some() && self.due > now).then_some(self.due)
    }

    fn charge(&mut self, bytes: u64, now: Instant) {
        let Some(rate) = self.rate else { return };
        let nanoseconds = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
        let time = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        self.due = self.due.max(earliest).checked_add(time).unwrap_or(self.due);
    }
}

/// A lane after a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Records moved.
    pub(super) moved: bool,
    /// The consumer went on.
    pub(super) consumed: bool,
    /// When the next record may go, where one waits for its time.
    pub(super) due: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Lane {
    start: usize,
    length: u64,
    tail: usize,
    head: usize,
    /// The end that produces: 0 or 1.
    pub(super) from: usize,
    /// Bytes moved so far.
    sent: u64,
    /// Bytes consumed of these.
    seen: u64,
}

impl Lane {
    fn new(from: usize, base: usize, length: usize, tail: usize, head: usize) -> Self {
        let start = base + from * length;
        let (tail, head) = (from * BLOCK + tail, (1 - from) * BLOCK + head);
        Self { start, length: length as u64, tail, head, from, sent: 0, seen: 0 }
    }

    /// The lanes of a connection: requests and responses, in both directions.
    pub(super) fn all() -> [Self; 4] {
        let requests = |from| Self::new(from, RINGS, REQUESTS, REQUEST_TAIL, REQUEST_HEAD);
        let responses = |from| Self::new(from, RINGS + 2 * REQUESTS, RESPONSES, RESPONSE_TAIL, RESPONSE_HEAD);
        [requests(0), requests(1), responses(0), responses(1)]
    }

    /// Whether records lie at the consumer that it has not consumed.
    pub(super) fn is_outstanding(&self) -> bool {
        self.sent > self.seen
    }

    /// Whether the producer has nothing left to move.
    pub(super) fn is_drained(&self, memories: [&Mapping; 2]) -> bool {
        memories[self.from].word64(self.tail).load(Ordering::Acquire) == self.sent
    }

    /// Moves records that are due.
    pub(super) fn turn(&mut self, memories: [&Mapping; 2], pace: &mut Pace) -> Result<Turn, Lie> {
        let (from, to) = (memories[self.from], memories[1 - self.from]);
        let mut turn = Turn::default();
        let head = to.word64(self.head).load(Ordering::Acquire);
        if head < self.seen || head > self.sent {
            return Err(Lie);
        }
        if head > self.seen {
            self.seen = head;
            from.word64(self.head).store(head, Ordering::Release);
            turn.consumed = true;
        }
        let tail = from.word64(self.tail).load(Ordering::Acquire);
        if tail < self.sent || tail - self.seen > self.length || !tail.is_multiple_of(UNIT) {
            return Err(Lie);
        }
        let mut rest = TURN;
        while self.sent < tail {
            let now = Instant::now();
            if let Some(due) = pace.waits(now) {
                turn.due = Some(due);
                break;
            }
            if rest == 0 {
                break;
            }
            let header: [u8; HEADER] = load(from.piece(self.place(self.sent), HEADER).ok_or(Lie)?);
            // The layout of a record's header: `plugin::ring::Header`.
            let payload = u64::from(u32::from_le_bytes([header[8], header[9], header[10], header[11]]));
            let record = UNIT + payload.next_multiple_of(UNIT);
            if record > tail - self.sent {
                return Err(Lie);
            }
            let there = to.piece(self.place(self.sent), HEADER).ok_or(Lie)?;
            copy(header.as_ptr() as usize, there.at, there.length);
            self.payload(from, to, payload)?;
            self.sent += record;
            to.word64(self.tail).store(self.sent, Ordering::Release);
            pace.charge(payload, now);
            rest = rest.saturating_sub(record);
            turn.moved = true;
        }
        Ok(turn)
    }

    /// Copies the payload of the record that is next: it may lie at both ends of the ring.
    fn payload(&self, from: &Mapping, to: &Mapping, length: u64) -> Result<(), Lie> {
        let at = (self.sent + UNIT) % self.length;
        let first = length.min(self.length - at);
        for (at, length) in [(at, first), (0, length - first)] {
            let at = self.place(at);
            let length = usize::try_from(length).map_err(|_| Lie)?;
            let (from, to) = (from.piece(at, length).ok_or(Lie)?, to.piece(at, length).ok_or(Lie)?);
            copy(from.at, to.at, length);
        }
        Ok(())
    }

    fn place(&self, counter: u64) -> usize {
        self.start + usize::try_from(counter % self.length).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::MEMORY;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn memory() -> Mapping {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, MEMORY as u64).unwrap();
        Mapping::new(&file, MEMORY, true).unwrap()
    }

    #[test]
    fn a_pace_holds_its_rate_and_saves_no_more_than_a_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(8_000_000), start);
        let mut now = start + Duration::from_secs(3);
        let mut sent = 0;
        // A megabyte a second: ten seconds pass in steps of a millisecond.
        while now < start + Duration::from_secs(13) {
            while pace.waits(now).is_none() {
                pace.charge(1000, now);
                sent += 1000;
            }
            now += Duration::from_millis(1);
        }
        assert!((10_000_000..=10_012_000).contains(&sent), "{sent}");
        pace.set(None);
        assert_eq!(pace.waits(start), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever programs write: a lane moves records within both rings, or notices the lie.
        #[test]
        fn lies_end_a_lane_and_reach_nothing_outside(
            words in proptest::collection::vec((0_usize..RINGS / 8 + 64, any::<u64>()), 0..30),
            near in 0_u64..8192,
            side in 0_usize..2,
        ) {
            let memories = [memory(), memory()];
            let both = [&memories[0], &memories[1]];
            let mut lanes = Lane::all();
            let mut pace = Pace::new(None, Instant::now());
            for (at, value) in words {
                memories[side].word64(at * 8).store(value, Ordering::Relaxed);
                memories[side].word64(REQUEST_TAIL).store(near * 64, Ordering::Relaxed);
                for lane in &mut lanes {
                    let before = lane.sent;
                    if lane.turn(both, &mut pace).is_ok() {
                        prop_assert!(lane.sent - before <= TURN + lane.length);
                        prop_assert!(lane.sent - lane.seen <= lane.length);
                    }
                }
            }
        }
    }
}

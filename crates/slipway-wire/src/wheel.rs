//! A hierarchical timing wheel (Varghese and Lauck, 1987): what waits, by when it is due.
//!
//! Insertion takes constant time. Entries due within one tick are put in exact order when their tick comes. So values
//! leave by time due, and those due at the same nanosecond in order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A tick is 2^13 ns, 8.2 µs.
const TICK_BITS: u32 = 13;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Levels of 64 slots: 64^7 ticks are over a year. Entries due later pass the last level more than once.
const LEVELS: usize = 7;
const LAST_TICK: u64 = (1 << (SLOT_BITS * 7)) - 1;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry<T> {
    due: u64,
    /// Order of insertion.
    number: u64,
    next: u32,
    /// `None` where the entry is free.
    value: Option<T>,
}

#[derive(Debug)]
struct Level {
    /// First entry of each slot.
    slots: [u32; SLOTS],
    /// A bit for each slot that has entries.
    occupied: u64,
}

/// Values by the time they are due, nanoseconds.
#[derive(Debug)]
pub struct Wheel<T> {
    /// Everything due in this tick or before is in `near`, everything else in `levels`.
    tick: u64,
    near: BinaryHeap<Reverse<(u64, u64, u32)>>,
    levels: [Level; LEVELS],
    entries: Vec<Entry<T>>,
    free: u32,
    inserted: u64,
    len: usize,
}

impl<T> Wheel<T> {
    /// An empty one whose time begins at `now`.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            tick: now >> TICK_BITS,
            near: BinaryHeap::new(),
            levels: std::array::from_fn(|_| Level { slots: [NONE; SLOTS], occupied: 0 }),
            entries: Vec::new(),
            free: NONE,
            inserted: 0,
            len: 0,
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value.
    ///
    /// # Panics
    /// With 2^32 values in it.
    pub fn insert(&mut self, due: u64, value: T) {
        let number = self.inserted;
        self.inserted += 1;
        self.len += 1;
        let entry = Entry { due, number, next: NONE, value: Some(value) };
        let index = if self.free == NONE {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).ok().filter(|&index| index != NONE).expect("fewer than 2^32 values")
        } else {
            let index = self.free;
            let place = &mut self.entries[index as usize];
            self.free = place.next;
            *place = entry;
            index
        };
        self.file(index);
    }

    /// Takes out the first value that is due at `now`, with its time.
    pub fn pop(&mut self, now: u64) -> Option<(u64, T)> {
        while self.near.peek().is_none_or(|Reverse((due, ..))| *due > now) {
            // A near packet that is not due yet is due before every packet that is not near.
            if !self.near.is_empty() || self.first_slot()?.start > now >> TICK_BITS {
                return None;
            }
            self.advance();
        }
        let Reverse((due, _, index)) = self.near.pop()?;
        Some((due, self.release(index)?))
    }

    /// When to look again: nothing is due before. Exact for what is due within half a millisecond.
    pub fn next_due(&mut self) -> Option<u64> {
        while self.near.is_empty() {
            let first = self.first_slot()?;
            if first.level > 0 {
                return Some(first.start << TICK_BITS);
            }
            self.advance();
        }
        self.near.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes out every value that `of` is true for, in the order in which they came. Looks at all.
    pub fn take(&mut self, mut of: impl FnMut(&T) -> bool) -> Vec<T> {
        let near = std::mem::take(&mut self.near).into_iter().map(|Reverse((.., index))| index);
        let mut all: Vec<u32> = near.collect();
        for level in &mut self.levels {
            for slot in &mut level.slots {
                let mut index = std::mem::replace(slot, NONE);
                while index != NONE {
                    all.push(index);
                    index = self.entries[index as usize].next;
                }
            }
            level.occupied = 0;
        }
        let (mut taken, kept): (Vec<u32>, Vec<u32>) =
            all.into_iter().partition(|&index| self.entries[index as usize].value.as_ref().is_some_and(&mut of));
        for index in kept {
            self.file(index);
        }
        taken.sort_unstable_by_key(|&index| self.entries[index as usize].number);
        taken.into_iter().filter_map(|index| self.release(index)).collect()
    }

    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        entry.value.take()
    }

    /// Puts an entry where its time says. The level is that of the highest digit (base 64) in which an entry's tick
    /// differs from the current one. So a slot never holds entries of two turns of its level.
    fn file(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let tick = (entry.due >> TICK_BITS).min(self.tick | LAST_TICK);
        if tick <= self.tick {
            self.near.push(Reverse((entry.due, entry.number, index)));
            return;
        }
        let level = ((tick ^ self.tick).ilog2() / SLOT_BITS) as usize;
        let slot = slot_of(tick, level);
        let level = &mut self.levels[level];
        entry.next = level.slots[slot];
        level.slots[slot] = index;
        level.occupied |= 1 << slot;
    }

    /// The first slot that has entries. Lower levels come first: they hold what the higher ones hand down.
    fn first_slot(&self) -> Option<First> {
        let (level, occupied) = self
            .levels
            .iter()
            .enumerate()
            .find_map(|(at, level)| (level.occupied != 0).then_some((at, level.occupied)))?;
        let slot = occupied.trailing_zeros();
        let shift = SLOT_BITS * u32::try_from(level).unwrap_or(0);
        let above = self.tick >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some(First { level, slot: slot as usize, start: above | u64::from(slot) << shift })
    }

    /// Goes to the first slot that has entries and files them anew.
    fn advance(&mut self) {
        let Some(first) = self.first_slot() else { return };
        self.tick = first.start;
        let level = &mut self.levels[first.level];
        level.occupied &= !(1 << first.slot);
        let mut index = std::mem::replace(&mut level.slots[first.slot], NONE);
        while index != NONE {
            let next = self.entries[index as usize].next;
            self.file(index);
            index = next;
        }
    }
}

struct First {
    level: usize,
    slot: usize,
    /// The slot's first tick.
    start: u64,
}

fn slot_of(tick: u64, level: usize) -> usize {
    let digit = tick >> (SLOT_BITS * u32::try_from(level).unwrap_or(0));
    usize::try_from(digit % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Wait(u64),
        TakeOdd,
    }

    /// From nanoseconds to days, with many equal ones.
    fn times() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(1_000_000), 0u64..20_000, 0u64..3_000_000, 0u64..10_000_000_000, 0u64..1 << 48]
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => times().prop_map(Step::Insert),
            4 => times().prop_map(Step::Wait),
            1 => Just(Step::TakeOdd),
        ]
    }

    proptest! {
        #[test]
        fn values_leave_by_time_and_then_by_order_of_insertion(
            start in prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from), 0u64..1 << 60],
            steps in proptest::collection::vec(steps(), 1..200),
        ) {
            let mut now = start;
            let mut wheel = Wheel::new(now);
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (number, step) in (0u64..).zip(steps) {
                match step {
                    Step::Insert(after) => {
                        wheel.insert(now + after, number);
                        model.push((now + after, number));
                    }
                    Step::TakeOdd => {
                        let taken = wheel.take(|number| number % 2 == 1);
                        let mut odd: Vec<u64> = model.iter().map(|(_, number)| *number).filter(|n| n % 2 == 1).collect();
                        odd.sort_unstable();
                        prop_assert_eq!(taken, odd);
                        model.retain(|(_, number)| number % 2 == 0);
                    }
                    Step::Wait(time) => {
                        now += time;
                        model.sort_unstable();
                        let due = model.partition_point(|(due, _)| *due <= now);
                        for expected in model.drain(..due) {
                            // A loop that sleeps until it is told to look must not oversleep.
                            prop_assert!(wheel.next_due().is_some_and(|next| next <= expected.0));
                            prop_assert_eq!(wheel.pop(now), Some(expected));
                        }
                        prop_assert_eq!(wheel.pop(now), None);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                prop_assert_eq!(wheel.next_due().is_none(), model.is_empty());
            }
        }
    }

    #[test]
    fn what_is_near_is_told_exactly() {
        let mut wheel = Wheel::new(0);
        wheel.insert(400_123, ());
        assert_eq!(wheel.next_due(), Some(400_123));
        wheel.insert(100_001, ());
        assert_eq!(wheel.next_due(), Some(100_001));
    }

    #[test]
    fn sleeping_until_told_comes_to_every_value() {
        let mut wheel = Wheel::new(0);
        wheel.insert(7 << 50, 1);
        let mut looks = 0;
        let mut now = 0;
        while wheel.pop(now).is_none() {
            now = wheel.next_due().expect("one waits");
            looks += 1;
        }
        assert_eq!(now, 7 << 50);
        assert!(looks < 3 * LEVELS, "{looks} looks");
    }
}

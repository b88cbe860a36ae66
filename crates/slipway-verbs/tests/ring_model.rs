//! A model of the ring and its wake-ups, in which each order of steps and of memory is tried.
//!
//! Two ends run the steps of `plugin/ring.rs` and `Connection::{sleep, ring}`; the relay of the broker runs the same. Each has
//! a buffer of stores that reach memory later, in any order but that of a release store after all before it. That allows more
//! than processors do. A state without a next step is the end: with a record left, a wake-up was lost.
//!
//! In a second model the producer sleeps until its records were consumed (`Connection::{want_head, ring_for_head}`).

use std::collections::HashSet;

/// Words of the shared memory.
const DATA: [usize; 2] = [0, 1];
const TAIL: usize = 2;
const BELL: usize = 3;
const HEAD: usize = 4;
const WANTS_HEAD: usize = 5;

/// A step that is left out, to see that the model notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The producer reads whether the consumer sleeps before its tail is in memory.
    NoFenceBeforeBell,
    /// The consumer looks at the ring before its wish to be woken is in memory.
    NoFenceBeforeLook,
    /// The consumer sleeps without a second look.
    NoSecondLook,
    /// The tail may be seen before the record.
    PlainTail,
    /// The producer sleeps without a second look at the head.
    NoSecondLookAtHead,
    /// The consumer reads whether the producer waits before its head is in memory.
    NoFenceBeforeWish,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct State {
    memory: [u8; 6],
    /// Stores on their way: word, value, and whether all earlier ones come first. The producer's, then the consumer's.
    buffers: [Vec<(usize, u8, bool)>; 2],
    steps: [u8; 2],
    /// The last value that an end loaded.
    loaded: [u8; 2],
    sent: u8,
    taken: u8,
    /// The socket has a wake-up.
    rung: bool,
}

const PRODUCER: usize = 0;
const CONSUMER: usize = 1;
const DONE: u8 = 99;

impl State {
    fn load(&self, end: usize, word: usize) -> u8 {
        let own = self.buffers[end].iter().rev().find(|(at, ..)| *at == word);
        own.map_or(self.memory[word], |(_, value, _)| *value)
    }

    fn store(&mut self, end: usize, word: usize, value: u8, is_release: bool) {
        self.buffers[end].push((word, value, is_release));
    }

    /// All states after one store of an end has reached memory.
    fn flushed(&self, end: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for (at, &(word, value, is_release)) in self.buffers[end].iter().enumerate() {
            let is_behind_own = self.buffers[end][..at].iter().any(|(other, ..)| *other == word);
            if (is_release && at > 0) || is_behind_own {
                continue;
            }
            let mut next = self.clone();
            next.buffers[end].remove(at);
            next.memory[word] = value;
            all.push(next);
        }
        all
    }

    fn step(&self, end: usize, fault: Fault) -> Option<Self> {
        let mut next = self.clone();
        next.steps[end] += 1;
        let is_fenced = self.buffers[end].is_empty();
        if end == PRODUCER {
            match self.steps[end] {
                0 if self.sent == 2 => next.steps[end] = DONE,
                // `Producer::put`
                0 => next.store(end, DATA[usize::from(self.sent)], 1, false),
                1 => {
                    next.sent += 1;
                    next.store(end, TAIL, next.sent, fault != Fault::PlainTail);
                }
                // `Connection::ring`
                2 if !is_fenced && fault != Fault::NoFenceBeforeBell => return None,
                2 => next.loaded[end] = self.load(end, BELL),
                3 if self.loaded[end] == 0 => next.steps[end] = 0,
                3 if !is_fenced => return None,
                // The swap: it reads memory itself.
                3 => (next.loaded[end], next.memory[BELL]) = (self.memory[BELL], 0),
                4 => {
                    next.rung |= self.loaded[end] != 0;
                    next.steps[end] = 0;
                }
                _ => return None,
            }
        } else {
            match self.steps[end] {
                0 if self.taken == 2 => next.steps[end] = DONE,
                // `Consumer::next` and `pass`
                0 | 5 => next.loaded[end] = self.load(end, TAIL),
                1 | 6 if self.loaded[end] > self.taken => {
                    let record = self.load(end, DATA[usize::from(self.taken)]);
                    assert_eq!(record, 1, "a torn record: {self:?}");
                    next.taken += 1;
                    next.steps[end] = 0;
                }
                // `Connection::sleep`
                2 => next.store(end, BELL, 1, true),
                3 if !is_fenced && fault != Fault::NoFenceBeforeLook => return None,
                4 if fault == Fault::NoSecondLook => next.steps[end] = 7,
                // Nothing to take, the fence, or the second look that finds nothing.
                1 | 3 | 4 | 6 => {}
                // The thread of service waits for the socket, and arms again.
                7 if !self.rung => return None,
                7 => {
                    next.rung = false;
                    next.steps[end] = 2;
                }
                _ => return None,
            }
        }
        Some(next)
    }
}

impl State {
    /// The producer has two records in the ring, and sleeps until both are consumed.
    fn step_for_head(&self, end: usize, fault: Fault) -> Option<Self> {
        let mut next = self.clone();
        next.steps[end] += 1;
        let is_fenced = self.buffers[end].is_empty();
        if end == PRODUCER {
            match self.steps[end] {
                // `Producer::consumed`; the socket's wake-up ends the sleep.
                0 | 4 => next.loaded[end] = self.load(end, HEAD),
                1 | 5 if self.loaded[end] > self.taken => {
                    next.taken = self.loaded[end];
                    // A wish that is no news needs no second look.
                    next.steps[end] = if next.taken == 2 { DONE } else { 0 };
                }
                // `Connection::want_head`
                2 if self.load(end, WANTS_HEAD) == 1 => next.steps[end] = 6,
                2 => next.store(end, WANTS_HEAD, 1, true),
                3 if !is_fenced => return None,
                3 if fault == Fault::NoSecondLookAtHead => next.steps[end] = 6,
                1 | 3 | 5 => {}
                6 if !self.rung => return None,
                6 => {
                    next.rung = false;
                    next.steps[end] = 0;
                }
                _ => return None,
            }
        } else {
            match self.steps[end] {
                0 if self.sent == 2 => next.steps[end] = DONE,
                // `Consumer::pass`
                0 => {
                    next.sent += 1;
                    next.store(end, HEAD, next.sent, true);
                }
                // `Connection::ring_for_head`
                1 if !is_fenced && fault != Fault::NoFenceBeforeWish => return None,
                1 => next.loaded[end] = self.load(end, WANTS_HEAD),
                2 => {
                    next.rung |= self.loaded[end] != 0;
                    next.steps[end] = 0;
                }
                _ => return None,
            }
        }
        Some(next)
    }
}

/// Visits each state. Gives how many there are, and whether all ends have both records taken.
fn explore(fault: Fault) -> (usize, bool) {
    explore_by(|state, end| state.step(end, fault))
}

fn explore_by(step: impl Fn(&State, usize) -> Option<State>) -> (usize, bool) {
    let (mut seen, mut open) = (HashSet::new(), vec![State::default()]);
    let mut all_taken = true;
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let steps = [PRODUCER, CONSUMER].into_iter().filter_map(|end| step(&state, end));
        let flushes = [PRODUCER, CONSUMER].into_iter().flat_map(|end| state.flushed(end));
        let next: Vec<State> = steps.chain(flushes).collect();
        all_taken &= !next.is_empty() || state.taken == 2;
        open.extend(next);
    }
    (seen.len(), all_taken)
}

#[test]
fn no_wake_up_is_lost_and_no_record_is_torn() {
    let (states, all_taken) = explore(Fault::None);
    assert!(all_taken && states > 100, "{states} states");
}

#[test]
fn the_model_notices_each_step_that_is_left_out() {
    for fault in [Fault::NoFenceBeforeBell, Fault::NoFenceBeforeLook, Fault::NoSecondLook] {
        assert!(!explore(fault).1, "{fault:?}: a wake-up is lost");
    }
    assert!(std::panic::catch_unwind(|| explore(Fault::PlainTail)).is_err(), "a record is torn");
}

#[test]
fn a_producer_that_sleeps_hears_that_its_records_were_consumed() {
    let explore = |fault| explore_by(|state, end| state.step_for_head(end, fault));
    let (states, all_taken) = explore(Fault::None);
    assert!(all_taken && states > 30, "{states} states");
    for fault in [Fault::NoSecondLookAtHead, Fault::NoFenceBeforeWish] {
        assert!(!explore(fault).1, "{fault:?}: a wake-up is lost");
    }
}

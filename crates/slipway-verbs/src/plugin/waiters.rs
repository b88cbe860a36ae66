//! Threads that wait for completions, and the thread of service beside them, as a device knows them.

use std::collections::HashMap;
use std::time::Instant;

/// A thread that reads a channel.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) channel: i32,
    /// The event that it has, a completion queue's address.
    pub(super) event: Option<u64>,
    pub(super) is_asleep: bool,
}

/// Threads that wait, as the state knows them.
#[derive(Debug, Default)]
pub(super) struct Direct {
    pub(super) waiter: Option<Waiter>,
    /// A thread waits the usual way, and might have moved the rings.
    pub(super) wants: bool,
    /// Threads may move the rings until this time: the thread of service looks often. Set by that thread.
    pub(super) until: Option<Instant>,
    /// The channel that a thread has waited on last.
    pub(super) last: Option<i32>,
    /// Events of that channel that its reader may take from here: the thread of service writes them to the channel when it looks.
    pub(super) kept: Vec<u64>,
    /// Waits that have begun.
    pub(super) rounds: u64,
    /// The thread of service rests until it is woken: a thread that waits does all that comes.
    pub(super) rests: bool,
    /// The waiting thread moves a ring.
    pub(super) is_serving: bool,
    /// Connections that have been rung, and have not asked for it again: a queue pair's place, and the connection's number.
    pub(super) unarmed: Vec<(usize, usize)>,
    /// Connections whose peers want to hear what was consumed. They mostly hear it with the program's answer.
    pub(super) owed: Vec<(usize, usize)>,
    /// Events in channels, as far as this end wrote them and has not read them.
    pub(super) piped: HashMap<i32, u64>,
}

/// The next step of a thread that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The event is there.
    Event(u64),
    /// It sleeps until something happens.
    Sleep,
    /// It reads the channel as any file.
    Read,
}

/// How long the thread of service rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It does not: it serves.
    No,
    /// The same, and it looks again soon.
    Watch,
    /// It looks again soon.
    Short,
    /// Until it is woken.
    Long,
}

impl Direct {
    /// Gives an event to the thread that waits for one on this channel. False where none does.
    pub(super) fn deliver(&mut self, channel: i32, handle: u64) -> bool {
        match self.waiter.as_mut().filter(|it| it.channel == channel && it.event.is_none()) {
            Some(waiter) => waiter.event = Some(handle),
            None => return false,
        }
        true
    }

    pub(super) fn is_asleep_with_event(&self) -> bool {
        self.waiter.as_ref().is_some_and(|it| it.is_asleep && it.event.is_some())
    }
}

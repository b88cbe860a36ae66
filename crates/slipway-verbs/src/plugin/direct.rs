//! Waiting without a hop: the thread that waits for a completion moves the rings itself.
//!
//! A program that reads its channel while nothing is there would be woken by the thread of service, which a peer wakes.
//! That is two switches of threads for a message. So the reading thread takes the service's place. It waits where that thread waits, and gives the
//! program the event that it has made itself. The thread of service rests meanwhile. It looks every few milliseconds whether the
//! program still waits this way, and takes its place again where not.
//!
//! Both agree first: a thread that waits the usual way says that it might, and the thread of service looks often from then on.

use std::time::{Duration, Instant};

use super::device::State;
use super::waiters::{Next, Rest, Waiter};

/// How long the thread of service looks often after the last thread has waited.
const AGREED: Duration = Duration::from_millis(50);

impl State {
    /// Tells the program of a completion.
    pub(super) fn tell(&mut self, channel: i32, handle: u64) {
        let direct = &mut self.direct;
        if direct.deliver(channel, handle) {
            if direct.is_asleep_with_event() {
                self.wake_service();
            }
        } else if direct.until.is_some() && direct.last == Some(channel) {
            // Its reader takes one event at a time: the others need no file.
            direct.kept.push(handle);
        } else {
            self.write_event(channel, handle);
        }
    }

    fn write_event(&mut self, channel: i32, handle: u64) {
        *self.direct.piped.entry(channel).or_default() += 1;
        super::loader::write_event(channel, handle);
    }

    /// Writes events to their channel that its reader has not taken.
    fn publish(&mut self) {
        for handle in std::mem::take(&mut self.direct.kept) {
            if let Some(channel) = self.direct.last {
                self.write_event(channel, handle);
            }
        }
    }

    /// Forgets events of a completion queue that ends, with those that its channel had.
    pub(super) fn forget_events(&mut self, channel: i32, handle: u64) {
        let gone = super::loader::drop_events(channel, handle);
        if let Some(piped) = self.direct.piped.get_mut(&channel) {
            *piped = piped.saturating_sub(gone);
        }
        self.direct.kept.retain(|kept| *kept != handle);
        if let Some(waiter) = self.direct.waiter.as_mut().filter(|it| it.event == Some(handle)) {
            waiter.event = None;
        }
    }

    /// A thread has read an event from its channel. Counted then, and not before: a thread may sleep in `read(2)` until one comes.
    pub(super) fn took(&mut self, channel: i32) {
        if let Some(piped) = self.direct.piped.get_mut(&channel) {
            *piped = piped.saturating_sub(1);
        }
    }

    /// A thread reads a channel. `waits` says whether it may wait there.
    pub(super) fn begin_wait(&mut self, channel: i32, waits: impl FnOnce() -> bool) -> Next {
        if self.direct.piped.get(&channel).is_some_and(|it| *it > 0) {
            return Next::Read;
        }
        let is_ours =
            self.completion_queues.iter().flatten().any(|it| it.channel.is_some_and(|(own, _)| own == channel));
        if self.direct.last == Some(channel) && !self.direct.kept.is_empty() {
            self.direct.rounds += 1;
            return Next::Event(self.direct.kept.remove(0));
        }
        if !is_ours || self.direct.waiter.is_some() || !waits() {
            return Next::Read;
        }
        if self.direct.until.is_none() {
            if !std::mem::replace(&mut self.direct.wants, true) {
                self.wake_service();
            }
            return Next::Read;
        }
        self.publish();
        self.direct.waiter = Some(Waiter { channel, event: None, is_asleep: false });
        self.direct.last = Some(channel);
        self.direct.rounds += 1;
        if self.is_spinning {
            self.spin(false);
        }
        self.next_wait()
    }

    /// Something has happened to a thread that slept: these are its events.
    pub(super) fn waited(&mut self, events: &[u64]) -> Next {
        if let Some(waiter) = &mut self.direct.waiter {
            waiter.is_asleep = false;
        }
        self.end_rest();
        if self.is_ended {
            self.direct.waiter = None;
            return Next::Read;
        }
        self.direct.is_serving = true;
        for event in events {
            if let Some(at) = super::service::turn(self, *event, false) {
                self.direct.unarmed.push(at);
            }
        }
        self.direct.is_serving = false;
        self.next_wait()
    }

    /// A thread waits no more, without an event: its signal handler or its cancellation ends it.
    pub(super) fn end_wait(&mut self) {
        // Nobody else does what comes now.
        self.end_rest();
        if let Some(waiter) = self.direct.waiter.take()
            && let Some(handle) = waiter.event
        {
            self.tell(waiter.channel, handle);
        }
    }

    /// Wakes the thread of service from its rest.
    fn end_rest(&mut self) {
        if std::mem::take(&mut self.direct.rests) {
            let _ = rustix::io::write(&*self.park, &1_u64.to_ne_bytes());
        }
    }

    fn next_wait(&mut self) -> Next {
        loop {
            match self.direct.waiter.as_ref().map(|it| it.event) {
                None => return Next::Read,
                Some(Some(event)) => {
                    self.direct.waiter = None;
                    return Next::Event(event);
                }
                Some(None) => {}
            }
            if !self.rearm() {
                break;
            }
        }
        self.pay();
        if let Some(waiter) = &mut self.direct.waiter {
            waiter.is_asleep = true;
        }
        Next::Sleep
    }

    /// Has connections ask to be rung again, and looks at them once more. False where none had to.
    fn rearm(&mut self) -> bool {
        let unarmed = std::mem::take(&mut self.direct.unarmed);
        for (index, number) in &unarmed {
            let pair = self.queue_pairs.get_mut(*index).and_then(Option::as_mut);
            if let Some(connection) = pair.and_then(|it| it.connections.get_mut(*number)) {
                connection.sleep(!self.is_spinning);
            }
        }
        for (index, _) in &unarmed {
            self.progress(*index);
        }
        !unarmed.is_empty()
    }

    /// Tells peers what was consumed.
    fn pay(&mut self) {
        for (index, number) in std::mem::take(&mut self.direct.owed) {
            let pair = self.queue_pairs.get_mut(index).and_then(Option::as_mut);
            if let Some(connection) = pair.and_then(|it| it.connections.get_mut(number)) {
                connection.ring_for_head();
            }
        }
        // Peers of other hosts have heard it with what the program sent since, if it sent anything.
        if self.has_far {
            self.tell_peers();
        }
    }

    /// Whether threads may move the rings now.
    pub(super) fn may_wait_directly(&self) -> bool {
        self.direct.until.is_some()
    }

    /// Whether telling a peer what was consumed can wait until the program answers, or waits again.
    pub(super) fn owes(&mut self, index: usize, number: usize) -> bool {
        if self.direct.is_serving && !self.direct.owed.contains(&(index, number)) {
            self.direct.owed.push((index, number));
        }
        self.direct.is_serving
    }

    /// How long the thread of service rests, which has seen so many waits begin.
    pub(super) fn rest(&mut self, seen: u64) -> Rest {
        self.publish();
        if std::mem::take(&mut self.direct.wants) {
            self.direct.until = Some(Instant::now() + AGREED);
            return Rest::Watch;
        }
        let Some(until) = self.direct.until else { return Rest::No };
        if self.direct.is_asleep_with_event() {
            // The thread of service may have taken the wake-up that was for the other.
            self.wake_service();
        }
        if self.direct.rounds != seen {
            self.direct.until = Some(Instant::now() + AGREED);
            return Rest::Short;
        }
        if self.direct.waiter.as_ref().is_some_and(|it| it.is_asleep) {
            self.direct.rests = true;
            return Rest::Long;
        }
        self.rearm();
        self.pay();
        if Instant::now() < until && self.direct.waiter.is_none() {
            return Rest::Watch;
        }
        self.direct.until = None;
        Rest::No
    }
}

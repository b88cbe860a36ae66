//! Channels of events, and the calls that wait for those.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use slipway_lab::id::NodeId;
use slipway_sys::notify::{Call, Memory};

use super::done::{Done, Made};
use super::saved::Saved;
use crate::rdma_wire::Event;
use crate::records::Record;
use crate::tree::Tree;

/// A channel of events, known by the inode of its program's end.
#[derive(Debug)]
pub(super) struct Channel {
    /// Dropped before the end.
    record: Option<Record>,
    pub(super) node: NodeId,
    /// The router's end.
    pub(super) end: OwnedFd,
    pub(super) events: VecDeque<Queued>,
    pub(super) mark: Mark,
    pub(super) waiting: Vec<Waiting>,
    /// Commands on the channel.
    pub(super) done: Done,
}

/// Whether a program's end is readable. Events may have been forgotten since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    No,
    Yes,
    /// The router before may have left it so.
    Unsure,
}

/// An event that waits in a channel.
#[derive(Debug)]
pub(super) struct Queued {
    /// Its place among all events.
    pub(super) number: u64,
    pub(super) channel: u64,
    /// The identifier that counts it among its events.
    pub(super) counted: u32,
    pub(super) event: Event,
    pub(super) record: Option<Record>,
}

impl Queued {
    /// Writes the event down, and the call that it is being given to.
    pub(super) fn save(&self, given: Option<(u64, u64)>) {
        let Self { number, channel, counted, ref event, ref record } = *self;
        if let Some(record) = record {
            record.write(&Saved::Event { number, channel, counted, event: Cow::Borrowed(event), given });
        }
    }

    /// Writes down at once that the event is being given to a call.
    fn begin(&self, given: (u64, u64)) {
        self.save(Some(given));
        self.record.iter().for_each(Record::commit);
    }
}

/// A call that waits for an event.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) tree: Arc<Tree>,
    pub(crate) call: Call,
    pub(crate) memory: Memory,
    pub(crate) answer_at: u64,
    /// Bytes that the program has for it.
    pub(crate) room: usize,
}

/// The fate of an event that is given to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// The call is gone.
    No,
    /// Answers to the node are held.
    Later,
}

impl Waiting {
    /// Gives it an event.
    pub(super) fn take(&self, queued: &Queued) -> Taken {
        let bytes = queued.event.write();
        let bytes = &bytes[..bytes.len().min(self.room)];
        let answered = self.tree.try_answer_by(|listener| {
            if !listener.is_waiting(self.call.id) {
                return false;
            }
            // The next router asks whether this call was answered.
            queued.begin((self.tree.number, self.call.id));
            let written = self.memory.write(self.answer_at, bytes).map_err(|_| Errno::FAULT);
            let length = i64::try_from(self.call.args[2]).map_err(|_| Errno::INVAL);
            let is_answered = listener.answer(self.call.id, written.and(length)).is_ok();
            if !is_answered {
                queued.save(None);
                queued.record.iter().for_each(Record::commit);
            }
            is_answered
        });
        match answered {
            Some(true) => Taken::Yes,
            Some(false) => Taken::No,
            None => Taken::Later,
        }
    }
}

impl Channel {
    pub(super) fn new(inode: u64, node: NodeId, end: OwnedFd, record: Option<Record>) -> Self {
        let channel = Self::with(node, end, record, Mark::No, Done::default());
        channel.save(inode);
        channel
    }

    fn with(node: NodeId, end: OwnedFd, record: Option<Record>, mark: Mark, done: Done) -> Self {
        Self { record, node, end, events: VecDeque::new(), mark, waiting: Vec::new(), done }
    }

    /// A channel of the router before.
    pub(super) fn resume(node: NodeId, end: OwnedFd, record: Record, done: Done) -> Self {
        Self::with(node, end, Some(record), Mark::Unsure, done)
    }

    /// A command was carried out. Gives the thread whose command is forgotten for it, if any.
    pub(super) fn did(&mut self, inode: u64, made: Made, answer: u32) -> Option<i32> {
        let forgotten = self.done.add(made, answer);
        self.save(inode);
        forgotten
    }

    /// The thread of a command makes another.
    pub(super) fn forget(&mut self, inode: u64, made: Made) {
        self.done.forget(made);
        self.save(inode);
    }

    fn save(&self, inode: u64) {
        if let Some(record) = &self.record {
            record.write(&Saved::Channel { inode, node: self.node, done: Cow::Borrowed(&self.done) });
        }
    }

    /// Adds an event, at its place. The caller has it given out later.
    pub(super) fn queue(&mut self, queued: Queued) {
        let at = self.events.partition_point(|other| other.number < queued.number);
        self.events.insert(at, queued);
    }

    /// Has a call wait for an event. Those that are gone wait no longer: a program may be interrupted again and again.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waiting.retain(|waiting| waiting.tree.listener.is_waiting(waiting.call.id));
        self.waiting.push(waiting);
    }

    /// Gives events to calls that wait. Has the program's end readable if events are left. Gives the identifiers that count them.
    pub(super) fn give(&mut self) -> Vec<u32> {
        let mut counted = Vec::new();
        while let (Some(queued), Some(waiting)) = (self.events.front(), self.waiting.first()) {
            match waiting.take(queued) {
                Taken::Later => return counted,
                Taken::Yes => counted.extend(self.events.pop_front().map(|queued| queued.counted)),
                Taken::No => {}
            }
            self.waiting.remove(0);
        }
        if !self.events.is_empty() && self.mark != Mark::Yes {
            self.mark = Mark::Yes;
            let _ = send(&self.end, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        counted
    }

    /// Makes the program's end, of which this is a copy, readable no more.
    pub(super) fn unmark(&mut self, end: &OwnedFd) {
        if self.mark == Mark::No {
            return;
        }
        self.mark = Mark::No;
        // Two routers may have marked it.
        while matches!(recv(end, &mut [0_u8; 1], RecvFlags::DONTWAIT), Ok((1.., _))) {}
    }
}

//! Going on with what the router before this one had: channels, connections and events stay as they are for programs, for other
//! routers and for the gateway.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::channel::{Channel, Queued};
use super::far::Link;
use super::saved::Saved;
use super::{Rdma, State};
use crate::records::{Found, Record};
use crate::tree::Tree;

/// Records and descriptors of the router before, until this one goes on with them.
#[derive(Debug, Default)]
pub(super) struct Left {
    records: Found,
    /// Descriptors by the number of their record.
    descriptors: HashMap<usize, OwnedFd>,
}

impl From<Found> for Left {
    fn from(records: Found) -> Self {
        Self { records, descriptors: HashMap::new() }
    }
}

/// An event that the router before was giving to a call: the call's tree of programs and its number.
#[derive(Debug)]
pub(super) struct Given {
    tree: u64,
    call: u64,
    queued: Queued,
}

impl Given {
    pub(super) fn is_of(&self, channel: u64) -> bool {
        self.queued.channel == channel
    }
}

impl Rdma {
    /// Takes a descriptor of the router before, and the number of its record.
    pub(crate) fn found(&self, number: usize, descriptor: OwnedFd) {
        let left = &mut self.state().left;
        if let Ok(at) = left.records.binary_search_by_key(&number, |(record, _)| record.number()) {
            // For the next router, where this one ends before it goes on.
            left.records[at].0.set_descriptor(descriptor.as_fd());
            left.descriptors.insert(number, descriptor);
        }
    }

    /// Goes on with all that the router before had, once.
    ///
    /// # Errors
    /// When the kernel has no threads or epoll instances left.
    pub(crate) fn resume(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        if state.left.records.is_empty() {
            return Ok(());
        }
        let ends = self.ends()?;
        let Left { records, mut descriptors } = std::mem::take(&mut state.left);
        let read = |(record, bytes): (Record, Vec<u8>)| {
            let descriptor = descriptors.remove(&record.number());
            let saved: Saved<'static> = postcard::from_bytes(&bytes).ok()?;
            Some((saved, record, descriptor))
        };
        let mut all: Vec<_> = records.into_iter().filter_map(read).collect();
        all.sort_by_key(|(saved, ..)| saved.order());
        let mut watched = Ok(());
        for (saved, record, descriptor) in all {
            if let Some((source, end)) = state.take_up(saved, record, descriptor) {
                let events = if super::is_link(source) { epoll::EventFlags::IN } else { epoll::EventFlags::RDHUP };
                // All is taken up first: the next router has it where this one ends.
                watched = watched.and(epoll::add(&ends.epoll, end, epoll::EventData::new_u64(source), events));
            }
        }
        let State { connections, held, links, silent, .. } = &mut *state;
        let is_silent = |node| silent.contains(&node);
        for id in connections.settle(|link| links.contains_key(&link), |id| held.has(id), is_silent) {
            state.hear_of_the_end(id);
        }
        let State { connections, links, silent, .. } = &mut *state;
        let is_left = |link: &Link| !silent.contains(&link.node) && !link.is_kept(link.node, connections);
        let left: Vec<u64> = links.iter().filter(|(_, link)| is_left(link)).map(|(&number, _)| number).collect();
        for number in left {
            state.close_link(number);
        }
        // The rules may have changed since.
        for id in state.connections.forbidden() {
            state.disconnect(id);
        }
        drop(state);
        self.hasten();
        Ok(watched?)
    }

    /// Finishes events that the router before was giving to programs of a tree. A call that still waits has not been answered: its
    /// program makes it again.
    pub(crate) fn finish(&self, tree: &Tree) {
        let mut state = self.state();
        let given: Vec<Given> = state.given.extract_if(.., |given| given.tree == tree.number).collect();
        for Given { call, queued, .. } in given {
            if !tree.listener.is_waiting(call) {
                state.connections.reported(queued.counted);
            } else if let Some(channel) = state.channels.get_mut(&queued.channel) {
                queued.save(None);
                let inode = queued.channel;
                channel.queue(queued);
                state.due.channels.push(inode);
            }
        }
    }
}

impl State {
    /// Takes an object up. Gives the descriptor that is to be watched, with the source of its events.
    fn take_up(
        &mut self,
        saved: Saved<'static>,
        mut record: Record,
        descriptor: Option<OwnedFd>,
    ) -> Option<(u64, BorrowedFd<'_>)> {
        match saved {
            Saved::Channel { inode, node, done } => {
                let end = descriptor?;
                record.count_with(node);
                self.last.extend(done.threads().map(|tid| (tid, inode)));
                self.channels.insert(inode, Channel::resume(node, end, record, done.into_owned()));
                self.channels.get(&inode).map(|channel| (inode, channel.end.as_fd()))
            }
            Saved::Link { number, node, id, unsent, is_over } => {
                let stream = descriptor?;
                record.count_with(node);
                if is_over || unsent.is_some() {
                    self.due.links.push(number);
                }
                let link = Link::resume(number, node, stream, id.into_owned(), record, (unsent.into_owned(), is_over));
                self.links.insert(number, link);
                self.links.get(&number).map(|link| (number, link.as_fd()))
            }
            Saved::Identifier { id, one } => {
                let channel = self.channels.get(&one.channel)?;
                record.count(channel.node);
                self.connections.keep(id, one.into_owned(), record);
                None
            }
            Saved::Request { id, offer } => {
                record.count(self.connections.node(id)?);
                self.connections.waits_for_listener(id);
                self.held.resume(id, offer.into_owned(), record);
                None
            }
            Saved::Event { number, channel: inode, counted, event, given } => {
                let channel = self.channels.get_mut(&inode)?;
                record.count(channel.node);
                let queued =
                    Queued { number, channel: inode, counted, event: Cow::into_owned(event), record: Some(record) };
                if let Some((tree, call)) = given {
                    self.given.push(Given { tree, call, queued });
                } else {
                    channel.queue(queued);
                    self.due.channels.push(inode);
                }
                None
            }
        }
    }
}

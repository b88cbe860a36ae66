//! A broker that has ended, and the one after it, which hears from programs what they have.
//!
//! Data goes on meanwhile. The thread of service greets the next broker, and does not wait for it. A call that needs a broker does.

use std::os::fd::OwnedFd;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::client::{Client, Stage};
use super::device::{BROKER, State};
use super::queues::state;
use super::tally::{Tally, page};
use crate::wire::{End, Object, Reply, Request};

/// How long a call waits for the next broker.
const PATIENCE: Duration = Duration::from_secs(5);

impl State {
    /// Asks the broker. Where it has ended, its successor is asked, once it runs.
    pub(super) fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        let said = self.client.ask(request, fds);
        if self.client.stage == Stage::Ready {
            return said;
        }
        self.follow_broker();
        let patience = PATIENCE.try_into().ok();
        let mut it = [PollFd::from_borrowed_fd(self.client.socket(), PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut it, patience.as_ref()))?;
        self.follow_broker();
        self.client.ask(request, fds)
    }

    /// Where the broker has ended, greets the next; where that one has answered, tells it what this program has.
    pub(super) fn follow_broker(&mut self) {
        if self.client.stage == Stage::Greeted
            && let Ok(fds) = self.client.welcome()
        {
            self.counts = fds.first().and_then(page);
            self.name_all();
        }
        if self.client.stage == Stage::Lost {
            self.hear_kept();
            let _ = epoll::delete(&*self.epoll, self.client.socket());
            // Where nobody listens now, the thread of service tries again.
            if let Ok(client) = Client::greet()
                && epoll::add(&*self.epoll, client.socket(), EventData::new_u64(BROKER), EventFlags::IN).is_ok()
            {
                self.client = client;
            }
        }
    }

    /// Regions first: a peer that finds a queue pair may look for its regions.
    fn name_all(&mut self) {
        for (object, proof) in self.regions.objects() {
            let _ = self.client.ask(&Request::Resume { object, proof }, &[]);
        }
        // Members of groups may have changed, and nobody tells.
        self.groups.clear();
        for index in 0..self.queue_pairs.len() {
            if self.name_pair(index).is_err() {
                self.fail(index, None);
            }
        }
        self.hear_kept();
        // Operations that stood still may go on now.
        for index in 0..self.queue_pairs.len() {
            self.progress(index);
        }
    }

    /// Names a queue pair and its connections. An error where the rules of now forbid one. A queue pair that the broker does not
    /// know goes on.
    fn name_pair(&mut self, index: usize) -> Result<(), Errno> {
        let is_asleep = !self.is_spinning;
        let Some(pair) = self.queue_pairs.get_mut(index).and_then(Option::as_mut) else { return Ok(()) };
        let number = pair.number;
        let object = Object::QueuePair { number, transport: pair.transport, domain: pair.domain };
        if self.client.ask(&Request::Resume { object, proof: pair.proof }, &[]).is_err() {
            return Ok(());
        }
        for &group in &pair.groups {
            let _ = self.client.ask(&Request::Attach { number, group }, &[]);
        }
        for connection in &mut pair.connections {
            connection.tally = Tally::default();
            connection.is_silent = false;
            // One that the broker relayed has ended with it, and nobody may have looked since.
            connection.silence(16);
            connection.sleep(is_asleep);
            if connection.is_cut || pair.state == state::ERROR {
                continue;
            }
            let ((gid, peer), end) = (connection.peer, connection.end);
            let request = Request::Rejoin { number, gid, peer, end };
            let said = {
                let bell = connection.bell();
                let stream = (end == End::Far).then(|| bell.as_fd());
                self.client.ask(&request, stream.as_slice())
            };
            match said {
                Ok((Reply::Connected { counts, .. }, _)) => {
                    connection.tally = Tally::new(self.counts.as_ref(), counts);
                }
                Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP | Errno::HOSTUNREACH)) => {
                    return Err(errno);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Queue pairs with peers outside of the lab, as the gateway tells of them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::device::State;
use super::gateway::Session;
use super::queues::{Outside, QueuePair};
use crate::gateway::{Ask, Completion, Told};
use crate::wire::Transport;

/// Most packets that are heard at once.
const AT_ONCE: usize = 64;

impl State {
    /// Whether some queue pair has a peer outside of the lab, so that polls ask the kernel.
    pub(super) fn is_outside(&self) -> bool {
        self.gateway.as_ref().is_some_and(|it| !it.joined.is_empty())
    }

    /// Asks the gateway. The caller hears what was kept when all is as it should be again ([`State::hear_kept`]).
    pub(super) fn ask_gateway(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Told, Errno> {
        self.gateway.as_mut().ok_or(Errno::CONNRESET)?.ask(ask, fds)
    }

    /// Acts on what the gateway has told.
    pub(super) fn hear_gateway(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(told) = self.gateway.as_mut().and_then(Session::next) else { break };
            self.told(told);
        }
        self.leave_lost_gateway();
    }

    /// Acts on what it told before a reply.
    pub(super) fn hear_gateway_kept(&mut self) {
        while let Some(told) = self.gateway.as_mut().and_then(|it| it.kept.pop_front()) {
            self.told(told);
        }
        self.leave_lost_gateway();
    }

    fn told(&mut self, told: Told) {
        let place = |this: &Self, number| this.gateway.as_ref().and_then(|it| it.place(number));
        match told {
            Told::Completed { number, all } => {
                if let Some(index) = place(self, number) {
                    self.completed(index, &all);
                }
            }
            Told::Ended { number } => {
                if let Some(index) = place(self, number) {
                    self.fail(index, None);
                }
            }
            // Replies that nobody waits for.
            Told::Done | Told::Key { .. } | Told::Window { .. } | Told::Refused { .. } => {}
        }
    }

    /// Where the gateway has ended, so have connections with peers outside. Everything else goes on.
    fn leave_lost_gateway(&mut self) {
        if self.gateway.as_ref().is_none_or(|it| !it.is_lost) {
            return;
        }
        // Completions that it told of before its end still count.
        while let Some(told) = self.gateway.as_mut().and_then(Session::next) {
            self.told(told);
        }
        let Some(session) = self.gateway.take() else { return };
        session.leave(&self.epoll);
        for index in session.joined.into_values() {
            self.fail(index, None);
        }
    }

    /// Tells the gateway of a queue pair, which may have peers outside from then on.
    pub(super) fn introduce(&mut self, index: usize) {
        let Some(Some(pair)) = self.queue_pairs.get(index) else { return };
        let (number, domain) = (pair.number, pair.domain);
        if pair.is_told || pair.transport != Transport::Reliable || pair.srq.is_some() {
            return;
        }
        let is_told = self.ask_gateway(&Ask::QueuePair { number, domain }, &[]).is_ok();
        if let Some(Some(pair)) = self.queue_pairs.get_mut(index) {
            pair.is_told = is_told;
        }
    }

    /// Has the gateway forget a queue pair, where it knows it. Gives the completions that it told of until then.
    pub(super) fn forget(&mut self, pair: &mut QueuePair) -> Vec<Completion> {
        let number = pair.number;
        if !std::mem::take(&mut pair.is_told) {
            return Vec::new();
        }
        let _ = self.ask_gateway(&Ask::Forget { number }, &[]);
        let Some(session) = &mut self.gateway else { return Vec::new() };
        session.joined.remove(&number);
        let is_of = |told: &Told| match told {
            Told::Completed { number, .. } | Told::Ended { number } => Some(*number),
            _ => None,
        };
        let (own, others) = std::mem::take(&mut session.kept).into_iter().partition(|told| is_of(told) == Some(number));
        session.kept = others;
        let own: VecDeque<Told> = own;
        let completions = own.into_iter().flat_map(|told| match told {
            Told::Completed { all, .. } => all,
            _ => Vec::new(),
        });
        completions.collect()
    }

    /// Joins a queue pair with the peer outside that the gateway has for it.
    pub(super) fn join(&mut self, index: usize) -> Result<(), Errno> {
        let pair = self.queue_pairs.get(index).and_then(Option::as_ref).filter(|it| it.is_told);
        let number = pair.ok_or(Errno::HOSTUNREACH)?.number;
        let Told::Window { requests, receives, spans } = self.ask_gateway(&Ask::Join { number }, &[])? else {
            return Err(Errno::PROTO);
        };
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (requests, most_receives, spans) = (count(requests), count(receives), count(spans));
        if let (Some(Some(pair)), Some(session)) = (self.queue_pairs.get_mut(index), &mut self.gateway) {
            pair.connections.clear();
            pair.outside = Some(Outside { requests, most_receives, spans, receives: VecDeque::new() });
            session.joined.insert(number, index);
        }
        Ok(())
    }
}

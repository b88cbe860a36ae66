//! The routers of a lab as a bypass among others.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::wait::WaitStatus;
use rustix::event::{PollFd, PollFlags};
use slipway_fast::control::Order;
use slipway_fast::policy::Policy;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;

use super::{MutedSocket, Routers, Seat};
use crate::bypass::{Altered, Bypass, BypassError, Near};
use crate::fast::is_fast;

/// An event that an anchor waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The router of this host has something to say, or is gone.
    Said(HostId),
    /// No program runs any more under this one of the listeners.
    Deserted(usize),
}

impl Routers {
    fn events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Event)> {
        let seats = self.seats.iter();
        let said = seats.filter_map(|(&host, seat)| Some((seat.process.as_ref()?.as_fd(), Event::Said(host))));
        let held = self.held.iter().enumerate();
        said.chain(held.map(|(at, held)| (held.listener.as_fd(), Event::Deserted(at))))
    }

    /// Ends connections to these nodes that no router has in hand: the programs that were to have them are gone.
    fn drop_left(&mut self, nodes: &[NodeId]) {
        let is_theirs =
            |order: &Order| matches!(order, Order::Unaccepted { unaccepted, .. } if nodes.contains(&unaccepted.node));
        self.seats.values_mut().for_each(|seat| seat.left.retain(|_, order| !is_theirs(order)));
    }
}

impl Bypass for Routers {
    fn waits_for(&self) -> Vec<PollFd<'_>> {
        let wait = |(fd, event)| match event {
            Event::Said(_) => PollFd::from_borrowed_fd(fd, PollFlags::IN),
            // A listener is never waited for to be readable: that is the routers' own.
            Event::Deserted(_) => PollFd::from_borrowed_fd(fd, PollFlags::empty()),
        };
        self.events().map(wait).collect()
    }

    fn patience(&self) -> Option<Duration> {
        let seats = self.seats.values().filter_map(|seat| seat.due);
        let again = self.again.map(|again| again.due);
        let holds = self.holds.values().map(|hold| hold.until);
        seats.chain(again).chain(holds).min().map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn tend(&mut self, near: &Near<'_>, happened: &[bool]) -> bool {
        let events = self.events().zip(happened).filter(|(_, happened)| **happened);
        let events: Vec<Event> = events.map(|((_, event), _)| event).collect();
        let mut changed = false;
        for event in &events {
            if let Event::Said(host) = event {
                changed |= self.listen(near, *host);
            }
        }
        let deserted = |at: usize| events.contains(&Event::Deserted(at));
        let mut at = 0..;
        self.held.retain(|_| !at.next().is_some_and(deserted));
        let now = Instant::now();
        let due: Vec<HostId> = self
            .seats
            .iter()
            .filter(|(_, seat)| seat.due.is_some_and(|due| due <= now))
            .map(|(&host, _)| host)
            .collect();
        for host in due {
            changed = true;
            if let Err(error) = self.fill(near, host) {
                self.vacate(near.lab, host, Some(&format!("cannot be started: {error}")));
            }
        }
        self.release_late(now);
        if self.again.is_some_and(|again| again.due <= now) {
            // The log has each error.
            let _ = self.revoke(near);
        }
        changed
    }

    fn helper_ended(&mut self, lab: &Lab, status: WaitStatus) -> bool {
        let Some(pid) = status.pid().map(nix::unistd::Pid::as_raw) else { return false };
        let is = |seat: &Seat| seat.process.as_ref().is_some_and(|one| one.helper.number() == pid);
        let Some(host) = self.seats.iter().find(|(_, seat)| is(seat)).map(|(&host, _)| host) else { return false };
        let how = match status {
            WaitStatus::Signaled(_, signal, _) => Some(signal.as_str()),
            _ => None,
        };
        self.vacate(lab, host, how);
        true
    }

    /// Connections with those that the nodes were are reset.
    fn born(&mut self, nodes: &[NodeId]) {
        let woken: Vec<NodeId> = nodes.iter().copied().filter(|node| self.muted.contains_key(node)).collect();
        if !woken.is_empty() {
            self.order(|| Order::Wake { nodes: woken.clone() });
        }
        self.drop_left(nodes);
        for node in woken {
            self.muted.remove(&node).into_iter().flatten().for_each(MutedSocket::end);
        }
    }

    /// Keeps sockets of the nodes, so that nobody hears how they end.
    fn silence(&mut self, near: &Near<'_>, nodes: &[NodeId]) {
        // Before they end, or a router that is late would take it for the end of any program.
        self.have_heeded(near, || Order::Silence { nodes: nodes.to_vec() });
        for &node in nodes {
            if let Err(error) = self.mute(near, node) {
                let what = format!("could not keep sockets of {}: {error}", near.lab.nodes[node].name);
                self.note(near.lab, near.lab.nodes[node].host, &what);
            }
        }
    }

    fn died(&mut self, nodes: &[NodeId]) {
        // Clients of a silent node wait until it starts anew.
        let heard: Vec<NodeId> = nodes.iter().copied().filter(|node| !self.muted.contains_key(node)).collect();
        self.drop_left(&heard);
        for seat in self.seats.values_mut() {
            let nodes: Vec<NodeId> = nodes.iter().copied().filter(|node| seat.equipped.remove(node)).collect();
            if let Some(process) = seat.process.as_ref().filter(|_| !nodes.is_empty()) {
                let _ = process.order::<OwnedFd>(&Order::Forget { nodes });
            }
        }
    }

    fn relocated(&mut self, near: &Near<'_>, node: NodeId, _: HostId) -> Result<(), BypassError> {
        if is_fast(near.lab, &near.lab.nodes[node]) { self.replace_all(near).map_err(BypassError::of) } else { Ok(()) }
    }

    fn set_conditions(&mut self, near: &Near<'_>, altered: &Altered) -> Result<u64, BypassError> {
        let altered = &altered.nodes;
        if self.altered == *altered {
            return Ok(0);
        }
        let grows = !altered.is_subset(&self.altered);
        self.altered.clone_from(altered);
        let nodes: Vec<NodeId> = self.altered.iter().copied().collect();
        self.have_heeded(near, || Order::Conditions { nodes: nodes.clone() });
        if grows { self.revoke(near).map_err(BypassError::of) } else { Ok(0) }
    }

    fn set_policy(&mut self, near: &Near<'_>, rules: &[Rule]) -> Result<u64, BypassError> {
        self.shared.policy = Policy::new(rules, near.lab.nodes.len());
        self.have_all_heed(near, |process, aside| process.set_policy(rules, aside));
        self.revoke(near).map_err(BypassError::of)
    }

    fn end(&mut self) {
        for seat in self.seats.values_mut() {
            seat.due = None;
            if let Some(process) = seat.process.take() {
                let _ = process.stop();
            }
        }
    }
}

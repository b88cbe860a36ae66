//! Nodes that end although the player did not end them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use slipway_lab::id::{List, NodeId};
use slipway_sys::process::ProcessId;

use crate::protocol::State;

/// Watches the inits of nodes. Readable when one of them has ended.
#[derive(Debug)]
pub(super) struct Watch {
    poll: OwnedFd,
    inits: List<NodeId, Option<(ProcessId, OwnedFd)>>,
}

impl Watch {
    /// Watches nobody yet, of so many nodes.
    pub(super) fn new(nodes: usize) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { poll, inits: (0..nodes).map(|_| None).collect() })
    }

    /// Watches the nodes that run by now, and says which of them are new.
    pub(super) fn refresh(&mut self, state: &State) -> io::Result<Vec<NodeId>> {
        let mut fresh = Vec::new();
        for (node, now) in state.nodes.enumerate().take(self.inits.len()) {
            let Some(init) = now.init.filter(|init| self.inits[node].as_ref().is_none_or(|(held, _)| held != init))
            else {
                continue;
            };
            self.forget(&[node])?;
            if let Some(pidfd) = init.open()? {
                epoll::add(&self.poll, &pidfd, epoll::EventData::new_u64(node.index() as u64), epoll::EventFlags::IN)?;
                self.inits[node] = Some((init, pidfd));
                fresh.push(node);
            }
        }
        Ok(fresh)
    }

    /// No longer watches these nodes.
    pub(super) fn forget(&mut self, nodes: &[NodeId]) -> io::Result<()> {
        for &node in nodes {
            if let Some((_, pidfd)) = self.inits[node].take() {
                epoll::delete(&self.poll, &pidfd)?;
            }
        }
        Ok(())
    }

    /// Nodes that have ended since; they are watched no longer.
    pub(super) fn ended(&mut self) -> io::Result<Vec<NodeId>> {
        let mut nodes: Vec<NodeId> = Vec::with_capacity(16);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(16);
        epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&now))?;
        nodes.extend(
            events.iter().filter_map(|event: &epoll::Event| usize::try_from(event.data.u64()).ok().map(NodeId)),
        );
        self.forget(&nodes)?;
        Ok(nodes)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

//! The two ends of a relayed connection.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::layout::MEMORY;
use crate::plugin::memory::Mapping;
use crate::plugin::outlet::Outlet;
use crate::untrusted::Untrusted;

/// An end of a relayed connection, as the relay has it.
pub(in super::super) enum Side {
    /// A program of this host.
    Near { memory: Mapping, bell: Untrusted },
    /// A program of another host, whose broker paces what comes from there.
    Far(Box<Outlet>),
}

impl Side {
    /// Maps an end's memory, which this broker has made and sealed.
    pub(in super::super) fn new(memory: &OwnedFd, bell: OwnedFd) -> Result<Self, Errno> {
        Ok(Self::Near { memory: Mapping::new(memory, MEMORY, true)?, bell: bell.into() })
    }

    /// The end of a stream to another host. It can be the first side alone.
    pub(in super::super) fn far(stream: OwnedFd) -> Result<Self, Errno> {
        Ok(Self::Far(Box::new(Outlet::new(stream)?)))
    }

    pub(super) fn memory(&self) -> &Mapping {
        match self {
            Self::Near { memory, .. } => memory,
            Self::Far(outlet) => outlet.memory(),
        }
    }

    /// Has this side waited for, under this number.
    pub(super) fn wait_in(&mut self, epoll: &Arc<OwnedFd>, number: u64) -> Result<(), Errno> {
        match self {
            Self::Near { bell, .. } => epoll::add(epoll, bell, EventData::new_u64(number), EventFlags::IN),
            Self::Far(outlet) => outlet.wait_in((Arc::clone(epoll), number)),
        }
    }

    /// Ends it: its program sees the bell closed.
    pub(super) fn end(&self, epoll: &OwnedFd) {
        self.wait_no_more(epoll);
        if let Self::Near { bell, .. } = self {
            let _ = shutdown(bell, Shutdown::Both);
        }
    }

    pub(super) fn wait_no_more(&self, epoll: &OwnedFd) {
        let waited = match self {
            Self::Near { bell, .. } => Some(bell.as_fd()),
            Self::Far(outlet) => outlet.stream(),
        };
        let _ = waited.map(|it| epoll::delete(epoll, it));
    }

    /// Whether all that the relay has moved to this side is on its way.
    pub(super) fn is_flushed(&self) -> bool {
        if let Self::Far(outlet) = self { outlet.is_flushed() } else { true }
    }
}

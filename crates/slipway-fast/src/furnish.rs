//! Gives a new socket the options of a program's own socket or listener.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use slipway_lab::id::NodeId;

use crate::address::canonical;
use crate::defaults::{Defaults, Kind};
use crate::emulation::{Options, carry};
use crate::limits::Limiter;
use crate::metadata::{Change, MetadataStore, Path, SocketMetadata, Stored};
use crate::timestamps;

/// The socket whose options a new one gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Like<'a> {
    pub(crate) socket: &'a OwnedFd,
    pub(crate) ipv6: bool,
    pub(crate) kin: Kin,
    /// Options that a program has set on it or on its listener.
    pub(crate) changed: Option<Change>,
}

/// The relation of the other socket to the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kin {
    /// The program's own, whose place the new one takes.
    Own,
    /// One that the kernel accepted from the listener.
    Accepted,
    /// The listener itself: nothing was accepted from it.
    Listener,
}

impl<'a> Like<'a> {
    /// A program's own socket, with its storage.
    pub(crate) fn own(socket: &'a OwnedFd, ipv6: bool, stored: &Stored) -> Self {
        Self { socket, ipv6, kin: Kin::Own, changed: changed(stored) }
    }
}

/// The options that a program has set on a socket of its own.
pub(crate) fn changed(stored: &Stored) -> Option<Change> {
    match stored {
        Stored::Changed(change) => Some(*change),
        Stored::Nothing => None,
        Stored::Metadata(_) => Some(Change::UNKNOWN),
    }
}

/// Gives new sockets the options of programs' own.
#[derive(Debug)]
pub(crate) struct Furnisher {
    /// The options of sockets on which no program has set any.
    defaults: Defaults,
    limiter: Arc<Limiter>,
    metadata: Arc<MetadataStore>,
}

impl Furnisher {
    pub(crate) fn new(limiter: Arc<Limiter>, metadata: Arc<MetadataStore>) -> Self {
        Self { defaults: Defaults::default(), limiter, metadata }
    }

    /// Gives a new socket the options of another, and writes its metadata.
    pub(crate) fn furnish(
        &self,
        node: NodeId,
        like: Like<'_>,
        new: &OwnedFd,
        mut stored: SocketMetadata,
    ) -> io::Result<()> {
        let Like { socket, ipv6, kin, changed } = like;
        let accepted = kin != Kin::Own;
        carry(socket, new, accepted, changed)?;
        let mapped = ipv6 && canonical(stored.local).is_ipv4();
        let kind = if accepted { Kind::Accepted { node, ipv6, mapped } } else { Kind::New { node, ipv6 } };
        let read = || match kin {
            Kin::Listener => Options::of(socket).as_accepted(ipv6, mapped),
            Kin::Own | Kin::Accepted => Options::of(socket),
        };
        stored.options = match changed {
            None => self.defaults.of(kind, read).with_free_of(socket),
            Some(Change { is_rare, .. }) => match self.defaults.known(kind).filter(|_| !is_rare) {
                Some(options) => options.with_common_of(socket),
                None => read(),
            },
        };
        if stored.path == Path::Tcp {
            stored.options.apply(new, &self.defaults.of(Kind::Between, || Options::of(new)))?;
            timestamps::carry(socket, new, changed.is_some())?;
        }
        self.metadata.put(new, &stored)?;
        // The other options are set: a rule's priority comes after.
        self.limiter.hold(new, &stored)
    }
}

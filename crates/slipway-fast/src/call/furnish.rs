//! Making a new socket what a program's own was, or would have been.

use std::io;
use std::os::fd::OwnedFd;

use crate::address::canonical;
use crate::defaults::Kind;
use crate::emulation::{Options, carry};
use crate::metadata::{Change, Path, SocketMetadata, Stored};
use crate::router::Router;
use crate::timestamps;

/// A socket that a new one is to be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Like<'a> {
    pub(super) socket: &'a OwnedFd,
    pub(super) ipv6: bool,
    pub(super) kin: Kin,
    /// Options that a program has set on it or on its listener.
    pub(super) changed: Option<Change>,
}

/// The relation of the other socket to the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kin {
    /// The program's own, whose place the new one takes.
    Own,
    /// One that the kernel accepted from the listener.
    Accepted,
    /// The listener itself: nothing was accepted from it.
    Listener,
}

impl<'a> Like<'a> {
    /// A program's own, by what is written on it.
    pub(super) fn own(socket: &'a OwnedFd, ipv6: bool, stored: &Stored) -> Self {
        Self { socket, ipv6, kin: Kin::Own, changed: changed(stored) }
    }
}

/// The options that a program has set on a socket of its own.
pub(super) fn changed(stored: &Stored) -> Option<Change> {
    match stored {
        Stored::Changed(change) => Some(*change),
        Stored::Nothing => None,
        Stored::Metadata(_) => Some(Change::UNKNOWN),
    }
}

/// Gives a new socket the options of another, and writes on it what it is.
pub(super) fn furnish(
    router: &Router,
    node: usize,
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
        None => router.defaults.of(kind, read).with_free_of(socket),
        Some(Change { is_rare, .. }) => match router.defaults.known(kind).filter(|_| !is_rare) {
            Some(options) => options.with_common_of(socket),
            None => read(),
        },
    };
    if stored.path == Path::Tcp {
        stored.options.apply(new, &router.defaults.of(Kind::Between, || Options::of(new)))?;
        timestamps::carry(socket, new, changed.is_some())?;
    }
    router.metadata.put(new, &stored)?;
    // It has what it is to be like: a rule's priority comes after.
    router.hold(new, &stored)
}

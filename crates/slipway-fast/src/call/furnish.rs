//! Making a new socket what a program's own was, or would have been.

use std::io;
use std::os::fd::OwnedFd;

use crate::address::canonical;
use crate::defaults::Kind;
use crate::note::{Change, Note, Path, Written};
use crate::personality::{Options, carry};
use crate::router::Router;
use crate::timestamps;

/// A socket that a new one is to be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Like<'a> {
    pub(super) socket: &'a OwnedFd,
    pub(super) ipv6: bool,
    /// Whether it was accepted, or is the listener that the new one is as if accepted from.
    pub(super) accepted: bool,
    /// Options that a program has set on it or on its listener.
    pub(super) changed: Option<Change>,
}

impl<'a> Like<'a> {
    /// A program's own, by what is written on it.
    pub(super) fn own(socket: &'a OwnedFd, ipv6: bool, written: &Written) -> Self {
        Self { socket, ipv6, accepted: false, changed: changed(written) }
    }
}

/// The options that a program has set on a socket of its own.
pub(super) fn changed(written: &Written) -> Option<Change> {
    match written {
        Written::Changed(change) => Some(*change),
        Written::Nothing => None,
        Written::Note(_) => Some(Change::UNKNOWN),
    }
}

/// Gives a new socket the options of another, and writes on it what it is.
pub(super) fn furnish(
    router: &Router,
    node: usize,
    like: Like<'_>,
    new: &OwnedFd,
    mut written: Note,
) -> io::Result<()> {
    let Like { socket, ipv6, accepted, changed } = like;
    carry(socket, new, accepted, changed)?;
    let mapped = ipv6 && canonical(written.local).is_ipv4();
    let kind = if accepted { Kind::Accepted { node, ipv6, mapped } } else { Kind::New { node, ipv6 } };
    written.options = match changed {
        None => router.defaults.of(kind, socket).with_free_of(socket),
        Some(Change { is_rare, .. }) => match router.defaults.known(kind).filter(|_| !is_rare) {
            Some(options) => options.with_common_of(socket),
            None => Options::of(socket),
        },
    };
    if written.path == Path::Tcp {
        written.options.apply(new, &router.defaults.of(Kind::Between, new))?;
        timestamps::carry(socket, new, changed.is_some())?;
    }
    router.notes.put(new, &written)?;
    // It has what it is to be like: a rule's priority comes after.
    router.hold(new, &written)
}

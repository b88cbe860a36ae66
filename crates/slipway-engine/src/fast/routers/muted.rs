//! Nodes that are ended without a word: their sockets are kept, so that their peers do not hear of it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use slipway_fast::metadata::Path;
use slipway_fast::walk;
use slipway_lab::id::NodeId;

use super::Routers;
use crate::bypass::Near;

/// A socket of a node that was ended without a word.
#[derive(Debug)]
pub(super) struct MutedSocket {
    socket: OwnedFd,
    path: Path,
}

impl MutedSocket {
    /// Ends it, as the node would that knows nothing of it any more: by a reset. A pair's other end reads one where something
    /// had not been read here, else an end.
    pub(super) fn end(self) {
        if self.path == Path::Tcp {
            // It cannot fail on a socket of TCP (`sk_setsockopt`, `net/core/sock.c`).
            let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }
}

impl Routers {
    /// Keeps the sockets of a node that were handed out to it.
    pub(super) fn mute(&mut self, near: &Near<'_>, node: NodeId) -> io::Result<()> {
        let namespaces = near.namespaces(|other| other == node);
        let muted = self.muted.entry(node).or_default();
        let mut seen = BTreeSet::new();
        walk::handed_out(&walk::processes(&namespaces)?, &self.shared.metadata, &mut seen, |held| {
            muted.push(MutedSocket { socket: held.socket, path: held.metadata.path });
        })
    }
}

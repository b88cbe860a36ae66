//! Connections that the router before this one had in hand.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::Router;
use crate::ends::EndIdentity;
use crate::journal::{HandoffCall, Unaccepted};
use crate::metadata::Role;
use crate::pending::{Connection, Pending, ServerEnd};
use crate::sync::lock;
use crate::wakeup::WakeupSocket;

impl Router {
    /// Takes over a connection that the router before this one had in hand. `end` is the server's end; `wakeup_socket`
    /// announces the connection. This waits neither for a wake-up socket nor for room in a queue: the anchor gives no more
    /// sockets before this router obeys its next orders.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`, and `getsockopt(2)` of a socket that is counted.
    pub(crate) fn take_up(
        self: &Arc<Self>,
        unaccepted: Unaccepted,
        end: OwnedFd,
        wakeup_socket: Option<OwnedFd>,
    ) -> io::Result<()> {
        let Unaccepted { node, path, flow, client, server, handoff } = unaccepted;
        if let (Some(path), Some(at)) = (path, self.parts.address_map.of(client.ip())) {
            let identity = EndIdentity { role: Role::Server, client: at.node, server: node, port: server.port() };
            self.parts.limiter.count_on(&end, identity, path)?;
        }
        // The connection had its share before.
        let share = Some(self.parts.delivery.keep_share(client, node));
        // Its programs come later, and somebody has to notice before that if the wake-up ends.
        let blocked_accepts = self.blocked_accepts_for(node)?;
        let wakeup_socket = wakeup_socket.and_then(|socket| WakeupSocket::still_pending(socket).ok());
        // For the next router, where this one ends before it has gone on. The wake-up socket follows at once.
        let entry = self.parts.delivery.journal.enter(&unaccepted, end.as_fd());
        let end = ServerEnd::There(end);
        let connection = Connection { share, entry, end, path, flow, client, server, number: None };
        if let Some(handoff) = handoff {
            lock(&self.unfinished).push((handoff, connection));
            return Ok(());
        }
        let Some(wakeup_socket) = wakeup_socket.map(Arc::new) else {
            blocked_accepts.leave_connection(connection);
            return Ok(());
        };
        let wakeup = self.parts.delivery.pend(node, connection, &wakeup_socket);
        let watch = |pending: &mut Pending| self.parts.delivery.watch(wakeup, &pending.connection, &wakeup_socket);
        self.parts.delivery.pending.with(wakeup, watch).unwrap_or(Ok(()))
    }

    /// The connections that the router before this one was handing to programs of a tree.
    pub(super) fn handoffs_of(&self, tree: u64) -> Vec<(HandoffCall, Connection)> {
        lock(&self.unfinished).extract_if(.., |(handoff, _)| handoff.tree == tree).collect()
    }
}

#[cfg(test)]
mod tests;

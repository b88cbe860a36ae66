//! Requests of other hosts' routers.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::Router;
use crate::blocked_accepts::{BlockedAccepts, Expected};
use crate::channel::{Open, OpenRequest, Refusal};
use crate::delivery::AnnounceError;
use crate::ends::EndIdentity;
use crate::journal::{Entry, Unaccepted};
use crate::limits::ConnectionSlot;
use crate::metadata::{Path, Role, remote};
use crate::pending::{Connection, Pending, ServerEnd};
use crate::reason::Reason;
use crate::shares::Share;

impl Router {
    /// The router of another host asks for a server of this one. Called in the one thread that hears them all, which no program is
    /// to hold up.
    ///
    /// Where a server waits in `accept(2)`, its node's thread hands the connection over: a program takes a descriptor when it
    /// likes, and a copy of its own, by which its listener is looked at here, can be long in closing (`SO_LINGER`). That costs no
    /// more: a wake-up socket would wake the same thread. And the client does not wait for it, having heard yes.
    ///
    /// For a server that polls, this thread connects a wake-up socket, if that needs no waiting. The node's thread waits for room
    /// in a full queue, and for more wake-up sockets.
    pub(crate) fn asked(self: &Arc<Self>, asked: OpenRequest) {
        self.ask(asked, None);
    }

    /// The same of a connection that was left to its node's thread, with its share, which waits until then at most.
    pub(crate) fn answer_late(self: &Arc<Self>, (asked, share): (OpenRequest, Share), until: Instant) {
        self.ask(asked, Some((share, until)));
    }

    fn ask(self: &Arc<Self>, asked: OpenRequest, late: Option<(Share, Instant)>) {
        let (share, until) = late.unzip();
        let (identity, slot) = match self.may_ask(&asked.open) {
            Ok(admitted) => admitted,
            // A caller that is gone needs no answer.
            Err(refusal) => return drop(asked.refuse(refusal)),
        };
        let Open { flow, client, server } = asked.open;
        if !self.parts.unsupported.is_supported(identity.server, server.port(), Path::Tcp) {
            return drop(asked.refuse(Refusal::Options));
        }
        let (node, path, flow) = (identity.server, Some(Path::Tcp), remote(flow));
        let unaccepted = Unaccepted { node, path, flow, client, server, handoff: None };
        let share = share.or_else(|| self.parts.delivery.share(client, node));
        if share.is_none() {
            return drop(asked.refuse(Refusal::Crowded));
        }
        let connection = |entry, end| Connection { share, entry, end, path, flow, client, server, number: None };
        if let Some((blocked_accepts, expected)) = self.awaited(node, server) {
            // The yes comes first on the connection, then what its server says.
            return match self.say_yes(asked, &unaccepted, identity, slot) {
                Some((entry, end)) => blocked_accepts.entrust(expected, connection(entry, ServerEnd::There(end))),
                None => blocked_accepts.close(expected.socket),
            };
        }
        match self.parts.delivery.wake_by(node, connection(None, ServerEnd::Awaited), until) {
            Err((AnnounceError::Full | AnnounceError::Failed, connection)) if until.is_none() => {
                match (self.blocked_accepts_for(node), connection.share) {
                    (Ok(blocked_accepts), Some(share)) => blocked_accepts.leave_request(asked, share),
                    _ => drop(asked.refuse(Refusal::Resources)),
                }
            }
            Err((error, _)) => drop(asked.refuse(refusal(error))),
            Ok(wakeup) => {
                let said = self.say_yes(asked, &unaccepted, identity, slot);
                self.parts.delivery.pending.with(wakeup, |Pending { connection, wakeup_socket, .. }| {
                    (connection.entry, connection.end) =
                        said.map_or((None, ServerEnd::Gone), |(entry, end)| (entry, ServerEnd::There(end)));
                    connection
                        .entry
                        .iter()
                        .for_each(|entry| entry.set_wakeup_socket(Some(wakeup_socket.socket.as_fd())));
                    // Where the kernel lacks something, a listener that defers hears of it later.
                    let _ = self.parts.delivery.watch_data(wakeup, connection);
                });
            }
        }
    }

    /// The listener at which programs of a node wait in `accept(2)` for connections to this address, and who hands them over.
    fn awaited(&self, node: usize, server: SocketAddr) -> Option<(Arc<BlockedAccepts>, Expected)> {
        let blocked_accepts = self.nodes.blocked_accepts(node)?;
        let expected = blocked_accepts.expects(&self.parts.delivery.listener_cache, server)?;
        Some((blocked_accepts, expected))
    }

    /// Whether a connection may be made that another router asks for: what its server's end counts as, and the turn to be held until
    /// it is counted.
    fn may_ask(&self, open: &Open) -> Result<(EndIdentity, ConnectionSlot<'_>), Refusal> {
        let at = self
            .parts
            .address_map
            .of(open.server.ip())
            .filter(|at| at.host == self.parts.host)
            .ok_or(Refusal::NoSuchNode)?;
        let client = self.parts.address_map.of(open.client.ip()).ok_or(Refusal::NoSuchNode)?;
        // Both sides see to it: what one of them does not know yet, the other may.
        let port = open.server.port();
        let admission = self.parts.rules.admits(client.node, at, port).map_err(|reason| match reason {
            Reason::Policy => Refusal::Policy,
            _ => Refusal::NotServed,
        })?;
        let identity = EndIdentity { role: Role::Server, client: client.node, server: at.node, port };
        let slot = self.parts.limiter.slot(identity, &admission.terms).ok_or(Refusal::Limit)?;
        Ok((identity, slot))
    }

    /// Says yes, and counts the server's end. It is written down before that: what a client has been told of outlives this router. A
    /// client that was not told, because the router ended in between, leaves its server a connection that ends.
    fn say_yes(
        &self,
        asked: OpenRequest,
        unaccepted: &Unaccepted,
        identity: EndIdentity,
        slot: ConnectionSlot<'_>,
    ) -> Option<(Option<Entry>, OwnedFd)> {
        let (end, entry) = asked.accept_after(|end| self.parts.delivery.journal.enter(unaccepted, end)).ok()?;
        self.parts.limiter.count(&end, identity, Path::Tcp, slot).ok()?;
        self.counts.accepted();
        Some((entry, end.into()))
    }
}

/// Why another router is told no.
fn refusal(error: AnnounceError) -> Refusal {
    match error {
        AnnounceError::Refused => Refusal::NobodyListens,
        AnnounceError::Full => Refusal::Backlog,
        AnnounceError::Crowded => Refusal::Crowded,
        AnnounceError::Failed => Refusal::Resources,
    }
}

//! Requests of other hosts' routers.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use slipway_lab::id::NodeId;

use super::Router;
use crate::blocked_accepts::{BlockedAccepts, Expected};
use crate::channel::{MANAGEMENT, Open, OpenRequest, Refusal};
use crate::delivery::AnnounceError;
use crate::ends::EndIdentity;
use crate::journal::{Entry, Unaccepted};
use crate::limits::ConnectionSlot;
use crate::metadata::{Path, Role, remote};
use crate::pending::{Connection, Pending, ServerEnd};
use crate::reason::Reason;
use crate::shares::Share;

impl Router {
    /// Handles a request of another host's router for a server of this one. The one thread that receives all requests calls
    /// this, and no program may delay it.
    ///
    /// If a server waits in `accept(2)`, its node's thread hands the connection over. A program takes a descriptor when it
    /// likes, and the copy by which the router looks at its listener can close slowly (`SO_LINGER`). That costs no more: a
    /// wake-up socket would wake the same thread. And the client does not wait for it, because it has its answer.
    ///
    /// For a server that polls, this thread connects a wake-up socket, if that needs no waiting. The node's thread waits for room
    /// in a full queue, and for more wake-up sockets.
    pub(crate) fn asked(self: &Arc<Self>, asked: OpenRequest) {
        self.ask(asked, None);
    }

    /// Handles a connection that was left to its node's thread, with its share, and waits until then at most.
    pub(crate) fn answer_late(self: &Arc<Self>, (asked, share): (OpenRequest, Share), until: Instant) {
        self.ask(asked, Some((share, until)));
    }

    fn ask(self: &Arc<Self>, asked: OpenRequest, late: Option<(Share, Instant)>) {
        if asked.open.flow == MANAGEMENT {
            return self.manage(asked);
        }
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
            // The reply comes first on the connection, then the server's data.
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
                    // Where the kernel lacks memory, a listener that defers notices later.
                    let _ = self.parts.delivery.watch_data(wakeup, connection);
                });
            }
        }
    }

    /// Handles a request for a stream about a connection of RDMA. Both routers check the rules: one may not know yet what the
    /// other knows.
    fn manage(&self, asked: OpenRequest) {
        let Open { client, server, .. } = asked.open;
        let there = self.parts.address_map.of(server.ip()).filter(|at| at.host == self.parts.host);
        // A router speaks for nodes of its own host alone.
        let from = self.parts.address_map.of(client.ip());
        let from = from.filter(|at| u32::try_from(at.host.index()) == Ok(asked.host));
        let (Some(there), Some(from)) = (there, from) else { return drop(asked.refuse(Refusal::NoSuchNode)) };
        match self.parts.rules.admits(from.node, there, server.port()) {
            Ok(admission) => {
                if let Ok(stream) = asked.accept() {
                    // A stream without room is closed, and the client hears of a rejection.
                    self.parts.rdma.adopt(stream.into(), client, server, admission);
                }
            }
            Err(Reason::Policy) => drop(asked.refuse(Refusal::Policy)),
            Err(_) => drop(asked.refuse(Refusal::NotServed)),
        }
    }

    /// The listener at which programs of a node wait in `accept(2)` for connections to this address, and the node's blocked
    /// accepts.
    fn awaited(&self, node: NodeId, server: SocketAddr) -> Option<(Arc<BlockedAccepts>, Expected)> {
        let blocked_accepts = self.nodes.blocked_accepts(node)?;
        let expected = blocked_accepts.expects(&self.parts.delivery.listener_cache, server)?;
        Some((blocked_accepts, expected))
    }

    /// Whether another router's connection is allowed: its terms at the server's end, and the permission to hold until it
    /// is counted.
    fn may_ask(&self, open: &Open) -> Result<(EndIdentity, ConnectionSlot<'_>), Refusal> {
        let at = self
            .parts
            .address_map
            .of(open.server.ip())
            .filter(|at| at.host == self.parts.host)
            .ok_or(Refusal::NoSuchNode)?;
        let client = self.parts.address_map.of(open.client.ip()).ok_or(Refusal::NoSuchNode)?;
        // Both routers check this: one may not know yet what the other knows.
        let port = open.server.port();
        let admission = self.parts.rules.admits(client.node, at, port).map_err(|reason| match reason {
            Reason::Policy => Refusal::Policy,
            _ => Refusal::NotServed,
        })?;
        let identity = EndIdentity { role: Role::Server, client: client.node, server: at.node, port };
        let slot = self.parts.limiter.slot(identity, &admission.terms).ok_or(Refusal::Limit)?;
        Ok((identity, slot))
    }

    /// Accepts, and counts the server's end. It writes the connection down first: an accepted connection outlives this
    /// router. If the router ends before it answers the client, the server gets a connection that ends.
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

/// The refusal for another router.
fn refusal(error: AnnounceError) -> Refusal {
    match error {
        AnnounceError::Refused => Refusal::NobodyListens,
        AnnounceError::Full => Refusal::Backlog,
        AnnounceError::Crowded => Refusal::Crowded,
        AnnounceError::Failed => Refusal::Resources,
    }
}

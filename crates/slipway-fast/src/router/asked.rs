//! What routers of other hosts ask for.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::{Router, Unheard};
use crate::call::Expected;
use crate::channel::{Asked, Open, Refusal};
use crate::ledger::{Entry, Left};
use crate::limits::{Member, Turn};
use crate::note::{Path, Role, remote};
use crate::park::Parker;
use crate::pending::{Connection, End, Pending};
use crate::reason::Reason;
use crate::shares::Share;

impl Router {
    /// The router of another host asks for a server of this one. Called in the one thread that hears them all, which no program is
    /// to hold up.
    ///
    /// Where a server waits in `accept(2)`, its node's thread hands the connection over: a program takes a descriptor when it likes,
    /// and a copy of its own, by which its listener is looked at here, can be long in closing (`SO_LINGER`). That costs no wake-up
    /// that there would not be: a knock wakes the same thread. And the client does not wait for it, having heard yes.
    ///
    /// A server that polls is knocked for here, where that needs no waiting. A listener whose queue is full has some time to make
    /// room, and more sockets to knock with may have to come: its node's thread waits for these.
    pub(crate) fn asked(self: &Arc<Self>, asked: Asked) {
        self.ask(asked, None);
    }

    /// The same of a connection that was left to its node's thread, with its share, which waits until then at most.
    pub(crate) fn asked_late(self: &Arc<Self>, (asked, share): (Asked, Share), until: Instant) {
        self.ask(asked, Some((share, until)));
    }

    fn ask(self: &Arc<Self>, asked: Asked, late: Option<(Share, Instant)>) {
        let (share, until) = late.unzip();
        let (member, turn) = match self.may_ask(&asked.open) {
            Ok(admitted) => admitted,
            // A caller that is gone needs no answer.
            Err(refusal) => return drop(asked.refuse(refusal)),
        };
        let Open { flow, client, server } = asked.open;
        if !self.unkept.is_kept(member.server, server.port(), Path::Tcp) {
            return drop(asked.refuse(Refusal::Options));
        }
        let (node, path, flow) = (member.server, Some(Path::Tcp), remote(flow));
        let left = Left { node, path, flow, client, server, given: None };
        let share = share.or_else(|| self.share(client, node));
        if share.is_none() {
            return drop(asked.refuse(Refusal::Crowded));
        }
        let connection = |entry, end| Connection { share, entry, end, path, flow, client, server, number: None };
        if let Some((parker, expected)) = self.awaited(node, server) {
            // The yes comes first on the connection, then what its server says.
            return match self.say_yes(asked, &left, member, turn) {
                Some((entry, end)) => parker.entrust(expected, connection(entry, End::There(end))),
                None => parker.close(expected.into_socket()),
            };
        }
        match self.knock_by(node, connection(None, End::Awaited), until) {
            Err((Unheard::Full | Unheard::Failed, connection)) if until.is_none() => {
                match (self.park_for(node), connection.share) {
                    (Ok(parker), Some(share)) => parker.leave_asked(asked, share),
                    _ => drop(asked.refuse(Refusal::Resources)),
                }
            }
            Err((unheard, _)) => drop(asked.refuse(refusal(unheard))),
            Ok(knock) => {
                let said = self.say_yes(asked, &left, member, turn);
                self.pending.with(knock, |Pending { connection, knocker, .. }| {
                    (connection.entry, connection.end) =
                        said.map_or((None, End::Gone), |(entry, end)| (entry, End::There(end)));
                    connection.entry.iter().for_each(|entry| entry.knocked(Some(knocker.socket.as_fd())));
                    // Where the kernel lacks something, a listener that defers hears of it later.
                    let _ = self.mind_words(knock, connection);
                });
            }
        }
    }

    /// The listener at which programs of a node wait in `accept(2)` for connections to this address, and who hands them over.
    fn awaited(&self, node: usize, server: SocketAddr) -> Option<(Arc<Parker>, Expected)> {
        let parker = self.parker(node)?;
        let expected = parker.expects(self, server)?;
        Some((parker, expected))
    }

    /// Whether a connection may be made that another router asks for: what its server's end counts as, and the turn to be held until
    /// it is counted.
    fn may_ask(&self, open: &Open) -> Result<(Member, Turn<'_>), Refusal> {
        let at = self.places.of(open.server.ip()).filter(|at| at.host == self.host).ok_or(Refusal::NoSuchNode)?;
        let client = self.places.of(open.client.ip()).ok_or(Refusal::NoSuchNode)?;
        // Both sides see to it: what one of them does not know yet, the other may.
        let port = open.server.port();
        let admission = self.admits(client.node, at, port).map_err(|reason| match reason {
            Reason::Policy => Refusal::Policy,
            _ => Refusal::NotServed,
        })?;
        let member = Member { role: Role::Server, client: client.node, server: at.node, port };
        let turn = self.turn(member, &admission.terms).ok_or(Refusal::Limit)?;
        Ok((member, turn))
    }

    /// Says yes, and counts the server's end. It is written down before that: what a client has been told of outlives this router. A
    /// client that was not told, because the router ended in between, leaves its server a connection that ends.
    fn say_yes(&self, asked: Asked, left: &Left, member: Member, turn: Turn<'_>) -> Option<(Option<Entry>, OwnedFd)> {
        let (end, entry) = asked.accept_after(|end| self.ledger.enter(left, end)).ok()?;
        self.count(&end, member, Path::Tcp, turn).ok()?;
        self.counts.accepted();
        Some((entry, end.into()))
    }
}

/// Why another router is told no.
fn refusal(unheard: Unheard) -> Refusal {
    match unheard {
        Unheard::Refused => Refusal::NobodyListens,
        Unheard::Full => Refusal::Backlog,
        Unheard::Crowded => Refusal::Crowded,
        Unheard::Failed => Refusal::Resources,
    }
}

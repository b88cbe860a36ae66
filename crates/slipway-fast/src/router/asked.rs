//! What routers of other hosts ask for.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::{Announced, Router, Unheard};
use crate::channel::{Asked, Open, Refusal};
use crate::limits::{Member, Turn};
use crate::note::{Path, Role, remote};
use crate::pending::{Connection, End, Knock, Pending};
use crate::reason::Reason;

impl Router {
    /// The router of another host asks for a server of this one.
    pub(crate) fn asked(self: &Arc<Self>, asked: Asked) {
        let (knock, turn, member) = match self.announce_for(&asked.open) {
            Ok(announced) => announced,
            Err(refusal) => {
                // A caller that is gone needs no answer.
                let _ = asked.refuse(refusal);
                return;
            }
        };
        let end = asked.accept().ok().map(OwnedFd::from);
        let end = end.filter(|end| self.count(end, member, Path::Tcp).is_ok());
        drop(turn);
        if end.is_some() {
            self.counts.taken(Path::Tcp);
        }
        self.pending.with(knock, |Pending { connection, knocker, .. }| {
            connection.end = end.map_or(End::Gone, End::There);
            self.write(knock.node, connection);
            connection.entry.iter().for_each(|entry| entry.knocked(Some(knocker.socket.as_fd())));
            // Where the kernel lacks something, a listener that defers hears of it later.
            let _ = self.mind_words(knock, connection);
        });
    }

    /// Announces what another router asks for. Which knock that is, the turn to be held until the new end is counted, and what it
    /// counts as.
    fn announce_for(self: &Arc<Self>, open: &Open) -> Result<(Knock, Turn<'_>, Member), Refusal> {
        let at = self.places.of(open.server.ip()).filter(|at| at.host == self.host).ok_or(Refusal::NoSuchNode)?;
        let client = self.places.of(open.client.ip()).ok_or(Refusal::NoSuchNode)?;
        // Both sides see to it: what one of them does not know yet, the other may.
        let port = open.server.port();
        let admission = self.admits(client.node, at, port).map_err(|reason| match reason {
            Reason::Policy => Refusal::Policy,
            _ => Refusal::NotServed,
        })?;
        let member = Member { role: Role::Server, client: client.node, server: at.node, port };
        let turn = self.turn(member, &admission.terms).map_err(|_| Refusal::Resources)?.ok_or(Refusal::Limit)?;
        let [client, server] = [open.client, open.server];
        let (path, flow) = (Some(Path::Tcp), remote(open.flow));
        let connection = Connection { entry: None, end: End::Awaited, path, flow, client, server, number: None };
        match self.announce(at.node, connection) {
            Ok(Announced::Knocked(knock)) => Ok((knock, turn, member)),
            Err(Unheard::Refused) => Err(Refusal::NobodyListens),
            Err(Unheard::Full) => Err(Refusal::Backlog),
            // One without an end is knocked for.
            Ok(Announced::For(_) | Announced::Kept) | Err(Unheard::Failed) => Err(Refusal::Resources),
        }
    }
}

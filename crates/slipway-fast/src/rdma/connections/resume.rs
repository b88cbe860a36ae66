//! Going on with identifiers of the router before.

use slipway_lab::id::NodeId;

use super::{Connections, Identifier, Peer, Step};
use crate::records::Record;

impl Connections {
    /// Keeps an identifier of the router before.
    pub(in super::super) fn keep(&mut self, id: u32, one: Identifier, record: Record) {
        if let (true, Some(own)) = (one.is_bound, one.own) {
            self.ports.insert((one.node, own.port()), id);
        }
        self.all.keep(id, one, record);
    }

    /// A request of an identifier is held: its listener ended a moment ago.
    pub(in super::super) fn waits_for_listener(&mut self, id: u32) {
        let place = self.all.get(id).and_then(|one| one.to).and_then(|to| Some((self.node_at(to)?, to.port())));
        if let Some(place) = place {
            self.left.note(place);
        }
    }

    /// Brings all identifiers up to date once they are there. Gives those whose peers are gone. `has_link` says whether a link is
    /// there, and `is_held` whether a request is held. Nobody hears of the ends of programs of nodes that are silent (`is_silent`).
    pub(in super::super) fn settle(
        &mut self,
        has_link: impl Fn(u64) -> bool,
        is_held: impl Fn(u32) -> bool,
        is_silent: impl Fn(NodeId) -> bool,
    ) -> Vec<u32> {
        let is_gone = |one: &Identifier| match one.peer {
            Some(Peer::Far(link)) => !has_link(link),
            Some(Peer::Near(peer)) => {
                let node = one.to.and_then(|to| self.node_at(to));
                !self.all.has(peer) && !node.is_some_and(&is_silent)
            }
            None => false,
        };
        let gone = self.all.iter().filter(|(_, one)| is_gone(one)).map(|(id, _)| id).collect();
        // Calls of their programs were not answered, and come again.
        let is_asking = |one: &Identifier| one.step == Step::Requesting && one.peer.is_none();
        let asking: Vec<u32> =
            self.all.iter().filter(|(id, one)| is_asking(one) && !is_held(*id)).map(|(id, _)| id).collect();
        for id in asking {
            if let Some(one) = self.all.get_mut(id) {
                one.step = Step::Routed;
            }
        }
        gone
    }
}

//! The part of another host's router in a connection.

use super::{BY_PROGRAM, Caller, Connections, Heard, Identifier, MOST, NO_LISTENER, Peer, Step, TCP, unreachable};
use crate::rdma_wire::{self, Event, IN_REJECTION, IN_REPLY, IN_REQUEST, Kind, Offer};

impl Connections {
    /// A client of another host asks a listener. The result is as that of [`ask`](Self::ask).
    pub(in super::super) fn requested(
        &mut self,
        link: u64,
        caller: &Caller,
        mut offer: Offer,
    ) -> Result<(u64, u32, Event), i32> {
        offer.private.resize(IN_REQUEST, 0);
        let place = self.address_map.of(caller.server.ip()).filter(|place| place.host == self.host);
        let place = place.ok_or(NO_LISTENER)?;
        if self.all.values().filter(|one| one.node == place.node).count() >= MOST {
            return Err(NO_LISTENER);
        }
        // The rules may have changed since the other router asked.
        if matches!(self.rules.recheck(&caller.admission), Some(Err(_))) {
            return Err(NO_LISTENER);
        }
        self.ask(place, (caller.client, caller.server), Peer::Far(link), offer, Some(caller.admission), TCP)
    }

    /// Gives a client that asks another host its link. False where it has left.
    pub(in super::super) fn set_link(&mut self, id: u32, link: u64) -> bool {
        let is_asking = |one: &&mut Identifier| one.step == Step::Requesting && one.peer.is_none();
        self.all.get_mut(id).filter(is_asking).map(|one| one.peer = Some(Peer::Far(link))).is_some()
    }

    /// A connection has come to nothing.
    pub(in super::super) fn over(&mut self, id: u32) {
        if let Some(one) = self.all.get_mut(id) {
            (one.step, one.peer) = (Step::Over, None);
        }
    }

    /// Acts on another router's message.
    pub(in super::super) fn heed(&mut self, id: u32, step: rdma_wire::Step, mut offer: Offer) -> Heard {
        use rdma_wire::Step as Told;
        let Some(one) = self.all.get_mut(id) else { return Heard::Wrong };
        let (kind, room) = match (step, one.step) {
            (Told::Accepted, Step::Requesting) => (Kind::ConnectResponse, IN_REPLY),
            (Told::Established, Step::Accepted) => (Kind::Established, 0),
            (Told::Rejected, Step::Requesting | Step::Accepted) => (Kind::Rejected, IN_REJECTION),
            (Told::Accepted, Step::Answered | Step::Connected) | (Told::Established, Step::Connected) => {
                return Heard::Again;
            }
            _ => return Heard::Wrong,
        };
        match kind {
            Kind::ConnectResponse => one.step = Step::Answered,
            Kind::Established => one.step = Step::Connected,
            _ => (one.step, one.peer) = (Step::Over, None),
        }
        if kind != Kind::Established {
            offer.private.resize(room, 0);
            one.theirs = offer;
        }
        Heard::News(kind)
    }

    /// The other router has closed its link. Gives the event for the program, if it has to have one.
    pub(in super::super) fn lost(&mut self, id: u32) -> Option<(Kind, i32)> {
        let one = self.all.get_mut(id)?;
        let was = std::mem::replace(&mut one.step, Step::Over);
        one.peer.take()?;
        Some(match was {
            Step::Requesting => {
                one.theirs = Offer::default().seen(IN_REJECTION);
                (Kind::Rejected, BY_PROGRAM)
            }
            Step::Requested | Step::Accepted => (Kind::Unreachable, unreachable()),
            _ => (Kind::Disconnected, 0),
        })
    }
}

//! Requests that wait for a listener.

use super::{Connections, NO_LISTENER, NO_LISTENER_FOR_DATAGRAMS, Step};
use crate::rdma_wire::Kind;

impl Connections {
    /// Lets a request that waits for a listener be made once more. False where its client has gone, or has another.
    pub(in super::super) fn ask_again(&mut self, id: u32) -> bool {
        let waits = self.all.get_mut(id).filter(|one| one.step == Step::Requesting && one.peer.is_none());
        waits.map(|one| one.step = Step::Routed).is_some()
    }

    /// Ends a request that has waited in vain. Gives the client's news.
    pub(in super::super) fn give_up(&mut self, id: u32) -> Option<(u32, Kind, i32)> {
        let one = self.all.get_mut(id).filter(|one| one.step == Step::Requesting && one.peer.is_none())?;
        one.step = Step::Over;
        let (kind, status) = one.refusal(NO_LISTENER, NO_LISTENER_FOR_DATAGRAMS);
        Some((id, kind, status))
    }
}

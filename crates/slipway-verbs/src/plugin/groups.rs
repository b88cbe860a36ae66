//! Datagrams to a group: one to each member, as the broker names them.

use super::device::State;
use super::queues::{QueuePair, Work};
use super::ring::kind;
use super::transmit::records::by_ring;
use crate::wire::{Gid, MEMBERS, Reply, Request};

/// Most groups whose members are kept.
const KEPT: usize = 64;

impl State {
    /// Sends a datagram to each member of a group. A member without room loses it: nobody waits for the slowest.
    pub(super) fn send_to_group(&mut self, pair: &mut QueuePair, work: &mut Work, group: Gid) {
        for member in self.members(group) {
            let Some(number) = self.reach(pair, member) else { continue };
            let connection = &mut pair.connections[number];
            let fits = matches!(connection.requests.room(&connection.memory), Ok(Some(room)) if room >= work.length);
            if fits && !connection.is_closed() {
                work.done = 0;
                let _ = by_ring(connection, work, kind::SEND);
                connection.tally.asked(work.operation, work.length);
                connection.ring();
            }
        }
    }

    fn members(&mut self, group: Gid) -> Vec<(Gid, u32)> {
        // Notes that came with replies: no other would tell of the group again.
        while let Some(group) = self.client.regrouped() {
            self.groups.remove(&group);
        }
        if let Some(known) = self.groups.get(&group) {
            return known.clone();
        }
        let (mut all, mut after) = (Vec::new(), 0);
        while all.len() < MEMBERS
            && let Ok((Reply::Member { gid, number }, _)) = self.client.ask(&Request::Member { group, after }, &[])
            && number > after
        {
            all.push((gid, number));
            after = number;
        }
        if self.groups.len() >= KEPT {
            self.groups.clear();
        }
        self.groups.insert(group, all.clone());
        all
    }
}

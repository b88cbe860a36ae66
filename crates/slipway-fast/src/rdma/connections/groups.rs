//! Memberships of groups that datagrams go to. The manager names the group's identifier and key; the plug-in's broker joins it.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::{Connections, Identifier, MOST, Step, UDP, is_any};
use crate::rdma_wire::{Event, Kind, Offer, USUAL_KEY};

/// The queue pair that datagrams to a group name (`IB_MULTICAST_QPN`, `include/rdma/ib_verbs.h`).
const ALL: u32 = 0x00ff_ffff;

impl Connections {
    /// Joins a group. Gives the number of the membership, and the event for the program.
    pub(in super::super) fn join_group(
        &mut self,
        id: u32,
        uid: u64,
        group: SocketAddr,
    ) -> Result<(u32, u64, Event), Errno> {
        let one = self.at(id, &[Step::New, Step::Resolved, Step::Routed])?;
        let has_device = one.own.is_some_and(|own| !is_any(own.ip()));
        if one.port_space != UDP || !group.ip().is_multicast() || !has_device {
            return Err(Errno::INVAL);
        }
        let (node, channel) = (one.node, one.channel);
        if self.all.values().filter(|one| one.node == node).count() >= MOST {
            return Err(Errno::NOMEM);
        }
        let member = self.add(Identifier {
            node,
            channel,
            uid,
            port_space: UDP,
            step: Step::Member,
            own: None,
            to: Some(group),
            is_bound: false,
            peer: None,
            theirs: Offer::default(),
            admission: None,
            reported: 0,
            joined_by: Some(id),
        });
        let offer = Offer { queue_pair: ALL, qkey: USUAL_KEY, ..Offer::default() };
        let datagrams_to = Some(group.ip());
        Ok((member, channel, Event { uid, id: member, kind: Kind::JoinedGroup, status: 0, offer, datagrams_to }))
    }

    /// Ends a membership. Gives how many events it has reported.
    pub(in super::super) fn leave_group(&mut self, member: u32) -> Result<u32, Errno> {
        self.at(member, &[Step::Member])?;
        self.remove(member).ok_or(Errno::NOENT)
    }
}

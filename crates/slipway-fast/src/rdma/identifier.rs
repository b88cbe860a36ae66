//! An identifier of connections, and the steps that it takes (`rdma_cm(7)`; `drivers/infiniband/core/cma.c`).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;

use crate::admission::Admission;
use crate::rdma_wire::{Kind, Offer};

/// `RDMA_PS_TCP` and `RDMA_PS_UDP` (`include/uapi/rdma/rdma_user_cm.h`): reliable connections, and datagrams. Others are not managed.
pub(super) const TCP: u16 = 0x0106;
pub(super) const UDP: u16 = 0x0111;

/// The step that an identifier has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    New,
    Resolved,
    Routed,
    Listening,
    /// A listener's, whose program has yet to answer.
    Requested,
    /// A client's, which waits for an answer.
    Requesting,
    /// A client's, whose program has yet to acknowledge.
    Answered,
    /// A server's, which waits for that.
    Accepted,
    Connected,
    Over,
    /// A membership of a group: an identifier of its own, whose number leaves the group.
    Member,
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Peer {
    /// An identifier of this host.
    Near(u32),
    /// A link to the router of another host.
    Far(u64),
}

/// A client of another host, before it has said what it offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Caller {
    pub(super) client: SocketAddr,
    pub(super) server: SocketAddr,
    pub(super) admission: Admission,
}

/// An identifier.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Identifier {
    pub(super) node: NodeId,
    pub(super) channel: u64,
    pub(super) uid: u64,
    pub(super) port_space: u16,
    pub(super) step: Step,
    pub(super) own: Option<SocketAddr>,
    pub(super) to: Option<SocketAddr>,
    /// Whether its address came from a program: a key of the bound ports.
    pub(super) is_bound: bool,
    pub(super) peer: Option<Peer>,
    /// The peer's offer, as this side reads it.
    pub(super) theirs: Offer,
    /// The client's, once it was admitted.
    pub(super) admission: Option<Admission>,
    /// Events that its program has taken.
    pub(super) reported: u32,
    /// Of a membership: the identifier that joined the group.
    pub(super) joined_by: Option<u32>,
}

impl Identifier {
    pub(super) fn is_for_datagrams(&self) -> bool {
        self.port_space == UDP
    }

    /// Rejections of datagrams are told as unreachable peers (`cma_sidr_rep_handler`).
    pub(super) fn refusal(&self, of_connection: i32, of_datagrams: i32) -> (Kind, i32) {
        if self.is_for_datagrams() { (Kind::Unreachable, of_datagrams) } else { (Kind::Rejected, of_connection) }
    }
}

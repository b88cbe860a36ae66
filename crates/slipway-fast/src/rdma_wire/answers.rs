//! Answers and events for librdmacm.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;

use super::written;
use slipway_verbs::management::{OFFER, Offer};

/// Events (`enum rdma_cm_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum Kind {
    AddressResolved = 0,
    AddressError = 1,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectResponse = 5,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    JoinedGroup = 12,
}

/// An event for a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// The identifier that it is about, as the program knows it.
    pub(crate) uid: u64,
    /// The number of the identifier; of a request, that of the new one.
    pub(crate) id: u32,
    pub(crate) kind: Kind,
    /// 0, an error number below 0, or the reason of a rejection.
    pub(crate) status: i32,
    pub(crate) offer: Offer,
    /// Of an identifier for datagrams: the address that they go to.
    pub(crate) datagrams_to: Option<IpAddr>,
}

/// Bytes of `struct rdma_ucm_event_resp`.
const EVENT: usize = 336;

impl Event {
    /// The event as a program reads it (`struct rdma_ucm_event_resp`).
    pub(crate) fn write(&self) -> [u8; EVENT] {
        let mut bytes = [0; EVENT];
        bytes[..8].copy_from_slice(&self.uid.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.id.to_ne_bytes());
        bytes[12..16].copy_from_slice(&(self.kind as u32).to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.status.to_ne_bytes());
        match self.datagrams_to {
            None => bytes[20..20 + OFFER].copy_from_slice(&self.offer.write()),
            Some(peer) => bytes[20..20 + DATAGRAMS].copy_from_slice(&datagrams(&self.offer, peer)),
        }
        bytes
    }
}

/// Bytes of `struct rdma_ucm_ud_param`.
const DATAGRAMS: usize = 304;

/// `struct rdma_ucm_ud_param`: where datagrams go, and the offer's queue pair, key and private data.
fn datagrams(offer: &Offer, peer: IpAddr) -> [u8; DATAGRAMS] {
    let mut bytes = [0; DATAGRAMS];
    bytes[..4].copy_from_slice(&offer.queue_pair.to_ne_bytes());
    bytes[4..8].copy_from_slice(&offer.qkey.to_ne_bytes());
    bytes[8..40].copy_from_slice(&way(peer, 0));
    let private = &offer.private[..offer.private.len().min(255)];
    bytes[40..40 + private.len()].copy_from_slice(private);
    bytes[296] = u8::try_from(private.len()).unwrap_or(u8::MAX);
    bytes
}

/// `struct ib_uverbs_ah_attr`: the way to an address, from the port's identifier with this index.
fn way(to: IpAddr, own_index: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&gid(to));
    (bytes[20], bytes[21]) = (own_index, HOPS);
    // It has a global route.
    (bytes[29], bytes[30]) = (1, PORT);
    bytes
}

/// The address as a port's identifier: an IPv4 one is mapped into IPv6.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The number of a node's device among those of its lab (`node_guid`): 24 bits of it are the node's.
#[must_use]
pub fn guid(node: NodeId) -> [u8; 8] {
    let [.., a, b, c] = node.index().to_be_bytes();
    [0x02, 0x53, 0x4c, 0xff, 0xfe, a, b, c]
}

/// The two ends of a route, and the device that it begins at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) from: Option<SocketAddr>,
    pub(crate) to: Option<SocketAddr>,
    /// The device's number, as sysfs gives it; `None` where no device is chosen yet.
    pub(crate) guid: Option<[u8; 8]>,
    pub(crate) is_resolved: bool,
}

impl Route {
    /// `struct rdma_ucm_query_route_resp`.
    pub(crate) fn write(&self) -> [u8; 208] {
        let mut bytes = [0; 208];
        bytes[..8].copy_from_slice(&self.guid.unwrap_or_default());
        let gid_of = |end: Option<SocketAddr>| end.map_or([0; 16], |end| gid(end.ip()));
        // `struct ib_user_path_rec`.
        let path = &mut bytes[8..72];
        path[..16].copy_from_slice(&gid_of(self.to));
        path[16..32].copy_from_slice(&gid_of(self.from));
        path[44..48].copy_from_slice(&1_u32.to_ne_bytes());
        path[48..52].copy_from_slice(&MTU_4096.to_ne_bytes());
        path[52..54].copy_from_slice(&[0xff, 0xff]);
        path[54] = HOPS;
        for (at, end) in [(136, self.from), (164, self.to)] {
            if let Some(end) = end {
                bytes[at..at + 28].copy_from_slice(&written(end));
            }
        }
        bytes[192..196].copy_from_slice(&u32::from(self.is_resolved).to_ne_bytes());
        bytes[196] = PORT;
        bytes
    }
}

/// A device has one port.
const PORT: u8 = 1;
/// `IB_MTU_4096` (`enum ib_mtu`).
const MTU_4096: u32 = 5;
/// Hops of a packet at most (`struct ib_global_route`).
const HOPS: u8 = 64;

/// The attributes of a connected queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) peer: IpAddr,
    pub(crate) peer_queue_pair: u32,
    /// Index of the program's own address among its port's.
    pub(crate) own_index: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// The queue pair is one for datagrams.
    pub(crate) is_for_datagrams: bool,
}

/// The key of queue pairs for datagrams whose programs name none (`RDMA_UDP_QKEY`, `include/rdma/rdma_cm.h`).
pub(crate) const USUAL_KEY: u32 = 0x0123_4567;

impl Attributes {
    /// `struct ib_uverbs_qp_attr`, for the transition to a state (`cm_init_qp_attr`, `drivers/infiniband/core/cm.c`). `None` for a
    /// state that connection management leads no queue pair to.
    pub(crate) fn write(&self, state: u32) -> Option<[u8; 144]> {
        // `enum ib_qp_state` and `enum ib_qp_attr_mask`.
        const INIT: u32 = 1;
        const READY_TO_RECEIVE: u32 = 2;
        const READY_TO_SEND: u32 = 3;
        const OF_INIT: u32 = 1 | 1 << 3 | 1 << 4 | 1 << 5;
        const OF_RECEIVE: u32 = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
        const OF_SEND: u32 = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;
        /// `IB_ACCESS_REMOTE_WRITE`, `IB_ACCESS_REMOTE_READ`, `IB_ACCESS_REMOTE_ATOMIC`.
        const REMOTE: u32 = 2 | 4 | 8;
        // `cma_ib_init_qp_attr` and `IB_QP_QKEY`: datagrams have no other step.
        const OF_DATAGRAMS: u32 = 1 | 1 << 4 | 1 << 5 | 1 << 6;
        let mask = match state {
            INIT if self.is_for_datagrams => OF_DATAGRAMS,
            _ if self.is_for_datagrams => return None,
            INIT => OF_INIT,
            READY_TO_RECEIVE => OF_RECEIVE,
            READY_TO_SEND => OF_SEND,
            _ => return None,
        };
        let mut bytes = [0; 144];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        put(0, mask);
        put(4, state);
        put(12, MTU_4096);
        put(20, if self.is_for_datagrams { USUAL_KEY } else { 0 });
        put(32, self.peer_queue_pair);
        put(36, REMOTE);
        bytes[40..72].copy_from_slice(&way(self.peer, self.own_index));
        bytes[130] = self.initiator_depth;
        bytes[131] = self.responder_resources;
        // The kernel's choice for an RNR timer, and a usual one for acknowledgements (4.096 µs × 2^14).
        (bytes[132], bytes[133], bytes[134]) = (0, PORT, 14);
        (bytes[135], bytes[136]) = (self.retry_count, self.rnr_retry_count);
        Some(bytes)
    }
}

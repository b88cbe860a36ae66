//! Commands and answers of RDMA's control interfaces, as programs write and read them: parsed from a copy, each length checked.
//!
//! Layouts are those of `include/uapi/rdma/rdma_user_cm.h`, `ib_user_verbs.h` and `rdma_user_ioctl_cmds.h`. All numbers are in the
//! processor's order, but for addresses and ports.

use std::net::{IpAddr, SocketAddr};

use slipway_lab::id::NodeId;

use crate::address::{self, Address};

/// Bytes of `struct ib_uverbs_ioctl_hdr`, without attributes.
pub(crate) const HEADER: usize = 24;
/// Bytes of `struct ib_uverbs_attr`.
const ATTRIBUTE: usize = 16;
/// Longest control command, in bytes: a page, as in the kernel (`ib_uverbs_ioctl`).
pub(crate) const LONGEST_CONTROL: usize = 4096;

/// Bytes of `struct rdma_ucm_cmd_hdr`.
pub(crate) const COMMAND: usize = 8;
/// Longest command of connection management, in bytes with its header: `struct rdma_ucm_join_mcast` or an accept.
pub(crate) const LONGEST_COMMAND: usize = 512;
/// Bytes of private data in a request of connection, and in its acceptance and rejection (`ib_cm.h`); 36 bytes of a request are the
/// kernel's own.
pub(crate) const IN_REQUEST: usize = 56;
pub(crate) const IN_REPLY: usize = 196;
pub(crate) const IN_REJECTION: usize = 148;

/// A control command of libibverbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// A command without an answer, which only asks whether commands work.
    Probe,
    /// `ibv_create_comp_channel(3)`.
    CreateCompletionChannel {
        /// Address of the descriptor's number, an `u32`.
        answer_at: u64,
    },
    /// `ibv_query_gid_ex(3)`.
    QueryGidEntry,
}

impl Control {
    /// Parses a command. `None` for others, and for what is no command.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        const DEVICE: u16 = 0;
        const INVOKE_WRITE: u16 = 0;
        const QUERY_GID_ENTRY: u16 = 6;
        const CORE_OUT: u16 = 1;
        const WRITE_CMD: u16 = 2;
        // IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL (`ib_user_verbs.h`).
        const CREATE_COMP_CHANNEL: u64 = 17;
        let [object, method, count] = [2, 4, 6].map(|at| u16_at(bytes, at));
        if object? != DEVICE {
            return None;
        }
        let attribute = |index: u16| {
            let at = HEADER + usize::from(index) * ATTRIBUTE;
            Some((u16_at(bytes, at)?, u16_at(bytes, at + 2)?, u64_at(bytes, at + 8)?))
        };
        let of = |id: u16| (0..count?).filter_map(attribute).find(|(found, ..)| *found == id);
        match method? {
            INVOKE_WRITE => match (of(WRITE_CMD)?.2, of(CORE_OUT)) {
                (CREATE_COMP_CHANNEL, Some((_, length, at))) if length >= 4 => {
                    Some(Self::CreateCompletionChannel { answer_at: at })
                }
                (_, None) => Some(Self::Probe),
                _ => None,
            },
            QUERY_GID_ENTRY => Some(Self::QueryGidEntry),
            _ => None,
        }
    }
}

/// The offer of one side of a connection (`struct rdma_ucm_conn_param`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offer {
    pub(crate) queue_pair: u32,
    pub(crate) qkey: u32,
    /// At most 255 bytes.
    pub(crate) private: Vec<u8>,
    pub(crate) shared_receive_queue: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// Whether the connection has parameters.
    pub(crate) is_valid: bool,
}

/// Bytes of an offer.
const OFFER: usize = 272;

impl Offer {
    fn read(bytes: &[u8]) -> Option<Self> {
        let rest: [u8; 8] = *bytes.get(264..)?.first_chunk()?;
        let [length, shared_receive_queue, responder_resources, initiator_depth, ..] = rest;
        let [.., flow_control, retry_count, rnr_retry_count, valid] = rest;
        Some(Self {
            queue_pair: u32_at(bytes, 0)?,
            qkey: u32_at(bytes, 4)?,
            private: bytes.get(8..8 + usize::from(length))?.to_vec(),
            shared_receive_queue,
            responder_resources,
            initiator_depth,
            flow_control,
            retry_count,
            rnr_retry_count,
            is_valid: valid != 0,
        })
    }

    fn write(&self) -> [u8; OFFER] {
        let mut bytes = [0; OFFER];
        bytes[..4].copy_from_slice(&self.queue_pair.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.qkey.to_ne_bytes());
        let private = &self.private[..self.private.len().min(255)];
        bytes[8..8 + private.len()].copy_from_slice(private);
        let length = u8::try_from(private.len()).unwrap_or(u8::MAX);
        bytes[264..272].copy_from_slice(&[
            length,
            self.shared_receive_queue,
            self.responder_resources,
            self.initiator_depth,
            self.flow_control,
            self.retry_count,
            self.rnr_retry_count,
            u8::from(self.is_valid),
        ]);
        bytes
    }

    /// This offer as the other side reads it. The resources of one side are the depth of the other. Private data fill `room`
    /// bytes, with zeros behind them.
    pub(crate) fn seen(&self, room: usize) -> Self {
        let mut seen = self.clone();
        seen.private.resize(room, 0);
        (seen.responder_resources, seen.initiator_depth) = (self.initiator_depth, self.responder_resources);
        seen
    }
}

/// A command of librdmacm to its device. `id` is a connection identifier by the number that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Makes an identifier, which the program knows as `uid`. Its number goes to `answer_at`.
    CreateId { uid: u64, answer_at: u64, port_space: u16 },
    /// Ends an identifier. The number of events that it has reported goes to `answer_at`.
    DestroyId { id: u32, answer_at: u64 },
    /// Gives it an address.
    Bind { id: u32, address: Option<SocketAddr> },
    /// Looks for the way to an address, from one of its own or any.
    ResolveAddress { id: u32, from: Option<SocketAddr>, to: Option<SocketAddr> },
    /// Looks for the route to it.
    ResolveRoute { id: u32 },
    /// Tells of both addresses and the route.
    QueryRoute { id: u32, answer_at: u64 },
    /// Asks for a connection.
    Connect { id: u32, offer: Offer },
    /// Waits for connections.
    Listen { id: u32, backlog: u32 },
    /// Accepts a connection, or acknowledges its acceptance.
    Accept { id: u32, uid: u64, offer: Offer },
    /// Rejects a connection.
    Reject { id: u32, private: Vec<u8> },
    /// Ends a connection.
    Disconnect { id: u32 },
    /// Asks for the attributes of its queue pair in a state.
    InitAttributes { id: u32, state: u32, answer_at: u64 },
    /// Takes the next event, which goes to `answer_at`.
    GetEvent { answer_at: u64, room: usize },
    /// Moves an identifier here from another channel, and tells as [`DestroyId`](Self::DestroyId).
    Migrate { id: u32, from: i32, answer_at: u64 },
    /// Settings and news that change nothing here.
    Nothing,
    /// Commands that are not offered.
    Unknown,
}

impl Command {
    /// Parses a command with its header. `None` for what is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, length, room) = (u32_at(bytes, 0)?, u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let body = bytes.get(COMMAND..COMMAND + usize::from(length))?;
        let at = |at| u32_at(body, at);
        Some(match number {
            0 => Self::CreateId { uid: u64_at(body, 0)?, answer_at: u64_at(body, 8)?, port_space: u16_at(body, 16)? },
            1 => Self::DestroyId { answer_at: u64_at(body, 0)?, id: at(8)? },
            // Its first member is unused.
            2 => Self::Bind { address: ip(body.get(8..36)?), id: at(36)? },
            3 => Self::ResolveAddress { from: ip(body.get(..28)?), to: ip(body.get(28..56)?), id: at(56)? },
            4 => Self::ResolveRoute { id: at(0)? },
            5 => Self::QueryRoute { answer_at: u64_at(body, 0)?, id: at(8)? },
            6 => Self::Connect { offer: Offer::read(body.get(..OFFER)?)?, id: at(OFFER)? },
            7 => Self::Listen { id: at(0)?, backlog: at(4)? },
            8 => Self::Accept { uid: u64_at(body, 0)?, offer: Offer::read(body.get(8..280)?)?, id: at(280)? },
            9 => {
                let length = usize::from(*body.get(4)?);
                Self::Reject { id: at(0)?, private: body.get(8..8 + length)?.to_vec() }
            }
            10 => Self::Disconnect { id: at(0)? },
            11 => Self::InitAttributes { answer_at: u64_at(body, 0)?, id: at(8)?, state: at(12)? },
            12 => Self::GetEvent { answer_at: u64_at(body, 0)?, room: usize::from(room) },
            // Options, and news of a first message.
            14 | 15 => Self::Nothing,
            18 => Self::Migrate { answer_at: u64_at(body, 0)?, id: at(8)?, from: at(12)?.cast_signed() },
            // BIND and RESOLVE_ADDR are for addresses of InfiniBand too. librdmacm tries one of those, and takes the commands for IP
            // where that is refused (`ucma_set_af_ib_support`).
            _ => Self::Unknown,
        })
    }
}

/// Events (`enum rdma_cm_event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// An event for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The identifier that it is about, as the program knows it.
    pub(crate) uid: u64,
    /// The number of the identifier; of a request, that of the new one.
    pub(crate) id: u32,
    pub(crate) kind: Kind,
    /// 0, an error number below 0, or the reason of a rejection.
    pub(crate) status: i32,
    pub(crate) offer: Offer,
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
        bytes[20..20 + OFFER].copy_from_slice(&self.offer.write());
        bytes
    }
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

/// `struct sockaddr_in6`, with room for either family.
fn written(address: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let own = address::write(address);
    let length = own.len().min(bytes.len());
    bytes[..length].copy_from_slice(&own[..length]);
    bytes
}

fn ip(bytes: &[u8]) -> Option<SocketAddr> {
    match Address::read(bytes) {
        Address::Ip(address) => Some(address),
        Address::Unspecified | Address::Other => None,
    }
}

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
}

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
        let mask = match state {
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
        put(32, self.peer_queue_pair);
        put(36, REMOTE);
        // `struct ib_uverbs_ah_attr`.
        bytes[40..56].copy_from_slice(&gid(self.peer));
        bytes[60] = self.own_index;
        bytes[61] = HOPS;
        bytes[69] = 1;
        bytes[70] = PORT;
        bytes[130] = self.initiator_depth;
        bytes[131] = self.responder_resources;
        // The kernel's choice for an RNR timer, and a usual one for acknowledgements (4.096 µs × 2^14).
        (bytes[132], bytes[133], bytes[134]) = (0, PORT, 14);
        (bytes[135], bytes[136]) = (self.retry_count, self.rnr_retry_count);
        Some(bytes)
    }
}

/// Whether bytes are a command of libibverbs or librdmacm, which any program in a node may write.
#[must_use]
pub fn is_command(bytes: &[u8]) -> bool {
    Control::read(bytes).is_some() || Command::read(bytes).is_some()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn control(method: u16, attributes: &[(u16, u16, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&method.to_ne_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(attributes.len()).expect("few").to_ne_bytes());
        for (id, length, data) in attributes {
            bytes.extend([id.to_ne_bytes(), length.to_ne_bytes(), [0; 2], [0; 2]].concat());
            bytes.extend(data.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn libibverbs_commands_are_known() {
        assert_eq!(Control::read(&control(0, &[(2, 8, 1)])), Some(Control::Probe));
        let create = control(0, &[(0, 8, 5), (1, 4, 77), (2, 8, 17)]);
        assert_eq!(Control::read(&create), Some(Control::CreateCompletionChannel { answer_at: 77 }));
        assert_eq!(Control::read(&control(6, &[])), Some(Control::QueryGidEntry));
        assert_eq!(Control::read(&control(3, &[])), None);
    }

    #[test]
    fn an_offer_is_read_as_it_was_written_and_the_other_side_sees_it_turned() {
        let offer = Offer {
            queue_pair: 7,
            private: vec![1, 2],
            responder_resources: 3,
            initiator_depth: 4,
            ..Offer::default()
        };
        assert_eq!(Offer::read(&offer.write()), Some(offer.clone()));
        let seen = offer.seen(IN_REQUEST);
        assert_eq!((seen.responder_resources, seen.initiator_depth, seen.private.len()), (4, 3, 56));
    }

    fn command(number: u32, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("short");
        [&number.to_ne_bytes()[..], &length.to_ne_bytes(), &[0; 2], body].concat()
    }

    #[test]
    fn commands_of_ip_are_known_and_those_of_infiniband_are_not() {
        let mut body = vec![0; 40];
        body[8..36].copy_from_slice(&written("10.64.0.1:7".parse().expect("an address")));
        body[36] = 9;
        let address = Some("10.64.0.1:7".parse().expect("an address"));
        assert_eq!(Command::read(&command(2, &body)), Some(Command::Bind { id: 9, address }));
        assert_eq!(Command::read(&command(20, &[0; 136])), Some(Command::Unknown));
        assert_eq!(Command::read(&command(2, &body[..39])), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes: Vec<u8>, number in 0..30_u32) {
            let _ = Control::read(&bytes);
            let _ = Command::read(&bytes);
            let _ = Command::read(&command(number, &bytes));
        }
    }
}

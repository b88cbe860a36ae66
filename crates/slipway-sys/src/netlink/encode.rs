//! Requests as rtnetlink messages.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgeStpState, In6AddrGenMode, InfoBridge, InfoBridgePort, InfoData, InfoKind,
    InfoMacVlan, InfoPortData, InfoPortKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    MacVlanMode,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::request::{
    AddrGenMode, BridgePort, Forward, Macvlan, MacvlanMode, NewLink, Peer, Request, Rule, SetLink, Veth, Vxlan,
};
use super::{Mac, tc};

/// Making a device fails where one exists: what is there was not made by us.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// Addresses, routes and neighbours are put in place whatever was there, so that a node can be configured again.
const PUT: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// The message, and the netlink flags that go with it.
pub(super) fn encode(request: &Request<'_>) -> (RouteNetlinkMessage, u16) {
    match request {
        Request::AddVeth(veth) => (RouteNetlinkMessage::NewLink(add_veth(veth)), NEW),
        Request::AddBridge(bridge) => (RouteNetlinkMessage::NewLink(add_bridge(&bridge.link)), NEW),
        Request::AddVxlan(vxlan) => (RouteNetlinkMessage::NewLink(add_vxlan(vxlan)), NEW),
        Request::AddMacvlan(macvlan) => (RouteNetlinkMessage::NewLink(add_macvlan(macvlan)), NEW),
        Request::AddIfb(link) => (RouteNetlinkMessage::NewLink(add_ifb(link)), NEW),
        Request::SetLink(set) => (RouteNetlinkMessage::SetLink(set_link(set)), 0),
        Request::SetBridgePort(port) => (RouteNetlinkMessage::NewLink(set_port(port)), 0),
        Request::DeleteLink(index) => (RouteNetlinkMessage::DelLink(link_at(*index)), 0),
        Request::AddAddress { index, address, prefix, subnet_route } => {
            (RouteNetlinkMessage::NewAddress(address_of(*index, *address, *prefix, *subnet_route)), PUT)
        }
        Request::AddRoute { to, prefix, via, index, source } => {
            (RouteNetlinkMessage::NewRoute(route(*to, *prefix, *via, *index, *source)), PUT)
        }
        Request::AddOwnRoute { table, to, via, source } => {
            (RouteNetlinkMessage::NewRoute(own_route(*table, *to, *via, *source)), PUT)
        }
        Request::AddRule(of) => (RouteNetlinkMessage::NewRule(rule(*of)), NLM_F_CREATE),
        Request::DeleteRule(of) => (RouteNetlinkMessage::DelRule(rule(*of)), 0),
        Request::AddNeighbour { index, address, mac } => {
            (RouteNetlinkMessage::NewNeighbour(neighbour(*index, *address, *mac)), PUT)
        }
        Request::NumberNet { net, number } => (RouteNetlinkMessage::NewNsId(net_number(*net, *number)), 0),
        // A vxlan device holds several targets for the all-zero address: one entry each, so not exclusive.
        Request::AddForwarding { index, mac, to } => {
            let flags = if matches!(to, Forward::Remote(_)) { NLM_F_CREATE | NLM_F_APPEND } else { PUT };
            (RouteNetlinkMessage::NewNeighbour(forwarding(*index, *mac, *to)), flags)
        }
        Request::DeleteForwarding { index, mac, to } => {
            (RouteNetlinkMessage::DelNeighbour(forwarding(*index, *mac, *to)), 0)
        }
        Request::AddClsact(index) => (RouteNetlinkMessage::NewQueueDiscipline(tc::add_places(*index, "clsact")), NEW),
        Request::AddIngress(index) => (RouteNetlinkMessage::NewQueueDiscipline(tc::add_places(*index, "ingress")), NEW),
        Request::DeleteClsact(index) => (RouteNetlinkMessage::DelQueueDiscipline(tc::delete_clsact(*index)), 0),
        // Not exclusive: the filter's handle is fixed, so a new program takes the old one's place.
        Request::AddBpfFilter(filter) => {
            (RouteNetlinkMessage::NewTrafficFilter(tc::clsact_filter(filter)), NLM_F_CREATE)
        }
        Request::ReplaceQdisc(replace) => (RouteNetlinkMessage::NewQueueDiscipline(tc::replace_qdisc(replace)), PUT),
        Request::DeleteQdisc { index, parent } => {
            (RouteNetlinkMessage::DelQueueDiscipline(tc::delete_qdisc(*index, *parent)), 0)
        }
    }
}

fn net_number(net: BorrowedFd<'_>, number: i32) -> NsidMessage {
    let mut message = NsidMessage::default();
    message.attributes = vec![NsidAttribute::Fd(net.as_raw_fd().cast_unsigned()), NsidAttribute::Id(number)];
    message
}

fn link_at(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn set_up(message: &mut LinkMessage, up: bool) {
    message.header.change_mask |= LinkFlags::Up;
    message.header.flags.set(LinkFlags::Up, up);
}

/// The part that devices of every kind share.
fn new_link(link: &NewLink) -> LinkMessage {
    let mut message = link_at(link.index.unwrap_or(0));
    if link.up {
        set_up(&mut message, true);
    }
    message.attributes.push(LinkAttribute::IfName(link.name.clone()));
    message.attributes.extend(link.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    message.attributes.extend(link.mtu.map(LinkAttribute::Mtu));
    message.attributes.extend(link.master.map(LinkAttribute::Controller));
    message
}

fn in_net(message: &mut LinkMessage, net: Option<BorrowedFd<'_>>) {
    message.attributes.extend(net.map(|net| LinkAttribute::NetNsFd(net.as_raw_fd())));
}

fn with_info(mut message: LinkMessage, kind: InfoKind, data: InfoData) -> LinkMessage {
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]));
    message
}

fn add_veth(veth: &Veth<'_>) -> LinkMessage {
    let Peer { name, index, mac, mtu, net: _ } = veth.peer.clone();
    let mut peer = new_link(&NewLink { name, index, mac, mtu, ..NewLink::default() });
    in_net(&mut peer, veth.peer.net);
    with_info(new_link(&veth.link), InfoKind::Veth, InfoData::Veth(InfoVeth::Peer(peer)))
}

// VLAN filtering is off unless asked for; naming it fails on kernels built without it.
fn add_bridge(link: &NewLink) -> LinkMessage {
    let data = vec![
        InfoBridge::StpState(BridgeStpState::Disabled),
        InfoBridge::ForwardDelay(0),
        InfoBridge::MulticastSnooping(false),
    ];
    with_info(new_link(link), InfoKind::Bridge, InfoData::Bridge(data))
}

fn add_vxlan(vxlan: &Vxlan<'_>) -> LinkMessage {
    let data = vec![
        InfoVxlan::Id(vxlan.vni),
        match vxlan.local {
            IpAddr::V4(local) => InfoVxlan::Local(local),
            IpAddr::V6(local) => InfoVxlan::Local6(local),
        },
        InfoVxlan::Port(vxlan.port),
        InfoVxlan::Link(vxlan.lower),
        InfoVxlan::Learning(false),
    ];
    let mut message = new_link(&vxlan.link);
    in_net(&mut message, vxlan.net);
    with_info(message, InfoKind::Vxlan, InfoData::Vxlan(data))
}

fn add_macvlan(macvlan: &Macvlan<'_>) -> LinkMessage {
    let mut message = new_link(&macvlan.link);
    message.attributes.push(LinkAttribute::Link(macvlan.parent));
    in_net(&mut message, macvlan.net);
    let mode = match macvlan.mode {
        MacvlanMode::Bridge => MacVlanMode::Bridge,
        MacvlanMode::Private => MacVlanMode::Private,
        MacvlanMode::Vepa => MacVlanMode::Vepa,
    };
    with_info(message, InfoKind::MacVlan, InfoData::MacVlan(vec![InfoMacVlan::Mode(mode)]))
}

fn add_ifb(link: &NewLink) -> LinkMessage {
    let mut message = new_link(link);
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]));
    message
}

fn set_link(set: &SetLink<'_>) -> LinkMessage {
    let mut message = link_at(set.index);
    if let Some(up) = set.up {
        set_up(&mut message, up);
    }
    message.attributes.extend(set.name.clone().map(LinkAttribute::IfName));
    message.attributes.extend(set.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    message.attributes.extend(set.mtu.map(LinkAttribute::Mtu));
    message.attributes.extend(set.master.map(LinkAttribute::Controller));
    message.attributes.extend(set.gso_max_segs.map(LinkAttribute::GsoMaxSegs));
    message.attributes.extend(set.tx_queue_len.map(LinkAttribute::TxQueueLen));
    if let Some(mode) = set.addr_gen_mode {
        let mode = match mode {
            AddrGenMode::Eui64 => In6AddrGenMode::Eui64,
            AddrGenMode::None => In6AddrGenMode::None,
        };
        message
            .attributes
            .push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(mode)])]));
    }
    in_net(&mut message, set.net);
    message
}

fn set_port(port: &BridgePort) -> LinkMessage {
    let mut message = link_at(port.index);
    let data = [
        port.learning.map(InfoBridgePort::Learning),
        port.isolated.map(InfoBridgePort::Isolated),
        port.flood.map(InfoBridgePort::UnicastFlood),
        port.locked.map(InfoBridgePort::Locked),
        port.answer_arp.map(InfoBridgePort::ProxyARPWifi),
        port.neigh_suppress.map(InfoBridgePort::NeighSupress),
    ];
    let data = InfoPortData::BridgePort(data.into_iter().flatten().collect());
    message
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(data)]));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address_of(index: u32, address: IpAddr, prefix: u8, subnet_route: bool) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix;
    message.header.index = index;
    let mut flags = AddressFlags::Nodad;
    flags.set(AddressFlags::Noprefixroute, !subnet_route);
    message.attributes =
        vec![AddressAttribute::Local(address), AddressAttribute::Address(address), AddressAttribute::Flags(flags)];
    if let (IpAddr::V4(address), 1..=30) = (address, prefix) {
        message.attributes.push(AddressAttribute::Broadcast((u32::from(address) | (u32::MAX >> prefix)).into()));
    }
    message
}

fn route(to: IpAddr, prefix: u8, via: Option<IpAddr>, index: Option<u32>, source: Option<IpAddr>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.destination_prefix_length = prefix;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = if via.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Destination(to.into()));
    message.attributes.extend(via.map(|via| RouteAttribute::Gateway(via.into())));
    message.attributes.extend(index.map(RouteAttribute::Oif));
    message.attributes.extend(source.map(|source| RouteAttribute::PrefSource(source.into())));
    message
}

fn own_route(table: u32, to: IpAddr, via: Option<IpAddr>, source: IpAddr) -> RouteMessage {
    /// The loopback device's index in every namespace.
    const LOOPBACK: u32 = 1;
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let index = via.is_none().then_some(LOOPBACK);
    let mut message = route(to, bits, via, index, Some(source));
    if via.is_none() {
        message.header.kind = RouteType::Local;
        message.header.scope = RouteScope::Host;
    }
    // Larger numbers than a byte's are in the attribute alone.
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.push(RouteAttribute::Table(table));
    message
}

fn rule(of: Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if of.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes = vec![RuleAttribute::Priority(of.priority), RuleAttribute::Table(of.table)];
    message.attributes.extend(of.mark.map(RuleAttribute::FwMark));
    message
}

fn neighbour(index: u32, address: IpAddr, mac: Mac) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    message.attributes =
        vec![NeighbourAttribute::Destination(address.into()), NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
    message
}

fn forwarding(index: u32, mac: Mac, to: Forward) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    match to {
        // `static extern_learn`, in the words of `bridge(8)`: does not age, and is no address of the bridge's own. The kernel
        // goes through all ports for a static entry that is not extern_learn (`fdb_add_hw_addr`, net/bridge/br_fdb.c).
        Forward::Port => {
            message.header.state = NeighbourState::Noarp;
            message.header.flags = NeighbourFlags::Controller | NeighbourFlags::ExtLearned;
        }
        Forward::Remote(address) => {
            message.header.state = NeighbourState::Permanent;
            message.header.flags = NeighbourFlags::Own;
            message.attributes.push(NeighbourAttribute::Destination(address.into()));
        }
    }
    message
}

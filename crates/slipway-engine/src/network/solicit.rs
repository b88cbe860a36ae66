//! Neighbour solicitations (RFC 4861) to the one node that they are about, on networks too large for every node to know
//! every other.
//!
//! A solicitation is a multicast that every port of a bridge gets, though one node answers. A bridge can answer ARP for
//! the nodes (`proxy_arp_wifi`), but not this. Its counterpart for IPv6 (`neigh_suppress`) answers no port that has the
//! option, and only for targets behind ports that have it (the kernel's `br_do_suppress_nd`). So a program on the
//! host's end of each node's interface, before the bridge, replaces the multicast Ethernet address by the target's. The
//! bridge then forwards the solicitation as it does any frame. The target answers by itself.

use std::os::fd::AsFd as _;

use slipway_lab::id::NetworkId;
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::bpf::{LoadError, Map, MapKind, Object, Program};
use slipway_sys::netlink::{BpfFilter, Bridge, Direction, NewLink, Request};

use super::device::try_in_scratch;
use super::driver::members;

/// Shows in `bpftool prog`, `bpftool map` and `tc filter`.
const NAME: &str = "slipway_ns";
static OBJECT: Object = Object::new(NAME, include_bytes!("../../bpf/solicit.bpf.o"));
/// Bytes of an IPv6 address, and of an Ethernet address.
const ADDRESS: usize = 16;
const MAC: usize = 6;

/// The program for a network's ports.
#[derive(Debug)]
pub(super) struct Solicit(Program);

impl Solicit {
    /// Loads the program with the addresses of all members. `None` where this kernel, or this user namespace, has no such
    /// programs: solicitations are then multicast, as anywhere.
    pub(super) fn of(lab: &Lab, network: NetworkId) -> Option<Self> {
        let solicit = Self::load(lab, network).ok()?;
        let link = NewLink { name: "bridge".to_owned(), index: Some(100), ..NewLink::default() };
        let trial = [Request::AddBridge(Bridge { link }), Request::AddClsact(100), solicit.on(100)];
        try_in_scratch(DriverKind::Bridge, "cls_bpf", &trial).ok()?;
        Some(solicit)
    }

    fn load(lab: &Lab, network: NetworkId) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Refused { name: NAME.to_owned(), error, log: String::new() };
        let known: Vec<_> = members(lab, network).filter_map(|(.., one)| Some((one.ipv6?, one.mac))).collect();
        let entries = u32::try_from(known.len().max(1)).unwrap_or(u32::MAX);
        let macs = Map::create(MapKind::Hash, NAME, ADDRESS, MAC, entries).map_err(refused)?;
        known.iter().try_for_each(|(address, mac)| macs.update(&address.octets(), mac)).map_err(refused)?;
        // The program keeps the map.
        OBJECT.with(&[], &[("macs", macs.as_fd())])?.load("solicit").map(Self)
    }

    /// Puts the program on what comes in by a device that has a clsact, behind what may drop it.
    pub(super) fn on(&self, index: u32) -> Request<'_> {
        let (direction, order) = (Direction::Ingress, 4);
        Request::AddBpfFilter(BpfFilter { index, direction, order, program: self.0.as_fd(), name: NAME })
    }
}

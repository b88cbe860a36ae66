//! The addresses and ports of identifiers, and what follows from them.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use slipway_lab::id::NodeId;

use super::{Connections, Step};
use crate::rdma_wire::{Attributes, Route, guid};

/// Ports that are given out where a program asks for any (`net.ipv4.ip_local_port_range`).
pub(super) const ANY: std::ops::RangeInclusive<u16> = 32768..=60999;

/// Whether an address stands for any of a node's own (`cma_any_addr`, `drivers/infiniband/core/cma.c`).
pub(super) fn is_any(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback()
}

impl Connections {
    /// Gives an identifier an address. All port spaces of a node share one table of ports.
    pub(in super::super) fn bind(&mut self, id: u32, address: SocketAddr) -> Result<(), Errno> {
        let one = self.at(id, &[Step::New])?;
        let node = one.node;
        if one.own.is_some() {
            return Err(Errno::INVAL);
        }
        let ip = address.ip();
        if !is_any(ip) && self.address_map.of(ip).is_none_or(|place| place.node != node) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        self.take_port(id, node, address)
    }

    pub(super) fn take_port(&mut self, id: u32, node: NodeId, address: SocketAddr) -> Result<(), Errno> {
        let port = match address.port() {
            0 => self.free_port(node).ok_or(Errno::ADDRNOTAVAIL)?,
            port if self.ports.contains_key(&(node, port)) => return Err(Errno::ADDRINUSE),
            port => port,
        };
        let one = self.all.get_mut(id).ok_or(Errno::NOENT)?;
        self.ports.insert((node, port), id);
        (one.own, one.is_bound) = (Some(SocketAddr::new(address.ip(), port)), true);
        Ok(())
    }

    fn free_port(&mut self, node: NodeId) -> Option<u16> {
        for _ in ANY {
            let port = self.next_port;
            self.next_port = if port == *ANY.end() { *ANY.start() } else { port + 1 };
            if !self.ports.contains_key(&(node, port)) {
                return Some(port);
            }
        }
        None
    }

    /// Looks for an address. The inner error is the event's.
    pub(in super::super) fn resolve(
        &mut self,
        id: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<Result<(), Errno>, Errno> {
        let one = self.at(id, &[Step::New])?;
        let (node, own) = (one.node, one.own);
        let near = if to.ip().is_multicast() {
            // Any network may have the group. Joining it is what is not offered.
            self.address_map.addresses(node).filter(|ip| ip.is_ipv6() == to.is_ipv6()).min()
        } else {
            match self.address_map.of(to.ip()) {
                Some(place) => self.address_map.address(node, place.network, to.is_ipv6()),
                // The gateway has the machine's address, and the program sees one of its node's.
                None if self.reaches_outside(node, to.ip()) => {
                    self.address_map.addresses(node).filter(IpAddr::is_ipv4).min()
                }
                None => return Ok(Err(Errno::HOSTUNREACH)),
            }
        };
        let Some(near) = near else { return Ok(Err(Errno::NETUNREACH)) };
        if own.is_none() {
            let asked = from.filter(|from| !is_any(from.ip()));
            let address = asked.unwrap_or_else(|| SocketAddr::new(near, from.map_or(0, |from| from.port())));
            if self.address_map.of(address.ip()).is_none_or(|place| place.node != node) {
                return Err(Errno::ADDRNOTAVAIL);
            }
            self.take_port(id, node, address)?;
        }
        let one = self.at(id, &[Step::New])?;
        if let Some(own) = one.own.as_mut().filter(|own| is_any(own.ip())) {
            own.set_ip(near);
        }
        (one.to, one.step) = (Some(to), Step::Resolved);
        Ok(Ok(()))
    }

    pub(in super::super) fn resolve_route(&mut self, id: u32) -> Result<(), Errno> {
        self.at(id, &[Step::Resolved])?.step = Step::Routed;
        Ok(())
    }

    pub(in super::super) fn route(&self, id: u32) -> Option<Route> {
        let one = self.all.get(id)?;
        let has_device = one.own.is_some_and(|own| !is_any(own.ip()));
        let is_resolved = !matches!(one.step, Step::New | Step::Resolved | Step::Listening);
        Some(Route { from: one.own, to: one.to, guid: has_device.then(|| guid(one.node)), is_resolved })
    }

    pub(in super::super) fn attributes(&self, id: u32) -> Option<Attributes> {
        let one = self.all.get(id)?;
        let is_for_datagrams = one.is_for_datagrams();
        let to = one.to.or(one.own.filter(|_| is_for_datagrams));
        // A queue pair is made ready for a connection from the first step on.
        Some(Attributes {
            peer: to?.ip(),
            is_for_datagrams,
            peer_queue_pair: one.theirs.queue_pair,
            own_index: 0,
            responder_resources: one.theirs.responder_resources,
            initiator_depth: one.theirs.initiator_depth,
            retry_count: 7,
            rnr_retry_count: one.theirs.rnr_retry_count.min(7),
        })
    }
}

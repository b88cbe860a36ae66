//! Interfaces that move from the switch of one host to that of another (docs/adr/0063).
//!
//! The host's end of the interface moves; the node's end stays as it is, with its addresses and conditions.

use slipway_sys::netlink::{Forward, Request, SetLink};

use super::{LEAF_PORTS, Switch, Switches, furnish};
use crate::network::driver::{Port, Relocation};
use crate::network::error::NetworkError;
use crate::network::site::Sites;

/// Ports that a bridge may have beyond [`LEAF_PORTS`], of the kernel's 1,023, less what joins it to others.
const SPARE: usize = 20;

impl Switches {
    /// Whether a host's bridges of a network, which are there, have a place for another port.
    pub(in crate::network) fn check_room(&self, way: &Relocation<'_>) -> Result<(), NetworkError> {
        let (to, network) = (way.to(), way.network());
        let has_room = |switch: &Switch| switch.place(way.port).is_some();
        if self.by_host.get(&(network, to)).is_none_or(has_room) {
            return Ok(());
        }
        let problem = format!("its bridges on {} are full", way.after.hosts[to].name);
        Err(NetworkError::impossible(&way.after.networks[network].name, problem))
    }

    /// Has a port on another host, whose bridges of the network are there and lead to the other hosts.
    pub(in crate::network) fn relocate(&mut self, way: &Relocation<'_>, sites: &mut Sites) -> Result<(), NetworkError> {
        let (from, to, network, port) = (way.from(), way.to(), way.network(), way.port);
        let of = &way.after.networks[network].name;
        let mac = way.interface().mac;
        self.check_room(way)?;
        let welcome = self.by_host.get_mut(&(network, to)).and_then(|switch| switch.welcome(port, mac));
        let Some((master, at_new)) = welcome else { return Ok(()) };
        if let Some(index) = self.ports.get(&port).copied() {
            let [here, there] = sites.two_switches(from, to);
            let index = there.take(here, index, &port.name(way.before)).map_err(NetworkError::of(of))?;
            let mut requests = vec![Request::SetLink(SetLink { index, master: Some(master), ..SetLink::default() })];
            requests.extend(furnish(self.guard.as_ref(), &self.solicits, way.after, port, index));
            there.make(Some(network), &requests).map_err(NetworkError::of(of))?;
            self.ports.insert(port, index);
        }
        sites.switches[to].netlink.run(&at_new).map_err(NetworkError::of(of))?;
        let Some(switch) = self.by_host.get_mut(&(network, from)) else { return Ok(()) };
        let at_old = switch.see_off(port, mac);
        sites.switches[from].netlink.run(&at_old).map_err(NetworkError::of(of))
    }
}

impl Switch {
    /// The bridge that a port has, or is to have: the one with most room. `None`: all are full.
    fn place(&self, port: Port) -> Option<usize> {
        let used = |place: usize| self.places.values().filter(|&&taken| taken == place).count();
        let leaves = usize::from(!self.up.is_empty())..self.bridges.len();
        let emptiest = || leaves.min_by_key(|&place| used(place)).filter(|&place| used(place) < LEAF_PORTS + SPARE);
        self.places.get(&port).copied().or_else(emptiest)
    }

    /// Finds a place for a node's port. Gives the index of its bridge, and the ways to it from the others.
    fn welcome(&mut self, port: Port, mac: [u8; 6]) -> Option<(u32, Vec<Request<'static>>)> {
        let place = self.place(port)?;
        self.places.insert(port, place);
        let ways = self.down.iter().zip(&self.up).enumerate();
        let ways = ways.map(|(leaf, (&down, &up))| if leaf + 1 == place { down } else { up });
        let ways = ways.map(|index| Request::AddForwarding { index, mac, to: Forward::Port });
        // The port itself tells its own bridge.
        Some((*self.bridges.get(place)?, ways.collect()))
    }

    /// Forgets a node's port. Gives the ways to it on its new host.
    fn see_off(&mut self, port: Port, mac: [u8; 6]) -> Vec<Request<'static>> {
        self.places.remove(&port);
        let ways = self.outside.into_iter().chain(self.up.iter().copied());
        ways.map(|index| Request::AddForwarding { index, mac, to: Forward::Port }).collect()
    }
}

//! Driver `bridge`: a veth pair for every node, on a Linux bridge of its host.

use std::collections::BTreeMap;

use slipway_lab::id::NetworkId;
use slipway_lab::model::{DriverKind, Lab};

use super::driver::{Driver, End, Port, Probed, Relocation, hosts_of};
use super::error::{NetworkError, Unsupported};
use super::site::Sites;
use super::switch::{self, Switches};
use super::wire;

#[derive(Debug, Default)]
pub(super) struct Bridge {
    switches: Switches,
    /// The bridge between hosts of each network's wire.
    wires: BTreeMap<NetworkId, u32>,
}

impl Driver for Bridge {
    fn probe(&self) -> Result<Probed, Unsupported> {
        switch::probe(DriverKind::Bridge)?;
        let mechanism = "veth pairs on a Linux bridge".to_owned();
        Ok(Probed { driver: DriverKind::Bridge.into(), mechanism, notes: switch::notes() })
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.build(lab, network, sites)?;
        self.join_hosts(lab, network, sites)
    }

    fn relocate(&mut self, way: &Relocation<'_>, sites: &mut Sites) -> Result<(), NetworkError> {
        let network = way.network();
        if !way.after.is_here(way.to()) {
            // The trunk leads to the machine, whichever of its hosts has the node.
            return Ok(());
        }
        self.switches.build_on(way.after, network, way.to(), sites)?;
        self.switches.check_room(way)?;
        self.join_hosts(way.after, network, sites)?;
        wire::lead(network, way.to(), way.interface().mac, sites)?;
        self.switches.relocate(way, sites)
    }

    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        self.switches.attach(lab, network, sites, ends)
    }

    fn detach(&mut self, lab: &Lab, port: Port, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.detach(lab, port, sites)
    }

    fn open(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.open(lab, network, sites)
    }

    fn host_end(&self, port: Port) -> Option<u32> {
        self.switches.port(port)
    }

    fn set_carrier(&mut self, lab: &Lab, port: Port, sites: &mut Sites, up: bool) -> Result<(), NetworkError> {
        self.switches.set_carrier(lab, port, sites, up)
    }
}

impl Bridge {
    /// Joins all hosts that have bridges of a network by a wire, as far as they are not yet.
    fn join_hosts(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        let hosts = self.switches.hosts(network);
        let is_spread = hosts_of(lab, network).into_iter().any(|host| !lab.is_here(host));
        if hosts.len() < 2 && !is_spread {
            return Ok(());
        }
        let wire = match self.wires.get(&network) {
            Some(&wire) => wire,
            None => wire::between(lab, network, sites)?,
        };
        self.wires.insert(network, wire);
        for host in hosts {
            if !self.switches.leads_outside(network, host) {
                let index = wire::reach(lab, network, host, wire, sites)?;
                self.switches.join_outside(lab, network, host, sites, index)?;
            }
        }
        Ok(())
    }
}

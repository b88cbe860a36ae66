//! Driver `bridge`: a veth pair for every node, on a Linux bridge of its host.

use slipway_lab::id::NetworkId;
use slipway_lab::model::{DriverKind, Lab};

use super::driver::{Driver, End, Port, Probed, hosts_of};
use super::error::{NetworkError, Unsupported};
use super::site::Sites;
use super::switch::{self, Switches};
use super::wire;

#[derive(Debug, Default)]
pub(super) struct Bridge {
    switches: Switches,
}

impl Driver for Bridge {
    fn probe(&self) -> Result<Probed, Unsupported> {
        switch::probe(DriverKind::Bridge)?;
        let mechanism = "veth pairs on a Linux bridge".to_owned();
        Ok(Probed { driver: DriverKind::Bridge.into(), mechanism, notes: switch::notes() })
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, sites: &mut Sites) -> Result<(), NetworkError> {
        self.switches.build(lab, network, sites)?;
        if hosts_of(lab, network).len() > 1 {
            for (host, index) in wire::lay(lab, network, sites)? {
                self.switches.join_outside(lab, network, host, sites, index)?;
            }
        }
        Ok(())
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

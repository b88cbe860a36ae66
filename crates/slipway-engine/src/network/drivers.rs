//! All drivers: how this machine would run each, and make the networks of a lab with them.

use serde::{Deserialize, Serialize};
use slipway_lab::id::{List, NetworkId};
use slipway_lab::model::{Bypasses, DriverKind, DriverWord, Lab, Network, TcpBypass};

use super::driver::{Driver, Probed, mtu};
use super::error::{NetworkError, Unsupported};
use super::{bridge, host, macvlan, ovs, sriov, vxlan};
use crate::bypass::Lacks;
use crate::bypasses;

/// Least MTU of IPv4 (RFC 791) and of IPv6 (RFC 8200), and the most that a packet's length field can say, bytes.
const MTU_IPV4: u32 = 68;
const MTU_IPV6: u32 = 1280;
const MTU_MOST: u32 = 65_535;
/// How a network of a running lab was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// The network's name.
    pub network: String,
    /// How its driver runs on this machine.
    #[serde(flatten)]
    pub probed: Probed,
    /// Bytes.
    pub mtu: u32,
}

/// The driver of a kind.
pub(super) fn driver(kind: DriverKind) -> Box<dyn Driver> {
    match kind {
        DriverKind::Host => Box::new(host::Host),
        DriverKind::Bridge => Box::new(bridge::Bridge::default()),
        DriverKind::Ovs => Box::new(ovs::Ovs::default()),
        DriverKind::Macvlan => Box::new(macvlan::Macvlan::default()),
        DriverKind::Vxlan => Box::new(vxlan::Vxlan::default()),
        DriverKind::Sriov => Box::new(sriov::Sriov::default()),
    }
}

/// Whether nodes on networks of a driver can move to another host.
///
/// # Errors
/// The reason why not, as a clause about the network.
pub fn moves(driver: DriverKind) -> Result<(), &'static str> {
    match driver {
        DriverKind::Bridge | DriverKind::Vxlan => Ok(()),
        DriverKind::Host => Err("on driver host a node has its host's own network and address"),
        DriverKind::Ovs => Err("on driver ovs a node's port belongs to the Open vSwitch of its host"),
        DriverKind::Macvlan => Err("on driver macvlan a node's interface is a part of its host's"),
        DriverKind::Sriov => Err("on driver sriov a node's interface is a function of a card"),
    }
}

/// How this machine would run each driver, alone and with bypasses, or what it lacks.
#[must_use]
pub fn survey() -> Vec<Result<Probed, Unsupported>> {
    let of_word = |word: DriverWord| {
        let driver = driver(word.driver(false));
        probe(word, driver.as_ref(), word.bypasses(TcpBypass::default(), false))
    };
    DriverWord::ALL.into_iter().map(of_word).collect()
}

/// How this machine would run a driver and bypasses over it, both known by this word.
fn probe(word: DriverWord, driver: &dyn Driver, bypasses: Bypasses) -> Result<Probed, Unsupported> {
    let beneath = driver.probe().map_err(|lacks| Unsupported { driver: word, ..lacks })?;
    let over = bypasses::probe(bypasses);
    let over = over.map_err(|Lacks { missing, hint }| Unsupported { driver: word, missing, hint })?;
    Ok(over.into_iter().fold(Probed { driver: word, ..beneath }, |mut probed, means| {
        probed.mechanism = format!("{} over {}", means.mechanism, probed.mechanism);
        probed.notes.extend(means.notes);
        probed
    }))
}

/// How this machine would make each of a lab's networks. Changes nothing.
///
/// # Errors
/// The first network that cannot be made here, with what is missing or wrong.
pub fn plan(lab: &Lab) -> Result<List<NetworkId, Mechanism>, NetworkError> {
    let plan_one = |(number, network): (NetworkId, &Network)| {
        let driver = driver(network.driver);
        let probed = probe(network.word(), driver.as_ref(), network.bypasses);
        let probed = probed.map_err(|reason| NetworkError::Unsupported { network: network.name.clone(), reason })?;
        check_mtu(network)?;
        driver.check(lab, number)?;
        Ok(Mechanism { network: network.name.clone(), probed, mtu: mtu(lab, number) })
    };
    lab.networks.enumerate().map(plan_one).collect()
}

fn check_mtu(network: &Network) -> Result<(), NetworkError> {
    let (least, why) = if network.ipv6.is_some() { (MTU_IPV6, "with IPv6") } else { (MTU_IPV4, "for IPv4") };
    match network.mtu {
        Some(mtu) if !(least..=MTU_MOST).contains(&mtu) => {
            let reason = format!("its MTU is {mtu} bytes\nHint: an MTU is between {least} ({why}) and {MTU_MOST}");
            Err(NetworkError::impossible(&network.name, reason))
        }
        _ => Ok(()),
    }
}

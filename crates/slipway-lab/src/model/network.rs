//! Networks of a resolved lab: a driver carries all packets, and data of programs may take bypasses beside it.
//!
//! Users write one word for both ([`DriverWord`]), and read it again in everything that is written.

use std::fmt;
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// A network: its driver, and the bypasses beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Network {
    /// `[a-z0-9][a-z0-9-]*`, at most 32 characters.
    pub name: String,
    /// The driver, which carries all that takes no bypass.
    pub driver: DriverKind,
    /// Ways past the driver's network.
    pub bypasses: Bypasses,
    /// Node addresses come from here. On driver `host` nodes get addresses of their own on their host.
    pub ipv4: Ipv4Net,
    /// Same, IPv6. `None` where the file says `ipv6: false`.
    pub ipv6: Option<Ipv6Net>,
    /// Asked MTU, bytes. `None`: the driver's right value (1500; underlay minus encapsulation for vxlan).
    pub mtu: Option<u32>,
    /// False: segmentation and checksum offloads are turned off on every interface of the network.
    pub offloads: bool,
    /// The machine's interface beneath (macvlan, sriov). `None`: the virtual host's own wire to the others.
    pub parent: Option<String>,
    /// VXLAN network identifier, 24 bits, unique in the lab; only on driver VXLAN.
    pub vni: Option<u32>,
    /// macvlan mode.
    pub macvlan_mode: MacvlanMode,
    /// Subnets of RDMA peers outside of the lab, which its nodes may connect to; only with the bypass for RDMA.
    pub rdma_peers: Vec<Ipv4Net>,
}

impl Network {
    /// The word that users know the network's driver and bypasses by.
    #[must_use]
    pub fn word(&self) -> DriverWord {
        if self.bypasses.tcp.is_some() { DriverWord::Fast } else { self.driver.into() }
    }

    /// Whether the lab's policy holds on it. Without bypasses nothing keeps one.
    #[must_use]
    pub fn keeps_policy(&self) -> bool {
        !self.bypasses.is_empty()
    }
}

/// Ways past a network that data of its nodes' programs may take. All other data takes the network's driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bypasses {
    /// For TCP connections between nodes.
    pub tcp: Option<TcpBypass>,
    /// For RDMA: nodes have a device for verbs. Only beside the one for TCP, whose supervisor answers its calls too.
    pub rdma: bool,
}

impl Bypasses {
    /// Whether there is no bypass.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The fast path for TCP connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpBypass {
    /// Whether programs of the network's nodes may use `io_uring`.
    pub io_uring: IoUring,
    /// Whether connections within a host are ones of TCP too.
    pub exact: bool,
}

/// The network drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriverKind {
    /// No network namespace of the node's own: it shares its host's.
    Host,
    /// veth pairs on a Linux bridge.
    Bridge,
    /// veth pairs on an Open vSwitch bridge.
    Ovs,
    /// macvlan interfaces on a parent interface.
    Macvlan,
    /// A bridge on every host, joined by VXLAN tunnels (RFC 7348).
    Vxlan,
    /// A virtual function of a real network card.
    Sriov,
}

/// The words of lab files for a network's driver, or a driver and bypasses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(description = "The network drivers.")]
pub enum DriverWord {
    /// No network namespace of the node's own: it shares its host's.
    Host,
    /// veth pairs on a Linux bridge.
    Bridge,
    /// veth pairs on an Open vSwitch bridge.
    Ovs,
    /// macvlan interfaces on a parent interface.
    Macvlan,
    /// A bridge on every host, joined by VXLAN tunnels (RFC 7348).
    Vxlan,
    /// A virtual function of a real network card.
    Sriov,
    /// A bridge, or VXLAN across several hosts, that TCP connections slip past.
    Fast,
}

impl DriverWord {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 7] =
        [Self::Host, Self::Bridge, Self::Ovs, Self::Macvlan, Self::Vxlan, Self::Sriov, Self::Fast];

    /// The driver that it stands for, in a lab with several hosts or with one.
    #[must_use]
    pub fn driver(self, several_hosts: bool) -> DriverKind {
        match self {
            Self::Host => DriverKind::Host,
            Self::Ovs => DriverKind::Ovs,
            Self::Macvlan => DriverKind::Macvlan,
            Self::Sriov => DriverKind::Sriov,
            Self::Fast if several_hosts => DriverKind::Vxlan,
            Self::Bridge | Self::Fast => DriverKind::Bridge,
            Self::Vxlan => DriverKind::Vxlan,
        }
    }

    /// The bypasses that it stands for, with these settings of the one for TCP, and with the one for RDMA or not.
    #[must_use]
    pub fn bypasses(self, tcp: TcpBypass, rdma: bool) -> Bypasses {
        let is_fast = self == Self::Fast;
        Bypasses { tcp: is_fast.then_some(tcp), rdma: is_fast && rdma }
    }
}

impl From<DriverKind> for DriverWord {
    fn from(driver: DriverKind) -> Self {
        match driver {
            DriverKind::Host => Self::Host,
            DriverKind::Bridge => Self::Bridge,
            DriverKind::Ovs => Self::Ovs,
            DriverKind::Macvlan => Self::Macvlan,
            DriverKind::Vxlan => Self::Vxlan,
            DriverKind::Sriov => Self::Sriov,
        }
    }
}

/// No driver has that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("choose of host, bridge, ovs, macvlan, vxlan, sriov, fast")]
pub struct UnknownDriver;

impl FromStr for DriverWord {
    type Err = UnknownDriver;

    fn from_str(word: &str) -> Result<Self, UnknownDriver> {
        Self::ALL.into_iter().find(|driver| driver.to_string() == word).ok_or(UnknownDriver)
    }
}

impl fmt::Display for DriverWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Bridge => "bridge",
            Self::Ovs => "ovs",
            Self::Macvlan => "macvlan",
            Self::Vxlan => "vxlan",
            Self::Sriov => "sriov",
            Self::Fast => "fast",
        })
    }
}

/// How macvlan siblings see each other (`ip-link(8)`, macvlan).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MacvlanMode {
    /// Siblings talk directly (default).
    #[default]
    Bridge,
    /// Siblings are isolated.
    Private,
    /// Traffic goes out to a switch that reflects it.
    Vepa,
}

/// Whether programs may use `io_uring(7)`, whose calls no filter sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IoUring {
    /// No: programs do without (default).
    #[default]
    Refuse,
    /// Yes: connections made that way stay on the container network.
    Allow,
}

impl IoUring {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_refuse(&self) -> bool {
        *self == Self::Refuse
    }
}

/// A network in JSON, as users know it: the driver's word, and settings of its bypasses beside the driver's.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Network")]
struct Written {
    name: String,
    driver: DriverWord,
    ipv4: Ipv4Net,
    ipv6: Option<Ipv6Net>,
    mtu: Option<u32>,
    offloads: bool,
    parent: Option<String>,
    vni: Option<u32>,
    macvlan_mode: MacvlanMode,
    #[serde(default, skip_serializing_if = "IoUring::is_refuse")]
    io_uring: IoUring,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exact: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rdma: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rdma_peers: Vec<Ipv4Net>,
}

impl From<Written> for Network {
    fn from(written: Written) -> Self {
        let Written { name, driver, ipv4, ipv6, mtu, offloads, parent, vni, macvlan_mode, .. } = written;
        let Written { io_uring, exact, rdma, rdma_peers, .. } = written;
        Self {
            name,
            // Tunnels join the hosts of exactly those networks that have an identifier.
            driver: driver.driver(vni.is_some()),
            bypasses: driver.bypasses(TcpBypass { io_uring, exact }, rdma),
            ipv4,
            ipv6,
            mtu,
            offloads,
            parent,
            vni,
            macvlan_mode,
            rdma_peers,
        }
    }
}

impl From<Network> for Written {
    fn from(network: Network) -> Self {
        let driver = network.word();
        let TcpBypass { io_uring, exact } = network.bypasses.tcp.unwrap_or_default();
        let rdma = network.bypasses.rdma;
        let Network { name, ipv4, ipv6, mtu, offloads, parent, vni, macvlan_mode, rdma_peers, .. } = network;
        Self { name, driver, ipv4, ipv6, mtu, offloads, parent, vni, macvlan_mode, io_uring, exact, rdma, rdma_peers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_the_word_and_reads_driver_and_bypasses_again() {
        let tcp = TcpBypass { io_uring: IoUring::Allow, exact: true };
        for word in DriverWord::ALL {
            for several_hosts in [false, true] {
                let driver = word.driver(several_hosts);
                let network = Network {
                    name: "net".to_owned(),
                    driver,
                    bypasses: word.bypasses(tcp, true),
                    ipv4: "10.64.0.0/16".parse().expect("a subnet"),
                    ipv6: None,
                    mtu: None,
                    offloads: true,
                    parent: None,
                    vni: (driver == DriverKind::Vxlan).then_some(7),
                    macvlan_mode: MacvlanMode::Bridge,
                    rdma_peers: vec!["192.0.2.0/24".parse().expect("a subnet")],
                };
                let json = serde_json::to_value(&network).expect("plain data");
                assert_eq!(json["driver"], word.to_string());
                for key in ["exact", "rdma"] {
                    assert_eq!(json.get(key).is_some(), word == DriverWord::Fast);
                }
                assert_eq!(serde_json::from_value::<Network>(json).expect("read again"), network);
            }
        }
    }
}

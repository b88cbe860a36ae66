//! The resolved lab: what a lab file means once every default is filled in, every count expanded, every
//! address given out and every node placed. A value: two machines resolve the same file to the same [`Lab`].

mod network;
mod tune;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use slipway_document::units::{Bytes, Seconds};

pub use self::network::{Bypasses, DriverKind, DriverWord, IoUring, MacvlanMode, Network, TcpBypass, UnknownDriver};
pub use self::tune::{Profile, ProfileWord};
pub use crate::condition::Limits;
use crate::condition::{Conditions, LinkRule, MatrixFile};
use crate::id::{HostId, List, MachineId, NetworkId, NodeId};
use crate::policy::Rule;
use crate::scenario::Scenario;

/// A lab with every default filled in. Cross-references are ids of the lists here, valid by construction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// `[a-z0-9][a-z0-9-]*`, at most 32 characters. The file's name where the file gives none.
    pub name: String,
    /// Where every random stream of the lab begins.
    pub seed: u64,
    /// The machines that it is made on. Empty: the one where it is brought up.
    #[serde(default, skip_serializing_if = "is_none")]
    pub machines: List<MachineId, Machine>,
    /// Time without a word from the machine that brought the lab up, after which a part ends itself. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned_after: Option<Seconds>,
    /// The machine whose part this is. All other machines' parts are in the lists too, and are not made here.
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    /// At least one. The first is where a lab without `hosts` lives.
    pub hosts: List<HostId, Host>,
    /// True for `hosts: machine`: the lab uses this machine's own network namespace as its one host.
    pub machine: bool,
    /// How the hosts are joined. `None` when there is one host.
    pub underlay: Option<Underlay>,
    /// Images that at least one node uses.
    pub images: Vec<Image>,
    /// Networks, in file order.
    pub networks: List<NetworkId, Network>,
    /// Nodes, groups expanded, in file order then by number.
    pub nodes: List<NodeId, Node>,
    /// Conditions between nodes, in file order.
    pub links: Vec<LinkRule>,
    /// Delays between nodes from files, which hold under `links`.
    pub matrices: Vec<MatrixFile>,
    /// How conditions of links are made.
    pub mechanism: LinkMechanism,
    /// The policy of networks with driver fast: the first rule that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<Rule>,
    /// The lab's own job, for `slipway run` without a command and for `slipway compare`.
    pub job: Option<Job>,
    /// The scenario that `slipway play` performs on the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Scenario>,
}

impl Lab {
    /// Whether a virtual host is on this machine.
    #[must_use]
    pub fn is_here(&self, host: HostId) -> bool {
        self.hosts[host].machine == self.part.machine
    }

    /// The machine that a node is on.
    #[must_use]
    pub fn machine_of(&self, node: NodeId) -> MachineId {
        self.hosts[self.nodes[node].host].machine
    }

    /// Whether a node is on this machine.
    #[must_use]
    pub fn has_here(&self, node: NodeId) -> bool {
        self.is_here(self.nodes[node].host)
    }

    /// The nodes of this machine's part, in order.
    #[must_use]
    pub fn nodes_here(&self) -> Vec<NodeId> {
        self.nodes.ids().filter(|&node| self.has_here(node)).collect()
    }

    /// Tunnels between machines that it may have: one for each of its wires.
    #[must_use]
    pub fn tunnels(&self) -> u32 {
        // The underlay, the wire of tunnels, and each network's own.
        2 + u32::try_from(self.networks.len()).unwrap_or(u32::MAX / 2)
    }

    /// Whether it is made on several machines.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        self.machines.len() > 1
    }
}

/// Whose part of a lab this is, and what the machines agreed on when it came up. A file says nothing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The machine.
    pub machine: MachineId,
    /// The machine where the lab was brought up.
    #[serde(default, skip_serializing_if = "is_first")]
    pub origin: MachineId,
    /// The lab's number among all that might meet on these machines. Drawn anew for each `up`.
    pub number: u64,
    /// The secret of routers, by which those of different machines know each other. Never written to a file.
    #[serde(skip)]
    pub secret: Option<Secret>,
}

impl Part {
    /// The first of `count` VXLAN network identifiers in a row, for tunnels between machines. 24 bits have room for
    /// 16 million of them, so two labs seldom meet. The kernel tells where they do.
    #[must_use]
    pub fn first_vni(&self, count: u32) -> u32 {
        let room = u64::from((1 << 24) - 1 - count.min(1 << 20));
        u32::try_from(1 + self.number % room).unwrap_or(1)
    }

    fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

/// A secret of 32 bytes, which no log shows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn is_none(machines: &List<MachineId, Machine>) -> bool {
    machines.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_first(machine: &MachineId) -> bool {
    *machine == MachineId(0)
}

/// A machine that runs a part of the lab: the virtual hosts on it, and their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the lab file.
    pub name: String,
    /// The address at which the other machines reach it: packets between hosts of two machines go there.
    pub address: Ipv4Addr,
    /// The destination by which ssh reaches it (`ssh(1)`): `HOST` or `USER@HOST`.
    pub ssh: String,
    /// Cores that it offers to nodes with a limit of processor time. `None`: as many as they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory that it offers to nodes with a limit of memory. `None`: as much as they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Names of what it has, which nodes may need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The Slurm job that it belongs to: `srun` leads there, in the place of ssh. A file says nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
}

/// A virtual host: a network namespace of its own, joined to the others by the underlay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// `host1`, `host2`, … or the file's own names.
    pub name: String,
    /// The machine that it is on: one of [`Lab::machines`], where there are any.
    #[serde(default, skip_serializing_if = "is_first")]
    pub machine: MachineId,
    /// The host's address on the underlay (present when there are two hosts or more).
    pub ipv4: Option<Ipv4Addr>,
    /// Same, IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Processors that the host's nodes may use, in the kernel's list form (`0-3,6`). `None`: all.
    pub cpus: Option<String>,
    /// Kernel settings of the host's network namespace, by their names in `sysctl(8)`. Its nodes have them too, among their
    /// [`sysctls`](Node::sysctls).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tune: BTreeMap<String, String>,
    /// The use whose rules give further settings when the lab comes up. Those are no part of the lab, since they depend on the
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// The network that joins virtual hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Underlay {
    /// Bytes.
    pub mtu: u32,
    /// IPv4 subnet that hosts' addresses come from.
    pub ipv4: Ipv4Net,
    /// IPv6 subnet that hosts' addresses come from.
    pub ipv6: Ipv6Net,
}

/// A root file system, shared copy-on-write by all nodes that name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The name nodes use.
    pub name: String,
    /// The source of the files.
    pub source: ImageSource,
    /// Index of the image underneath, for one saved from a running node.
    pub base: Option<usize>,
}

/// Where an image's files come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// This machine's own root, read-only underneath.
    Host,
    /// A directory, a tar / tar.gz / tar.zst archive, an OCI image layout folder, or an OCI or docker archive. Slipway
    /// reads the kind off the file itself. Relative paths are resolved against the lab file's folder.
    Path {
        /// Absolute.
        path: PathBuf,
        /// The name within an OCI layout or archive that holds several images (`org.opencontainers.image.ref.name`).
        reference: Option<String>,
    },
}

/// How conditions of links are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkMechanism {
    /// The kernel's netem where it has it and can do what is asked, else Slipway's own wire.
    #[default]
    Auto,
    /// The kernel's netem.
    Netem,
    /// Slipway's own wire: frames pass through a process that delays, drops and paces them.
    Wire,
}

/// Most objects of a node's RDMA device at once. `None`: the broker's own bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCaps {
    /// Queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<u32>,
    /// Regions of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<u32>,
}

impl DeviceCaps {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Also its host name: `web` for a single node, `n1`, `n2`, … for a group with `count`.
    pub name: String,
    /// The key in the file it came from.
    pub group: String,
    /// One of [`Lab::hosts`].
    pub host: HostId,
    /// Index into [`Lab::images`].
    pub image: usize,
    /// In the order of the node's `networks`; `eth0`, `eth1`, …
    pub interfaces: Vec<Interface>,
    /// Routes to the lab's networks that this node is not on, and the default route if it has one.
    pub routes: Vec<Route>,
    /// True: the node forwards packets between its networks.
    pub gateway: bool,
    /// Whose routes it has. [`routes`](Self::routes) is empty where they are its programs' own.
    #[serde(default, skip_serializing_if = "Routing::is_lab")]
    pub routing: Routing,
    /// Rights of its programs beyond a default container's, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// The node's limits.
    pub limits: Limits,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// Environment added for every program in the node.
    pub env: BTreeMap<String, String>,
    /// Kernel settings of the node's own network and IPC namespaces, by their names in `sysctl(8)`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// A program started with the node and ended with it (argv).
    pub command: Option<Vec<String>>,
    /// MPI slots.
    pub slots: u32,
    /// True: a real OpenSSH server runs in the node with lab-only keys.
    pub sshd: bool,
    /// True: the root file system itself cannot be written.
    pub read_only: bool,
    /// Most objects of its RDMA device, where it has one.
    #[serde(default, skip_serializing_if = "DeviceCaps::is_default")]
    pub rdma: DeviceCaps,
}

impl Node {
    /// True: Slipway makes no routes but those to its own networks, and its programs find the others.
    #[must_use]
    pub fn own_routes(&self) -> bool {
        self.routing == Routing::None
    }

    /// Whether its programs may change its own network. All that Slipway keeps it to is outside of the node then.
    #[must_use]
    pub fn rules_its_network(&self) -> bool {
        !self.capabilities.is_empty()
    }

    /// The networks that it is on, in the order of its interfaces.
    pub fn networks<'a>(&'a self, lab: &'a Lab) -> impl Iterator<Item = &'a Network> {
        self.interfaces.iter().map(|interface| &lab.networks[interface.network])
    }

    /// Whether data of its programs may pass one of its networks by.
    #[must_use]
    pub fn has_bypasses(&self, lab: &Lab) -> bool {
        self.networks(lab).any(|network| !network.bypasses.is_empty())
    }
}

/// Rights of a node's programs beyond a default container's (`capabilities(7)`). Each is about the node's own network
/// namespace alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Interfaces, addresses, routes, packet filters, queueing disciplines.
    NetAdmin,
    /// Nothing more in a node, but FRR's programs do not start without it.
    SysAdmin,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "NET_ADMIN",
            Self::SysAdmin => "SYS_ADMIN",
        })
    }
}

/// Whose routes a node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// The lab's: to every network, through gateways.
    #[default]
    Lab,
    /// Only those to its own networks; its programs add others.
    None,
}

impl Routing {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_lab(&self) -> bool {
        *self == Self::Lab
    }
}

/// A node's place on a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`, … Unused on driver `host`.
    pub name: String,
    /// One of [`Lab::networks`].
    pub network: NetworkId,
    /// Address on the network.
    pub ipv4: Ipv4Addr,
    /// Address on the network, where it has IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Locally administered, derived from lab, network and node, so that a run can be repeated exactly.
    #[serde(with = "crate::written::mac_text")]
    pub mac: [u8; 6],
    /// Conditions of the interface.
    #[serde(default)]
    pub conditions: Conditions,
}

/// A route in a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination subnet; prefix length 0 for the default route.
    pub to: ipnet::IpNet,
    /// A gateway node's address on a network that this node is on.
    pub via: IpAddr,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path on the machine.
    pub source: PathBuf,
    /// Absolute path in the node.
    pub target: PathBuf,
    /// True unless written `:ro`. Never recursive: what is mounted below the source stays out.
    pub writable: bool,
    /// All machines of the lab have the same folder there, as on a file system that they share. `up` checks it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// A program to run over nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// argv; at least one word.
    pub command: Vec<String>,
    /// The MPI that launches it; without one it runs once on every node.
    pub mpi: Option<Mpi>,
    /// MPI ranks. `None`: the sum of the nodes' slots.
    pub ranks: Option<u32>,
    /// Those of [`Lab::nodes`] where it runs. All nodes where the file does not say.
    pub nodes: Vec<NodeId>,
    /// Ended after this long.
    pub timeout: Option<Seconds>,
    /// Working directory in the node.
    pub workdir: Option<PathBuf>,
    /// Environment added for the job.
    pub env: BTreeMap<String, String>,
    /// The figure that `compare` picks from the job's output.
    pub figure: Option<Figure>,
}

/// MPI implementations that Slipway launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mpi {
    /// Open MPI (`mpirun`).
    Openmpi,
    /// MPICH (`mpiexec.hydra`).
    Mpich,
}

/// The number in a job's output to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name in reports.
    pub name: String,
    /// Unit for reports, e.g. `s`, `Gb/s`.
    pub unit: String,
    /// True where a greater value is better.
    pub higher_is_better: bool,
    /// The way to find it in the output.
    pub pick: Pick,
}

/// How a figure is found in a job's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The job's wall time in seconds.
    WallTime,
    /// First capture group of the first match of a regular expression.
    Regex(String),
    /// A JSON path (RFC 9535) that selects one number.
    JsonPath(String),
}

//! The lab file as it is written. These types are the whole grammar. The reader follows them, and the JSON Schema is
//! made of them, so editors show these comments.

mod condition;
mod job;
mod node;
mod policy;
mod scenario;
mod tune;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::{Named, Spanned};
use slipway_document::form::Written;
use slipway_document::units::{Bytes, Seconds};

pub(crate) use self::condition::{Conditions, Disk, Link, Placed, Setting, place_keys, with_node_keys};
pub(crate) use self::job::{Better, Figure, Job};
pub(crate) use self::node::{Command, DeviceCaps, Membership, Memberships, Mount, MountSettings, Node, Value};
pub(crate) use self::policy::{Document as PolicyDocument, Rates as PolicyRates, Rule as PolicyRule};
pub(crate) use self::scenario::{Amount, Choice, Draw, Event, How, Members, Number, Scenario, Selection, Set, Trace};
pub(crate) use self::tune::{Tune, TuneSettings};
use crate::model::{DriverWord, IoUring, LinkMechanism, MacvlanMode};
use crate::written::{CpuList, Machine as MachineWord};

pub(crate) type Subnet4 = Written<Ipv4Net>;
pub(crate) type Subnet6 = Written<Ipv6Net>;
pub(crate) type Address4 = Written<Ipv4Addr>;
pub(crate) type Address6 = Written<Ipv6Addr>;

/// A Slipway lab: nodes, the networks between them, and where they run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a lab: a map with the key `nodes`")]
#[schemars(title = "Slipway lab file")]
pub(crate) struct File {
    /// The lab's name. The file's name when left out.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,31}$"))]
    pub(crate) lab: Option<Spanned<String>>,
    /// Seed of every random stream of the lab. 0 when left out.
    pub(crate) seed: Option<u64>,
    /// Machines that the lab is made on, by name. This machine alone when left out.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[a-z][a-z0-9-]{0,31}$"}))]
    pub(crate) machines: Named<Option<Machine>>,
    /// Time without a word from the machine that brought the lab up. Then a machine takes its part down. Never when left out.
    pub(crate) orphaned_after: Option<Spanned<Seconds>>,
    /// Virtual hosts: how many, their names, or names with settings; or `machine` for this machine's own network. One when left out.
    pub(crate) hosts: Option<Spanned<Hosts>>,
    /// Placement of nodes without a `host` on the virtual hosts. `spread` when left out.
    pub(crate) placement: Option<Placement>,
    /// The network that joins the virtual hosts.
    pub(crate) underlay: Option<Spanned<Underlay>>,
    /// Root file systems by name. `host` (this machine's own root, read-only) is always there.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[a-z0-9][a-z0-9-]{0,31}$"}))]
    pub(crate) images: Named<Option<Image>>,
    /// Networks by name. One bridge called `net` when left out.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[a-z0-9][a-z0-9-]{0,31}$"}))]
    pub(crate) networks: Named<Network>,
    /// Nodes by name. With `count`, `n` becomes n1, n2, …
    #[schemars(extend("propertyNames" = {"pattern": "^[a-z][a-z0-9-]{0,31}$"}, "minProperties" = 1))]
    pub(crate) nodes: Named<Node>,
    /// Conditions between nodes: delays, losses and rates from some to others, or a matrix of delays from a file.
    pub(crate) links: Option<Vec<Spanned<Link>>>,
    /// Mechanism of links' conditions. `auto` when left out.
    pub(crate) mechanism: Option<LinkMechanism>,
    /// The nodes that may connect over networks with driver fast. The first rule that fits a connection decides;
    /// without one it is made.
    pub(crate) policy: Option<Vec<Spanned<PolicyRule>>>,
    /// The lab's own job, for `slipway run` without a command and for `slipway compare`.
    pub(crate) job: Option<Job>,
    /// Changes of the lab while it runs, and their times: `slipway play`.
    pub(crate) scenario: Option<Scenario>,
}

/// A machine that runs a part of the lab.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Machine {
    /// The address at which the other machines reach it. ssh finds it by its name.
    Address(Spanned<Address4>),
    /// An address with more settings.
    Settings(MachineSettings),
}

by_shape!(Machine, "a machine: its IPv4 address, or a map with `address`", Text => Address, Map => Settings);

/// A machine's settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a machine's settings: a map with `address`")]
pub(crate) struct MachineSettings {
    /// The address at which the other machines reach it.
    pub(crate) address: Spanned<Address4>,
    /// The destination for ssh, `HOST` or `USER@HOST`. The machine's name when left out.
    pub(crate) ssh: Option<Spanned<String>>,
    /// Cores that it offers: nodes whose `cpu` adds up to more are not placed on it. No bound when left out.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) cores: Option<Spanned<u32>>,
    /// Memory that it offers: nodes whose `memory` adds up to more are not placed on it. No bound when left out.
    pub(crate) memory: Option<Spanned<Bytes>>,
    /// Labels that nodes may need. Such nodes are placed on machines that have them all.
    #[serde(default)]
    pub(crate) labels: Vec<Spanned<String>>,
}

/// Virtual hosts, each a network namespace of its own.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Hosts {
    /// A number of hosts: host1, host2, …
    Count(u32),
    /// This machine's own network; only for the drivers host, macvlan and sriov.
    Machine(Written<MachineWord>),
    /// Names of hosts.
    Names(Vec<Spanned<String>>),
    /// Names of hosts, with their settings.
    Settings(Named<Host>),
}

by_shape!(
    Hosts,
    "a number of hosts, a list of names, a map of names, or the word `machine`",
    Number => Count,
    Text => Machine,
    List => Names,
    Map => Settings,
);

/// A virtual host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a host's settings: a map, or nothing")]
pub(crate) struct Host {
    /// The machine that it is on, one of `machines`. Hosts without one are dealt out in turn.
    pub(crate) machine: Option<Spanned<String>>,
    /// Processors that the host's nodes may use, such as `0-3,6`.
    pub(crate) cpus: Option<Written<CpuList>>,
    /// Kernel settings of the host's network and of its nodes': a profile, or a map. A node's own `sysctls` go before them.
    pub(crate) tune: Option<Tune>,
}

/// Placement of nodes on hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Placement {
    /// In turn: the first node on the first host, the second on the second, …
    #[default]
    Spread,
    /// In equal runs: the first nodes on the first host, the next on the second, …
    Pack,
}

/// The network that joins virtual hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "the underlay's settings: a map")]
pub(crate) struct Underlay {
    /// Bytes. 1500 when left out.
    #[schemars(range(min = 1280, max = 65535))]
    pub(crate) mtu: Option<Spanned<u32>>,
    /// Subnet of the hosts' addresses. `10.63.0.0/16` when left out.
    pub(crate) ipv4: Option<Spanned<Subnet4>>,
    /// Subnet of the hosts' addresses. `fd53:6c69:70ff::/64` when left out.
    pub(crate) ipv6: Option<Spanned<Subnet6>>,
}

/// A root file system.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Image {
    /// A directory, an archive (tar, tar.gz, tar.zst) or an OCI layout; relative to the lab file. `host` is this machine's root.
    Path(Spanned<String>),
    /// A path with more settings.
    Settings(ImageSettings),
}

by_shape!(Image, "an image: a path, or a map with `path`", Text => Path, Map => Settings);

/// An image's settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an image's settings: a map with `path`")]
pub(crate) struct ImageSettings {
    /// A directory, an archive (tar, tar.gz, tar.zst) or an OCI layout; relative to the lab file.
    pub(crate) path: Spanned<String>,
    /// The one of several images in an OCI layout or archive.
    pub(crate) reference: Option<Spanned<String>>,
    /// The image underneath, for one that `slipway save` made.
    pub(crate) base: Option<Spanned<String>>,
}

/// A network.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Network {
    /// The driver alone; all other keys have defaults.
    Driver(Spanned<DriverWord>),
    /// A map of settings.
    Settings(Box<NetworkSettings>),
}

by_shape!(Network, "a network: its driver's name, or a map of settings", Text => Driver, Map => Settings);

impl Default for Network {
    fn default() -> Self {
        Self::Settings(Box::default())
    }
}

/// A network's settings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a network's settings: a map")]
pub(crate) struct NetworkSettings {
    /// Driver of the network. `bridge` when left out.
    pub(crate) driver: Option<Spanned<DriverWord>>,
    /// Subnet of the nodes' addresses. `10.64.0.0/16` for the first network, `10.65.0.0/16` for the second, …
    pub(crate) ipv4: Option<Spanned<Subnet4>>,
    /// The same for IPv6 (`fd53:6c69:7000::/64`, `fd53:6c69:7001::/64`, …), or `false` for none.
    pub(crate) ipv6: Option<Spanned<Ipv6Choice>>,
    /// Bytes. When left out, 1500, less 50 where the driver uses VXLAN.
    #[schemars(range(min = 68, max = 65535))]
    pub(crate) mtu: Option<Spanned<u32>>,
    /// `false` turns segmentation and checksum offloads off on every interface.
    pub(crate) offloads: Option<bool>,
    /// The machine's interface beneath (macvlan, sriov).
    pub(crate) parent: Option<Spanned<String>>,
    /// Traffic between macvlan siblings. `bridge` when left out.
    pub(crate) macvlan_mode: Option<Spanned<MacvlanMode>>,
    /// VXLAN network identifier (vxlan, and fast across hosts).
    #[schemars(range(min = 1, max = 16_777_215))]
    pub(crate) vni: Option<Spanned<u32>>,
    /// Permission for `io_uring`, whose connections are never fast (fast). `refuse` when left out.
    pub(crate) io_uring: Option<Spanned<IoUring>>,
    /// `true`: connections within a host are TCP too. They are slower than pairs, and behave as those between hosts (fast).
    /// With `rdma: true` it is `true` when left out.
    pub(crate) exact: Option<Spanned<bool>>,
    /// `true`: nodes have an RDMA device, which needs no hardware (fast).
    pub(crate) rdma: Option<Spanned<bool>>,
    /// Subnets of RDMA peers outside of the lab, as `[192.0.2.0/24]`. Nodes may connect to these by an RDMA device of the machine
    /// (fast, with `rdma: true`). None when left out.
    pub(crate) rdma_peers: Option<Vec<Spanned<Subnet4>>>,
    /// Conditions of every interface of the network.
    pub(crate) conditions: Option<Spanned<Conditions>>,
}

/// IPv6 of a network: its subnet, or none.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Ipv6Choice {
    /// `false`: none. `true`: the default subnet.
    Has(bool),
    /// An IPv6 subnet.
    Subnet(Subnet6),
}

by_shape!(Ipv6Choice, "an IPv6 subnet such as `fd00:80::/64`, or `false`", Bool => Has, Text => Subnet);

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::{Named, Spanned};
use slipway_document::form::Written;
use slipway_document::units::{Bytes, Seconds};

use super::{Address4, Address6, Conditions, Setting, with_node_keys};
use crate::condition::Cpu;
use crate::model::{Capability, Routing};
use crate::written::{CpuList, Mac};

with_node_keys! {
    /// A node, or with `count` a group of equal nodes.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "a node's settings: a map, or nothing")]
    Node {
        /// Number of nodes. `n` with `count: 3` becomes n1, n2, n3.
        #[schemars(range(min = 1, max = 10000))]
        count: Option<Spanned<u32>>,
        /// The group that it belongs to. Its own name when left out; with `count`, that is the group of all.
        group: Option<Spanned<String>>,
        /// The root file system: `host` or one of `images`. `host` when left out.
        image: Option<Spanned<String>>,
        /// The virtual host it is placed on. By `placement` when left out.
        host: Option<Spanned<String>>,
        /// Labels that its machine has. It may be on any machine when left out.
        needs: Option<Vec<Spanned<String>>>,
        /// The networks it is on: eth0 on the first, eth1 on the second, … The lab's first network when left out.
        networks: Option<Spanned<Memberships>>,
        /// `true`: forwards packets between its networks; the others' routes lead through it.
        gateway: Option<Spanned<bool>>,
        /// `none`: no routes but those to its own networks, as for a router whose programs find them. `lab` when left out.
        routes: Option<Spanned<Routing>>,
        /// Rights of its programs over its own network: `[NET_ADMIN]`, with `SYS_ADMIN` for those of FRR. None when left out.
        capabilities: Option<Vec<Spanned<Capability>>>,
        /// Folders and files of this machine that it sees.
        mounts: Option<Vec<Mount>>,
        /// Environment added for every program in the node.
        #[serde(default)]
        env: Named<Value>,
        /// Kernel settings of the node's own, by their names in sysctl(8): those below `net.`, and those of System V IPC.
        #[serde(default)]
        sysctls: Named<Value>,
        /// A program started with the node and ended with it.
        command: Option<Spanned<Command>>,
        /// MPI slots. 1 when left out.
        #[schemars(range(min = 1, max = 65535))]
        slots: Option<Spanned<u32>>,
        /// `true`: an OpenSSH server runs in the node, with keys of the lab's own.
        sshd: Option<bool>,
        /// `true`: the root file system cannot be written.
        read_only: Option<bool>,
        /// Most queue pairs and regions of memory of its RDMA device.
        rdma: Option<Spanned<DeviceCaps>>,
        /// Processors it may run on, such as `0-3,6`.
        cpuset: Option<Spanned<Written<CpuList>>>,
    }
}

/// Most objects of a node's RDMA device at once.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "caps: a map of `queue_pairs`, `regions`")]
pub(crate) struct DeviceCaps {
    /// Queue pairs. 1024 when left out.
    #[schemars(range(min = 0, max = 65536))]
    pub(crate) queue_pairs: Option<u32>,
    /// Regions of memory. 4096 when left out.
    #[schemars(range(min = 0, max = 65536))]
    pub(crate) regions: Option<u32>,
}

/// The networks a node is on.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Memberships {
    /// Names of networks.
    Names(Vec<Spanned<String>>),
    /// Names of networks, with addresses and conditions.
    Settings(Named<Membership>),
}

by_shape!(
    Memberships,
    "a list of networks' names, or a map of networks to settings",
    List => Names,
    Map => Settings,
);

/// A node's place on a network. Addresses are given out in order when left out.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "settings: a map of `ipv4`, `ipv6`, `mac`, `conditions`, or nothing")]
pub(crate) struct Membership {
    /// IPv4 address; for a group, the first node's, the others following on.
    pub(crate) ipv4: Option<Spanned<Address4>>,
    /// IPv6 address; for a group, the first node's, the others following on.
    pub(crate) ipv6: Option<Spanned<Address6>>,
    /// Ethernet address. Derived from the names of lab, network and node when left out.
    pub(crate) mac: Option<Spanned<Written<Mac>>>,
    /// Conditions of this interface. They hold over the network's, key by key.
    pub(crate) conditions: Option<Spanned<Conditions>>,
}

/// A bind mount.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Mount {
    /// `source:target`, or `source:target:ro`.
    Text(#[schemars(regex(pattern = r"^[^:]+:/[^:]+(:ro|:rw)?$"))] Spanned<String>),
    /// A map with a key for each part.
    Settings(MountSettings),
}

by_shape!(Mount, "a mount: `source:target[:ro]`, or a map of `source` and `target`", Text => Text, Map => Settings);

/// A bind mount, one key each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a mount: a map of `source`, `target`, `writable`, `shared`")]
pub(crate) struct MountSettings {
    /// Path on this machine; relative to the lab file.
    pub(crate) source: Spanned<String>,
    /// Absolute path in the node.
    pub(crate) target: Spanned<String>,
    /// `false`: read-only. `true` when left out.
    pub(crate) writable: Option<bool>,
    /// `true`: all machines of the lab have the same folder there, which `up` checks.
    pub(crate) shared: Option<bool>,
}

/// A program and its arguments.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Command {
    /// One line, split into words as a shell does (quotes, but no variables and no wildcards).
    Line(String),
    /// A list of words.
    Words(Vec<String>),
}

by_shape!(Command, "a command: a line, or a list of words", Text => Line, List => Words);

/// An environment variable's value: the text as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Value(pub(crate) String);

/// A value that looks like a number needs no quotes: the reader takes its text, and so should an editor.
impl JsonSchema for Value {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

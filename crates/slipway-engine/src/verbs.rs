//! The RDMA side of a lab, a bypass beside the one for TCP: a device in each node of networks with `rdma: true`.
//!
//! Nodes find a device in `/sys/class` and `/dev/infiniband` ([`device`]), and a plug-in for their own libibverbs
//! ([`plugin`]). A broker for each virtual host pairs queue pairs under the lab's policy ([`brokers`]). Its process holds a
//! listener for each node, so a message's node is known by the socket. The router of the fast path answers the few calls
//! that no plug-in can (`docs/adr/0058-verbs-in-nodes.md`).

mod broker;
mod brokers;
mod carrier;
mod confine;
mod device;
mod explain;
mod far;
mod gateway;
mod orders;
mod plugin;
mod rules;
mod servant;

use slipway_fast::filter;
use slipway_lab::id::NodeId;
use slipway_lab::model::{Lab, Mount, Node};

pub(crate) use brokers::Brokers;
pub use carrier::CarriedBy;
pub(crate) use device::NAME as DEVICE;
pub use explain::{Verdict, Way};
pub(crate) use explain::{explain, explain_outside, join_all};
pub(crate) use gateway::Entrance;
pub use gateway::{GatewayStatus, OutsideLink};
pub use orders::{BrokerStatus, LinkOfNode, NodeVerbs, PeerOfNode};
pub(crate) use plugin::check;

pub use crate::bypass::Parted;
use crate::bypass::{Calls, Lacks, LaidOver, Means, Needs};
use crate::state::LabDir;

/// Where a node finds its broker, beside what all nodes of a lab share.
const SOCKET: &str = "verbs.sock";
/// Where a node with peers outside of the lab finds the gateway.
const GATEWAY: &str = "gateway.sock";

/// How this machine would run RDMA, beside a fast path.
pub(crate) fn probe() -> Result<Means, Lacks> {
    plugin::find().map_err(|missing| Lacks { missing: missing.to_string(), hint: plugin::HINT.to_owned() })?;
    let mechanism = match servant::devices().as_slice() {
        [] => "an RDMA device".to_owned(),
        own => format!("an RDMA device, between machines and to peers outside of a lab by {}", own.join(" or ")),
    };
    Ok(Means { mechanism, notes: Vec::new() })
}

/// Whether a node has the device: on a network with RDMA, unless the node may change its own network.
fn has_device(lab: &Lab, node: &Node) -> bool {
    !node.rules_its_network() && node.networks(lab).any(|network| network.bypasses.rdma)
}

/// The needs of a node: none where none of its networks has RDMA.
pub(crate) fn needs(dir: &LabDir, lab: &Lab, node: NodeId) -> Needs {
    if !has_device(lab, &lab.nodes[node]) {
        return Needs::default();
    }
    let own = device::folder(dir, node);
    let mount = |source, target: &str| Mount { source, target: target.into(), writable: false, shared: false };
    let has_peers = lab.nodes[node].networks(lab).any(|network| !network.rdma_peers.is_empty());
    let gateway = has_peers.then(|| mount(own.join(GATEWAY), "/run/slipway/gateway.sock"));
    let mounts =
        [mount(own.join(SOCKET), "/run/slipway/verbs.sock"), mount(plugin::driver_file(dir), plugin::DRIVER_FILE)];
    Needs {
        // `io_uring` is for the bypass for TCP to permit.
        calls: Some(Calls { traps: filter::rdma_traps(), io_uring: true }),
        mounts: mounts.into_iter().chain(gateway).collect(),
        devices: device::NODES.map(Into::into).to_vec(),
        laid_over: vec![LaidOver {
            source: own.join(device::CLASS),
            target: "/sys/class".into(),
            hiding: device::ALONE.map(Into::into).to_vec(),
        }],
        ..Needs::default()
    }
}

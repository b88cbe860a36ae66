//! Messages between a lab's anchor and a broker: JSON, each after its length in four bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipway_fast::reason::Reason;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::policy::Rule;
use slipway_verbs::broker::Traffic;

use super::carrier::CarriedBy;
use super::gateway::GatewayStatus;
use crate::bypass::Parted;

/// Longest message, bytes.
const LONGEST: usize = 64 << 20;

/// An order from the anchor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// These rules and conditions hold from now on. The broker revokes queue pairs that they forbid.
    Rules {
        /// The policy.
        policy: Vec<Rule>,
        /// Nodes whose links are under conditions.
        conditioned: BTreeSet<NodeId>,
        /// Nodes that do not hear one another: their queue pairs stand still.
        parted: Parted,
    },
    /// These nodes have ended: nothing of their programs is left.
    Died {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// The machine's carrier runs, or does not.
    Carrier {
        /// True where it runs.
        is_up: bool,
    },
    /// Say how it is.
    Status,
}

/// The answer to an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The order holds, and ended so many connections of queue pairs.
    Heeded(u64),
    /// The state.
    Status(Counts),
}

/// The state of a broker, as the broker tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) nodes: Vec<NodeVerbs>,
    pub(super) refused: BTreeMap<Reason, u64>,
    pub(super) revoked: u64,
}

/// State of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Index of its virtual host in the lab.
    pub host: HostId,
    /// Its process; `None` while there is none, and new queue pairs are refused.
    pub pid: Option<i32>,
    /// Nodes with an RDMA device.
    pub nodes: Vec<NodeVerbs>,
    /// Connections of queue pairs that were refused, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// Connections of queue pairs that the lab ended.
    pub revoked: u64,
    /// Those of its nodes that conditions refuse queue pairs to.
    #[serde(default)]
    pub conditioned: BTreeSet<NodeId>,
    /// Nodes of the lab that do not hear one another now.
    #[serde(default, skip_serializing_if = "Parted::is_empty")]
    pub parted: Parted,
    /// The way of queue pairs to other machines. `None`: the lab has one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedBy>,
    /// The way to peers outside of the lab, with queue pairs of this host's nodes. `None`: no network has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<GatewayStatus>,
}

/// The use of a node's RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeVerbs {
    /// Index of the node in the lab.
    pub node: NodeId,
    /// Programs that have the device open.
    pub programs: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Registered regions of memory.
    pub regions: usize,
    /// Bytes of these regions.
    pub registered: u64,
    /// Connections of the queue pairs.
    pub links: Vec<LinkOfNode>,
    /// Traffic with each peer since the broker began.
    #[serde(default)]
    pub totals: Vec<PeerOfNode>,
}

/// Traffic of a node with one other, with that of connections which have ended. It is the node's own word: its programs count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerOfNode {
    /// Index of the other node in the lab; `None` for all that share one count.
    pub peer_node: Option<NodeId>,
    /// The traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// A connection of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOfNode {
    /// The node's queue pair.
    pub queue_pair: u32,
    /// Index of the node at the other end.
    pub peer_node: NodeId,
    /// Its queue pair.
    pub peer: u32,
    /// Whether both programs have joined.
    pub joined: bool,
    /// Whether the broker relays it, because a rule limits it.
    #[serde(default)]
    pub relayed: bool,
    /// Whether RDMA devices of the two machines carry it.
    #[serde(default)]
    pub by_device: bool,
    /// Its traffic, as the node itself says.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Sends a message.
pub(super) fn send(mut socket: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    socket.write_all(&[&length.to_ne_bytes()[..], &text].concat())
}

/// Receives a message; `None` where the other side is gone.
pub(super) fn receive<T: DeserializeOwned>(mut socket: &UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = usize::try_from(u32::from_ne_bytes(length)).map_err(io::Error::other)?;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    socket.read_exact(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_and_the_end_of_the_other_side_too() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let nodes: Vec<NodeId> = (0..1000).map(NodeId).collect();
        send(&ours, &Order::Died { nodes: nodes.clone() }).expect("sent");
        drop(ours);
        let heard: Option<Order> = receive(&theirs).expect("heard");
        assert!(matches!(heard, Some(Order::Died { nodes: those }) if those == nodes));
        assert!(receive::<Order>(&theirs).expect("the end").is_none());
    }
}

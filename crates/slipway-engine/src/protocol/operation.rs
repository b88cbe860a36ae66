//! Operations of a lab's anchor and of a scenario's player: a type for each, which names the type of its reply.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::Order;

use super::log::LogPiece;
use super::state::State;
use crate::condition::LinkReport;
use crate::fast::FastReport;
use crate::network::graph::Graph;

/// An operation of a service.
pub trait Operation: Into<Self::Service> {
    /// All requests that the service takes.
    type Service: Service;
    /// The answer of a request that succeeds.
    type Reply: Serialize + DeserializeOwned;
}

/// The requests of a service.
pub trait Service: Serialize + DeserializeOwned {
    /// The work that a request is, as in "starting nodes".
    fn work(&self) -> &'static str;

    /// How many descriptors come along.
    fn descriptors(&self) -> usize {
        0
    }
}

/// The enumeration of a service's requests, and the reply of each.
macro_rules! service {
    ($(#[$doc:meta])* $service:ident { $($operation:ident -> $reply:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "each operation says it")]
        pub enum $service { $($operation($operation)),* }

        $(
            impl From<$operation> for $service {
                fn from(operation: $operation) -> Self {
                    Self::$operation(operation)
                }
            }

            impl Operation for $operation {
                type Service = $service;
                type Reply = $reply;
            }
        )*
    };
}

service! {
    /// Requests to an anchor. Nodes are indices into the lab.
    Request {
        Change -> Ended,
        Prepare -> Ended,
        Lift -> Ended,
        Settle -> Ended,
        RestoreLinks -> Ended,
        HoldAnswers -> (),
        Halt -> (),
        Relocate -> (),
        ReadLinks -> LinkReport,
        SetPolicy -> Ended,
        ReadPolicy -> Vec<Rule>,
        ReadGraph -> Graph,
        HearProgram -> (),
        ReadFast -> FastReport,
        ReadSockets -> Descriptor,
        ReadState -> State,
        ReadLog -> LogPiece,
        FollowLog -> Descriptor,
        Keep -> (),
    }
}

service! {
    /// Requests to the player of a scenario.
    PlayerRequest {
        Pause -> (),
        Resume -> (),
        JobEnded -> (),
        Alone -> (),
        End -> (),
    }
}

/// Fast connections that an operation ended, since they would not have kept what holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Their number.
    pub connections: u64,
}

/// The answer is the descriptor that travels beside this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor;

/// Carries out the anchor's part of an order. The anchor waits for nothing, so the asker does the steps that take time
/// ([`Running::give`](crate::lab::Running::give)). It waits for the grace time before a kill, and stops programs before a freeze.
/// It lets them go on after a thaw, and sets limits, of which the anchor has no part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The order. Nodes that are so already are left alone.
    pub order: Order,
    /// For changes of links: the number of the overlay that holds until [`Lift`]; `None` for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<usize>,
}

/// Puts in place what an order will need of links, so that little is left to do when it is given. It stays until [`Settle`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    /// The order.
    pub order: Order,
}

/// Lifts an overlay. One that there is not is fine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lift {
    /// The overlay's number.
    pub overlay: usize,
}

/// Takes away what was prepared and is not needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {}

/// All parts of a lab over several machines are made: it stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {}

/// Silences nodes' links, then ends every process in them. Files and links stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The nodes.
    pub nodes: Vec<NodeId>,
}

/// Has routers answer no calls of these nodes' programs, until the [`Change`] that freezes the nodes, or for a second. A thread that
/// is frozen in the moment of an answer would not hear it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldAnswers {
    /// The nodes.
    pub nodes: Vec<NodeId>,
}

/// Has a node that does not run on another virtual host, for good. Its files, name, addresses, limits and conditions stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocate {
    /// The node.
    pub node: NodeId,
    /// The host.
    pub host: HostId,
}

/// Makes all links what the lab file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreLinks {}

/// Reports how links are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLinks {}

/// Puts rules in the place of all that there were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPolicy {
    /// In order; the first that fits a connection decides.
    pub rules: Vec<Rule>,
}

/// Reports the rules that hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPolicy {}

/// Reports the namespaces and devices of the lab's networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadGraph {}

/// Has the router of a node's host hear the calls of a program. The listener of its seccomp filter comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HearProgram {
    /// The node that the program is in.
    pub node: NodeId,
}

/// Reports how the fast path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFast {}

/// Gives back a descriptor of the BPF map in which routers note their sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSockets {}

/// Reports how nodes are, those that have ended just now included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadState {}

/// Reads a piece of what a node's own programs printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadLog {
    /// The node.
    pub node: NodeId,
    /// Position of the piece's first byte, counted since the lab came up.
    pub from: u64,
}

/// Gives back a pipe that is readable whenever a node's log has grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLog {
    /// The node.
    pub node: NodeId,
}

/// Stops a scenario's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {}

/// Lets a scenario's clock go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {}

/// Tells the player of a part that the job beside the scenario has ended, on another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnded {}

/// Tells the player of a part that nothing more comes from its coordinator: the part ends with the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {}

/// Ends a scenario before its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {}

impl Request {
    /// The nodes that it names. Those of links are checked where links are changed.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        match self {
            Self::Change(Change { order, .. }) | Self::Prepare(Prepare { order }) => order.nodes(),
            Self::Halt(Halt { nodes }) | Self::HoldAnswers(HoldAnswers { nodes }) => nodes,
            Self::Relocate(Relocate { node, .. })
            | Self::HearProgram(HearProgram { node })
            | Self::ReadLog(ReadLog { node, .. })
            | Self::FollowLog(FollowLog { node }) => std::slice::from_ref(node),
            _ => &[],
        }
    }
}

impl Service for Request {
    fn work(&self) -> &'static str {
        match self {
            Self::Change(Change { order: Order::Start { .. }, .. }) => "starting nodes",
            Self::Change(Change { order: Order::Kill { .. }, .. }) | Self::Halt(_) => "ending nodes",
            Self::Change(_) | Self::Prepare(_) | Self::Lift(_) | Self::Settle(_) | Self::RestoreLinks(_) => {
                "changing links"
            }
            Self::Relocate(_) => "moving nodes",
            Self::Keep(_) => "hearing of other machines",
            Self::ReadLinks(_) | Self::ReadGraph(_) => "reporting on links",
            Self::ReadState(_) | Self::ReadLog(_) | Self::FollowLog(_) => "seeing to nodes' programs",
            Self::HoldAnswers(_)
            | Self::SetPolicy(_)
            | Self::ReadPolicy(_)
            | Self::HearProgram(_)
            | Self::ReadFast(_)
            | Self::ReadSockets(_) => "seeing to the fast path",
        }
    }

    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::HearProgram(_)))
    }
}

impl Service for PlayerRequest {
    fn work(&self) -> &'static str {
        match self {
            Self::Pause(_) => "pausing the scenario",
            Self::Resume(_) => "resuming the scenario",
            Self::End(_) => "ending the scenario",
            Self::JobEnded(_) | Self::Alone(_) => "hearing of the job beside the scenario",
        }
    }
}

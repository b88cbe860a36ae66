//! Operations of a lab's anchor and of a scenario's player: a type for each, which names the type of its reply.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::{self, LinkAction};

use crate::condition::LinkReport;
use crate::fast::FastReport;
use crate::state::State;

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
        Start -> (),
        Halt -> (),
        Kill -> (),
        Freeze -> (),
        Thaw -> (),
        PrepareFreeze -> (),
        ChangeLinks -> Ended,
        LiftLinks -> Ended,
        PrepareLinks -> Ended,
        SettleLinks -> Ended,
        RestoreLinks -> Ended,
        ReadLinks -> LinkReport,
        SetPolicy -> Ended,
        ReadPolicy -> Vec<Rule>,
        HearProgram -> (),
        ReadFast -> FastReport,
        ReadSockets -> Descriptor,
        ReadState -> State,
        FollowLog -> Descriptor,
    }
}

service! {
    /// Requests to the player of a scenario.
    PlayerRequest {
        Pause -> (),
        Resume -> (),
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

/// Gives nodes that are stopped or dead a new init. Those that run are left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Silences nodes' links, then ends every process in them. Files and links stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Ends every process in nodes. Nothing answers for them afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kill {
    /// The nodes.
    pub nodes: Vec<usize>,
    /// The way in which they end, which their peers see. The asker has waited for the grace time of a graceful end.
    pub how: scenario::Kill,
}

/// Has interfaces of nodes pass nothing. The asker has stopped their processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Has interfaces of frozen nodes pass what they passed before. The asker lets their processes go on afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thaw {
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Puts in place what freezing nodes will need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareFreeze {
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Changes links: for good, or as an overlay until that is lifted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeLinks {
    /// The number of the overlay; `None` for good.
    pub overlay: Option<usize>,
    /// The change.
    pub action: LinkAction,
}

/// Lifts an overlay. One that there is not is fine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiftLinks {
    /// The overlay's number.
    pub overlay: usize,
}

/// Puts in place what a change of links will need, so that little is left to do when it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareLinks {
    /// The change.
    pub action: LinkAction,
}

/// Takes away what was prepared and is not needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleLinks {}

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

/// Has the router of a node's host hear the calls of a program. The listener of its seccomp filter comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HearProgram {
    /// The node that the program is in.
    pub node: usize,
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

/// Gives back a pipe that is readable whenever a node's log has grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLog {
    /// The node.
    pub node: usize,
}

/// Stops a scenario's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {}

/// Lets a scenario's clock go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {}

impl Request {
    /// The nodes that it names. Those of links are checked where links are changed.
    #[must_use]
    pub fn nodes(&self) -> &[usize] {
        match self {
            Self::Start(Start { nodes })
            | Self::Halt(Halt { nodes })
            | Self::Kill(Kill { nodes, .. })
            | Self::Freeze(Freeze { nodes })
            | Self::Thaw(Thaw { nodes })
            | Self::PrepareFreeze(PrepareFreeze { nodes }) => nodes,
            Self::HearProgram(HearProgram { node }) | Self::FollowLog(FollowLog { node }) => std::slice::from_ref(node),
            _ => &[],
        }
    }
}

impl Service for Request {
    fn work(&self) -> &'static str {
        match self {
            Self::Start(_) => "starting nodes",
            Self::Halt(_) | Self::Kill(_) => "ending nodes",
            Self::Freeze(_)
            | Self::Thaw(_)
            | Self::PrepareFreeze(_)
            | Self::ChangeLinks(_)
            | Self::LiftLinks(_)
            | Self::PrepareLinks(_)
            | Self::SettleLinks(_)
            | Self::RestoreLinks(_) => "changing links",
            Self::ReadLinks(_) => "reporting on links",
            Self::ReadState(_) | Self::FollowLog(_) => "seeing to nodes' programs",
            Self::SetPolicy(_)
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
        }
    }
}

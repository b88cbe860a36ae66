//! Kernel settings that profiles gave the virtual hosts of a lab, on this machine (docs/adr/0062).

use serde::{Deserialize, Serialize};
use slipway_document::units::{Rate, Seconds};
use slipway_lab::id::{HostId, List};
use slipway_lab::model::ProfileWord;

/// The settings that a profile gave a virtual host on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The use.
    pub profile: ProfileWord,
    /// The round-trip time that the rules were asked for.
    pub rtt: Seconds,
    /// The rate that the rules were asked for.
    pub rate: Rate,
    /// The settings that hold, in the order of their effect.
    pub settings: Vec<Chosen>,
    /// Settings that the rules advise and that do not hold.
    pub left_out: Vec<LeftOut>,
}

/// A kernel setting, and the rule that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Its name in `sysctl(8)`.
    pub name: String,
    /// The value of a new network namespace.
    pub former: String,
    /// The value set.
    pub value: String,
    /// The rule.
    pub rule: String,
    /// The rule's reason, with this path's numbers.
    pub why: String,
    /// False: the host has it, and its nodes do not. The kernel keeps it from network namespaces of other users.
    pub in_nodes: bool,
}

/// Advice that is not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The setting's name in `sysctl(8)`.
    pub name: String,
    /// The value advised.
    pub value: String,
    /// The rule.
    pub rule: String,
    /// The reason why not.
    pub reason: String,
}

/// The settings of each host of a lab. `None`: its file asks for no profile.
pub type Tunings = List<HostId, Option<Tuning>>;

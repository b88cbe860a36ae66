//! Profiles of virtual hosts: uses of a machine that rules for its settings know.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_document::units::{Rate, Seconds};

/// A use of a machine, as the rules of `slipway tune` know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(description = "Uses of a machine that rules for its settings know.")]
pub enum ProfileWord {
    /// Transfers of data over long paths.
    Dtn,
    /// Programs that compute together, with low latency between them.
    Hpc,
    /// Any server that moves much data.
    Server,
}

impl ProfileWord {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dtn, Self::Hpc, Self::Server];
}

impl fmt::Display for ProfileWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dtn => "dtn",
            Self::Hpc => "hpc",
            Self::Server => "server",
        })
    }
}

/// A use of a virtual host, and the path that its transfers take. Rules make settings of it when the lab comes up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The use.
    pub word: ProfileWord,
    /// The round-trip time of the path. `None`: a usual one of the use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Seconds>,
    /// The rate that transfers are to reach. `None`: that of the machine's fastest link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

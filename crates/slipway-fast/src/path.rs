//! The two kinds of fast connections.

use serde::{Deserialize, Serialize};

/// The kind of a fast connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// A pair of `unix(7)` sockets.
    Pair,
    /// A TCP connection of the host's own network.
    Tcp,
}

impl Path {
    /// The word for it, as in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Tcp => "tcp",
        }
    }
}

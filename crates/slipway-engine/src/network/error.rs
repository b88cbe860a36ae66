//! Errors of networks.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use slipway_lab::model::DriverWord;
use slipway_sys::netlink::NetlinkError;

/// A driver that cannot run here: what is missing, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// The driver, or the driver and its bypasses, by the word for them.
    pub driver: DriverWord,
    /// The missing parts of this machine.
    pub missing: String,
    /// The next step.
    pub hint: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {} cannot run on this machine: {}\nHint: {}", self.driver, self.missing, self.hint)
    }
}

/// Why a network cannot be had. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// This machine cannot run the driver.
    #[error("make network {network}: {reason}")]
    Unsupported {
        /// The network's name.
        network: String,
        /// The missing part.
        reason: Unsupported,
    },
    /// The network asks for something that its driver cannot give.
    #[error("make network {network}: {reason}")]
    Impossible {
        /// The network's name.
        network: String,
        /// The action, the reason and a hint.
        reason: String,
    },
    /// The kernel refused a part of a network.
    #[error("make network {network}: {error}")]
    Network {
        /// The network's name.
        network: String,
        /// The error of the refused request.
        error: NetlinkError,
    },
    /// The kernel refused something that belongs to no one network.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Devices of an anchor that has ended are still there.
    #[error("wait for the kernel to remove network device {}", .0.join(", "))]
    Remain(Vec<String>),
    /// The kernel does not say whether devices are gone.
    #[error("wait for network devices to go: {0}")]
    Watch(NetlinkError),
    /// A system call or a file.
    #[error("{what}: {error}")]
    System {
        /// The failed action.
        what: String,
        /// The error of the action.
        error: io::Error,
    },
}

impl NetworkError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }

    pub(super) fn impossible(network: &str, reason: impl Into<String>) -> Self {
        Self::Impossible { network: network.to_owned(), reason: reason.into() }
    }

    pub(super) fn of(network: &str) -> impl FnOnce(NetlinkError) -> Self {
        move |error| Self::Network { network: network.to_owned(), error }
    }
}

//! Why a network cannot be had.

use std::io;

use slipway_sys::netlink::NetlinkError;

use super::driver::Unsupported;

/// Why a network cannot be had. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// This machine cannot run the driver.
    #[error("make network {network}: {reason}")]
    Unsupported {
        /// The network's name.
        network: String,
        /// What is missing.
        reason: Unsupported,
    },
    /// The network asks for something that its driver cannot give.
    #[error("make network {network}: {reason}")]
    Impossible {
        /// The network's name.
        network: String,
        /// What, why, and a hint.
        reason: String,
    },
    /// The kernel refused a part of a network.
    #[error("make network {network}: {error}")]
    Network {
        /// The network's name.
        network: String,
        /// What it refused.
        error: NetlinkError,
    },
    /// The kernel refused something that belongs to no one network.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A system call or a file.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What came of it.
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

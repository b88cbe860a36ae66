//! Slipway's user-space link: `tc-netem(8)` for frames that a TAP device hands out. It serves kernels that have no
//! netem, and conditions between pairs of nodes, for which netem would need a tree of queueing disciplines.
//!
//! One process for a lab reads frames from the devices, and decides about each by a model that draws from seeded
//! streams ([`link`]). It keeps a frame until it is due ([`wheel`]), and writes it back to its device. Other crates
//! bring frames to the device and take them on from there.
//!
//! A cap on memory (1 GiB) holds for all frames that wait together.

mod clock;
mod confine;
mod control;
pub mod frame;
mod line;
pub mod link;
mod packet;
mod peers;
mod pool;
mod port;
mod process;
mod protocol;
mod random;
pub mod segment;
mod shuttle;
mod spec;
mod stats;
mod transmitter;
pub mod wheel;

use serde::{Deserialize, Serialize};

pub use control::Wire;
pub use slipway_lab::scenario::Direction;
pub use spec::{Peer, Spec, default_limit};
pub use stats::{ALARM_NS, Late, PortStats};

/// How a wire's process is preferred to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// Real-time, first in first out (`sched(7)`).
    Fifo,
    /// The highest ordinary priority.
    Nice,
    /// Not at all: delays suffer under load.
    Plain,
}

/// Why a wire did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The wire's process could not start.
    #[error("start the wire: {0}")]
    Start(String),
    /// The wire's process ended.
    #[error("ask the wire: its process is gone\nHint: look for it in the kernel's log (dmesg); was it out of memory?")]
    Gone,
    /// It said why not, and changed nothing.
    #[error("ask the wire: {0}")]
    Refused(String),
    /// The kernel refused.
    #[error("ask the wire: {0}")]
    Io(#[from] std::io::Error),
}

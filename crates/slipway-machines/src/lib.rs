//! One lab over several machines.
//!
//! Each machine makes its part of the lab: the virtual hosts that are on it, and their nodes, below an anchor of its own.
//! The command that a user starts is the **coordinator**, for as long as it works. It starts `slipway machine` on each
//! machine, over ssh or whatever `SLIPWAY_RSH` names, and gives it [`Order`](message::Order)s. There is no daemon.
//!
//! Every part knows the whole lab, so it can name each node, and has what it needs to reach the nodes of all others. ADR 0067
//! says why.

pub mod ask;
pub mod away;
pub mod batch;
pub mod changes;
mod channel;
pub mod doctor;
mod error;
pub mod hold;
mod images;
pub mod input;
pub mod message;
pub mod packed;
pub mod play;
mod probe;
pub mod serve;
mod shared;
mod shepherd;
pub mod up;
pub mod verify;

pub use error::MachineError;
pub use slipway_engine::rsh;

//! Commands of Slipway on other machines, over mutual TLS in the place of ssh.
//!
//! An agent listens on each machine. Machines know each other's public keys from a file, as ssh's `known_hosts` and
//! `authorized_keys` in one. A client names a machine, and gives words as to ssh; the agent executes Slipway with them, and
//! nothing else. A connection is one command.

mod error;
pub mod frame;
pub mod keys;
mod run;
mod serve;

pub use error::AgentError;
pub use run::run;
pub use serve::{Agent, Peer};

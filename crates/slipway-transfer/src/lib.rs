//! Data sets between hosts: a sender and a receiver, over parallel streams of TLS 1.3.
//!
//! The [sender](send::send) lists its files in *orders*, and the receiver says in *answers* which of their blocks it has
//! already. Data goes over as many streams as the path rewards. Every frame carries a BLAKE3 tag, which binds it to its
//! session, its stream and its place therein ([`frame`]).
//!
//! The receiver gathers a file in `.slipway-part` below the destination, under a name that follows from its path, and
//! renames it when the disk has all its bytes; small ones go without the folder (docs/adr/0059). A later run hashes what lies there, and what an older version holds, and asks
//! for the rest alone ([`blocks`]). So there is no journal that a power failure could part from the data (docs/adr/0054).
//!
//! Both ends know one [token](token::Token). The server's key of TLS follows from it, and the client proves that it knows
//! the token too (docs/adr/0055).
//!
//! Peers are hostile. Each end checks a path when it reads it ([`path`]). The receiver opens directories beneath the
//! destination without following links (`tree`). No declared length makes either end allocate.

pub mod agent;
pub mod blocks;
mod counts;
pub mod error;
pub mod frame;
#[cfg(test)]
mod hostile;
mod link;
pub mod message;
mod meta;
pub mod path;
mod path_rules;
pub mod pull;
mod receive;
mod report;
pub mod send;
pub mod serve;
pub mod tls;
pub mod token;
mod tree;

pub use error::TransferError;

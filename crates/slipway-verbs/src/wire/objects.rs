//! Objects of programs, as packets name them.

use serde::{Deserialize, Serialize};

use super::Transport;

/// A part of a region that lies on a file which peers may map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Address of its first byte, as peers name it.
    pub start: u64,
    /// Length in bytes: whole pages, and the file's length.
    pub length: u64,
}

/// A region of memory that peers may name by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Address of its first byte, as peers name it.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Access flags (`enum ibv_access_flags`).
    pub access: u32,
    /// The part that peers reach without the owner's help.
    pub shared: Option<Shared>,
}

/// A broker's proof that a number is a node's: only brokers of the lab can make it.
pub type Proof = [u8; 16];

/// An object of a program that outlives its broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Object {
    /// A queue pair.
    QueuePair {
        /// Its number.
        number: u32,
        /// Its transport.
        transport: Transport,
        /// The protection domain.
        domain: u32,
    },
    /// Registered memory. Peers that do not have its file yet ask its owner for each operation.
    Region {
        /// Its key.
        key: u32,
        /// The protection domain.
        domain: u32,
        /// The memory.
        region: Region,
    },
}

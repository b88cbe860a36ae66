//! The plug-in: a provider of libibverbs, loaded into the programs of a node.
//!
//! C calls come in by [`calls`] and its modules, which alone know libibverbs' structures ([`abi`](crate::abi)). They find the state of an
//! open device, [`device`], behind one lock. A thread of service takes that lock as the program does ([`service`]).
//! A peer shares the memory of [`connection`], and nothing that is read there is trusted.

mod abroad;
mod address;
mod calls;
mod client;
mod connection;
mod device;
mod direct;
mod failure;
mod far;
mod forks;
mod gateway;
mod groups;
mod imports;
mod loader;
mod maps;
pub(crate) mod memory;
mod operation;
pub(crate) mod outlet;
mod outside;
mod pages;
mod queues;
mod receive;
mod regions;
mod registration;
mod rejoin;
mod ring;
mod service;
mod tally;
mod transmit;
mod waiters;

pub use connection::keeps_peer;

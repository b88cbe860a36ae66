//! An RDMA device for nodes on machines without one: unmodified verbs programs talk through shared memory.
//!
//! Four parts:
//!
//! - The **plug-in** (module `plugin`) is a provider. The node's own libibverbs loads it into each program.
//! - The **broker** ([`broker`]) is one process per virtual host. It names queue pairs and regions, asks the policy, and hands
//!   both ends of a connection the memory that only they share. It takes no part in the data path.
//! - The **carrier** ([`carrier`]) is a program that moves streams between machines by a device that they have.
//! - The **gateway** ([`gateway`]) is a program that joins queue pairs with peers outside of the lab by such a device.
//!
//! Plug-in and broker speak the messages of [`wire`]. `docs/adr/0057-verbs-by-a-plug-in.md` says why, and
//! `docs/verbs-threats.md` what a hostile program can do.

pub mod abi;
pub mod broker;
pub mod carrier;
pub mod gateway;
pub mod layout;
pub mod management;
pub mod plugin;
mod servant;
pub mod untrusted;
pub mod wire;

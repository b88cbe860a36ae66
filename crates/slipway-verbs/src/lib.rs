//! An RDMA device for nodes on machines without one: unmodified verbs programs talk through shared memory.
//!
//! Two parts speak the messages of [`wire`]:
//!
//! - the **plug-in** (module `plugin`), a provider that the node's own libibverbs loads into each program, and
//! - the **broker** ([`broker`]), one process per virtual host, which names queue pairs and regions, asks the policy, and hands
//!   both ends of a connection the memory that only they share.
//!
//! The broker takes no part in the data path. `docs/adr/0057-verbs-by-a-plug-in.md` says why, and
//! `docs/verbs-threats.md` what a hostile program can do.

pub mod broker;
pub mod layout;
pub mod plugin;
pub mod wire;

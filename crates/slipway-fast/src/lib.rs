//! The fast path for sockets: TCP connections of unmodified programs slip past the container network, under policy.
//!
//! A network with `driver: fast` has a base network beneath it. The few calls that set a connection up (`connect`, `accept`, …)
//! wait for the host's router, a seccomp supervisor (`seccomp_unotify(2)`). The router carries them out on copied arguments, and
//! puts the finished socket at the program's descriptor. Data then flows without the router: over a pair of `unix(7)` sockets
//! within a host, over a TCP connection of the hosts' network between two. The router leaves a connection on the base network
//! where it cannot keep it as it was, and counts the reason. `docs/fast-path.md` is the design.
//!
//! # Layers
//! A module uses those above it in this table, and never those below. `crates/slipway/tests/modules.rs` holds that.
//!
//! | layer | modules |
//! | --- | --- |
//! | values | `address`, [`address_map`], `path`, [`reason`], `timestamps`, `bounded`, `sync`, [`rdma_wire`] |
//! | sockets | `emulation`: TCP's options on a pair; [`metadata`]: what is stored on a socket; [`policy`]; [`filter`]: the trapped calls |
//! | looking at programs | [`walk`], [`flows`], [`revoke`](mod@revoke), `epolls`, `replaced_sockets` |
//! | between routers and anchor | [`channel`], [`peers`], [`control`], [`status`], [`counts`], [`journal`] |
//! | state of one tree or node | `reply_tracker`, `interrupted_connects`, `tree`, `listener_copies`, `listener_cache`, [`wakeup`], `pending`, `blocked_accepts`, `node_table` |
//! | parts of a router | `admission`, `ends`, `limits`, `furnish`, `delivery`, [`unsupported_options`], [`pairs`], `loopback`, `numbers`, `rdma` |
//! | calls | `parts`, then `call`: a file for each trapped call |
//! | threads | `helpers`, [`router`] |
//! | the process | [`setup`], [`confine`], [`run`] |
//!
//! Each part has a state and locks of its own, and none knows the router. A call gets the `parts`, its tree of programs, and its
//! node's blocked accepts.

mod address;
pub mod address_map;
mod admission;
mod blocked_accepts;
mod bounded;
mod call;
pub mod channel;
pub mod confine;
pub mod control;
pub mod counts;
mod defaults;
mod delivery;
mod emulation;
mod ends;
mod epoll_entry;
mod epolls;
pub mod filter;
pub mod flows;
mod furnish;
pub mod gate;
mod helpers;
mod interrupted_connects;
pub mod journal;
mod limits;
mod listener_cache;
mod listener_copies;
mod loopback;
pub mod metadata;
mod node_table;
mod numbers;
pub mod pairs;
mod parts;
mod path;
pub mod peers;
mod pending;
pub mod policy;
mod rdma;
pub mod rdma_wire;
pub mod reason;
pub mod records;
mod replaced_sockets;
mod reply_tracker;
pub mod revoke;
pub mod router;
pub mod run;
pub mod setup;
mod shares;
pub mod status;
mod sync;
mod timestamps;
mod tree;
pub mod unsupported_options;
pub mod wakeup;
pub mod walk;

#[cfg(test)]
extern crate self as slipway_fast;
#[cfg(test)]
#[allow(dead_code, reason = "each test file uses its own part")]
#[path = "../tests/nodes/mod.rs"]
mod nodes;

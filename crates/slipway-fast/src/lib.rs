//! The fast path for sockets: TCP connections of unmodified programs slip past the container network, under policy.
//!
//! A network with `driver: fast` has an ordinary container network beneath it. The few calls that set a connection up
//! (`connect`, `accept`, …) come to the host's router by seccomp's user notification (`seccomp_unotify(2)`);
//! the router carries them out itself on copied arguments, and puts the finished socket into the program at the
//! descriptor that it knows. Data then flows with no one in between: over a pair of `unix(7)` sockets within a host, over
//! a TCP connection of the hosts' own network between two. What the fast path cannot keep as it was, it leaves on the
//! container network, for a named reason.
//!
//! - [`router`]: the threads that serve programs; [`call`]: the calls that they make; [`reason`]: why one was left alone.
//! - [`metadata`]: what is written on a socket; [`personality`]: what it says of itself; [`wakeup`]: how listeners hear.
//! - [`channel`]: what routers say to each other, and the connections between hosts that they keep warm.
//! - [`policy`]: who may talk to whom, how fast, and how often at once; [`limits`]: what holds connections to that.
//! - [`unsupported`]: options of sockets that cannot be kept; connections of those are left alone.
//! - [`unix`], [`loopback`]: connections within a host, as fast as can be, and those that have packets to be paced.
//! - [`run`]: a router's process, from its [`setup`] on; [`control`]: what the lab's anchor orders, and what it reports.
//! - [`flows`]: connections that live, seen from outside; [`revoke`](mod@revoke): how those end that may not live any more.

mod address;
pub mod address_map;
mod blocked_accepts;
mod bounded;
mod call;
pub mod channel;
pub mod confine;
pub mod control;
pub mod counts;
mod defaults;
mod emulation;
mod ends;
mod epolls;
pub mod filter;
pub mod flows;
mod helpers;
mod interrupted_connects;
pub mod journal;
mod limits;
mod listener_cache;
mod listener_copies;
mod loopback;
pub mod metadata;
pub mod pairs;
pub mod peers;
mod pending;
pub mod policy;
pub mod reason;
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

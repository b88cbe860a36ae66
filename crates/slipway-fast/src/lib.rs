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
//! - [`note`]: what is written on a socket; [`personality`]: what it says of itself; [`knock`]: how listeners hear.
//! - [`channel`]: what routers say to each other, and the connections between hosts that they keep warm.
//! - [`policy`]: who may talk to whom, how fast, and how often at once; [`limits`]: what holds connections to that.
//! - [`unkept`]: options of sockets that cannot be kept; connections of those are left alone.
//! - [`unix`], [`loopback`]: connections within a host, as fast as can be, and those that have packets to be paced.
//! - [`run`]: a router's process, from its [`setup`] on; [`control`]: what the lab's anchor orders, and what it reports.
//! - [`flows`]: connections that live, seen from outside; [`revoke`](mod@revoke): how those end that may not live any more.

mod address;
mod call;
pub mod channel;
pub mod confine;
pub mod control;
mod copies;
pub mod counts;
mod defaults;
mod doors;
mod ends;
mod epolls;
pub mod filter;
pub mod flows;
mod helpers;
mod interrupted;
pub mod knock;
mod latest;
pub mod ledger;
mod limits;
mod loopback;
pub mod note;
mod originals;
mod park;
pub mod peers;
mod pending;
mod personality;
pub mod places;
pub mod policy;
pub mod reason;
pub mod revoke;
pub mod router;
pub mod run;
pub mod setup;
mod shares;
pub mod status;
mod sync;
mod timestamps;
mod told;
mod tree;
pub mod unix;
pub mod unkept;
pub mod walk;

#[cfg(test)]
extern crate self as slipway_fast;
#[cfg(test)]
#[allow(dead_code, reason = "each test file uses its own part")]
#[path = "../tests/nodes/mod.rs"]
mod nodes;

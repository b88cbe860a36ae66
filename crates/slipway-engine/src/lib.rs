//! Makes a lab real: nodes, images, networks, programs in nodes, jobs.
//!
//! There is no daemon. A running lab is its **anchor**, a process that `slipway up` leaves behind, and one small
//! **init** per node, the anchor's children. The anchor holds the lab's namespaces by descriptor; nothing of them is
//! bound into the file system. End the anchor and the kernel takes the lab apart.

mod anchor;
mod bypass;
mod bypasses;
mod cgroup;
pub mod condition;
mod confine;
pub mod copy;
pub mod disk;
pub mod exec;
pub mod facts;
pub mod fast;
mod guard;
mod hierarchy;
pub mod job;
mod kernel;
pub mod lab;
pub mod lack;
pub mod machine;
pub mod network;
mod node;
mod packet;
pub mod probe;
pub mod protocol;
mod remains;
pub mod rsh;
pub mod scenario;
pub mod state;
mod sysctl;
pub mod tuning;
pub mod verbs;

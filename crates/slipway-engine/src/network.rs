//! Networks: one driver a file behind one small trait, on virtual hosts that are network namespaces.
//!
//! The lab's anchor builds the [`Fabric`]: a namespace for every virtual host, the underlay that joins them, and what the
//! nodes of each network share (bridges, tunnels, switches). It then attaches nodes, many at a time; each node's init sets
//! its own interfaces up from within, in parallel with the others ([`prepare_node`], [`configure_node`]). Last, the anchor
//! [opens](Fabric::open) the networks: until then nothing passes, so that a thousand nodes do not greet each other one by
//! one as they appear.
//!
//! Everything hangs on namespaces held by descriptor. When the anchor ends, the kernel takes it all away.

mod bridge;
mod device;
mod driver;
mod drivers;
mod error;
mod fabric;
pub mod graph;
mod host;
mod macvlan;
mod made;
mod members;
mod node;
mod ovs;
mod policy;
mod site;
mod solicit;
mod sriov;
mod switch;
mod trunk;
mod vacant;
mod vxlan;
mod wire;

pub use driver::Probed;
pub use drivers::{Mechanism, moves, plan, survey};
pub use error::{NetworkError, Unsupported};
pub use fabric::{Fabric, NodeNet};
pub use host::{mark, sources, wait_until_gone};
pub use members::VXLAN_OVERHEAD;
pub use node::{configure_node, prepare_node};
pub(crate) use switch::keeps_addresses;
pub use trunk::TUNNEL_PORT;
pub use vacant::is_vacant;

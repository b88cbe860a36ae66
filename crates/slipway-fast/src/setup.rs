//! The values that a router starts with. Everything else comes over its [control](crate::control) connection.

use std::net::{SocketAddr, TcpListener};

use slipway_lab::id::HostId;

use crate::address_map::AddressMap;
use crate::channel::{Hello, KeyFile};
use crate::control::RouterEnd;
use crate::policy::Policy;
pub use crate::rdma::Outside;
use crate::router::PersistentState;

/// The port at which routers accept each other, on their hosts' addresses of the underlay. One port suffices, for each
/// router has its host's network namespace. It is not registered with IANA.
pub const PORT: u16 = 6953;

/// Everything that a router works with, once its process has given up what it does not need. The process is in its virtual
/// host's network namespace, and single-threaded.
#[derive(Debug)]
pub struct RouterSetup {
    /// Index of its virtual host in the lab.
    pub host: HostId,
    /// The interface of every virtual address of the lab's fast networks.
    pub address_map: AddressMap,
    /// The state that outlives the router.
    pub persistent: PersistentState,
    /// The file with the lab's key, read once and closed.
    pub key: KeyFile,
    /// This router's identity to the others.
    pub hello: Hello,
    /// The socket at which it accepts them, on its host's address of the underlay. It outlives the router, so that others wait
    /// for the next one in its queue. `None` where the lab has one host.
    pub listener: Option<TcpListener>,
    /// The other hosts of the lab, and the addresses of their routers.
    pub peers: Vec<(u32, SocketAddr)>,
    /// The way to RDMA peers outside of the lab, where a network has any.
    pub outside: Option<Outside>,
    /// The policy.
    pub policy: Policy,
    /// Its connection to the anchor.
    pub control: RouterEnd,
}

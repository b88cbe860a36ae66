//! What a router is begun with. Everything else comes over its [control](crate::control) connection.

use std::net::SocketAddr;

use crate::address_map::AddressMap;
use crate::channel::{Hello, KeyFile};
use crate::control::RouterEnd;
use crate::policy::Policy;
use crate::router::PersistentState;

/// Where routers accept each other, on their hosts' addresses of the underlay: one port, for each has a network namespace of
/// its host's own. Not registered with IANA for anything.
pub const PORT: u16 = 6953;

/// All that a router works from, at the moment that its process has given up what it does not need. It is in its virtual host's
/// network namespace, and single-threaded.
#[derive(Debug)]
pub struct RouterSetup {
    /// Index of the virtual host that it is of, in the lab.
    pub host: usize,
    /// Where every virtual address of the lab's fast networks lives.
    pub address_map: AddressMap,
    /// What outlives it.
    pub persistent: PersistentState,
    /// The file with the lab's key, read once and closed.
    pub key: KeyFile,
    /// Who this router is to the others.
    pub hello: Hello,
    /// Where it accepts them: its host's address on the underlay. `None` where the lab has one host.
    pub accepts_at: Option<SocketAddr>,
    /// The other hosts of the lab, and where their routers accept.
    pub peers: Vec<(u32, SocketAddr)>,
    /// Who may talk to whom.
    pub policy: Policy,
    /// Its connection to the anchor.
    pub control: RouterEnd,
}

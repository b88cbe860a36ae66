//! The fast path's needs of this machine, and of each node.

use slipway_fast::filter::{self, Leave};
use slipway_fast::pairs;
use slipway_lab::id::NodeId;
use slipway_lab::model::{IoUring, Lab};
use slipway_sys::ns::in_first_user_namespace;

use super::RouterState;
use crate::bypass::{Calls, Lacks, Means, Needs};
use crate::kernel;

/// The first kernel that lets who holds no `CAP_BPF` write what is kept on sockets. From 5.14 on it installs a descriptor and
/// answers a call in one step (`SECCOMP_ADDFD_FLAG_SEND`).
const OLDEST: (u32, u32) = (5, 19);

/// How this machine would run the fast path, whichever driver is beneath.
pub(crate) fn probe() -> Result<Means, Lacks> {
    let lacks = |missing: &str, hint: &str| Err(Lacks { missing: missing.to_owned(), hint: hint.to_owned() });
    if kernel::version().is_none_or(|version| version < OLDEST) {
        return lacks(
            "its kernel is older than 5.19 and does not let a router keep notes on sockets",
            "boot a newer kernel, or take driver bridge or vxlan, which are what it is built on",
        );
    }
    if !in_first_user_namespace().unwrap_or(false) {
        return lacks(
            "in a user namespace the kernel lets nobody keep notes on sockets (BPF)",
            "run slipway as root outside of one, or take driver bridge or vxlan, which are what it is built on",
        );
    }
    let mut notes = vec!["TCP alone takes the fast path; all else is carried by what is beneath".to_owned()];
    if !pairs::are_supported() {
        notes.push(
            "its kernel is older than 6.16, so that connections within a host are ones of TCP over its loopback"
                .to_owned(),
        );
    }
    if let Err(why) = filter::count_interruptions() {
        notes.push(format!("a connection can be lost where a signal keeps a program from hearing of it: {why}"));
    }
    Ok(Means { mechanism: "a fast path for TCP".to_owned(), notes })
}

/// The needs of a node: none where it is on no fast network, or has rules of its own there.
pub(crate) fn needs(lab: &Lab, routers: &[RouterState], node: NodeId) -> Needs {
    let model = &lab.nodes[node];
    let mut networks = model.networks(lab).filter_map(|network| network.bypasses.tcp).peekable();
    if model.rules_its_network() || networks.peek().is_none() {
        return Needs::default();
    }
    let io_uring = networks.any(|network| network.io_uring == IoUring::Allow);
    let options = routers.iter().any(|router| router.host == model.host && router.free_options);
    let traps = filter::traps(Leave { io_uring, options });
    Needs { calls: Some(Calls { traps, io_uring }), ..Needs::default() }
}

//! Devices, as all drivers treat them.

use std::io;

use slipway_lab::model::{DriverKind, Node};
use slipway_sys::netlink::{Netlink, NetlinkError, Offload, Refused, Request};
use slipway_sys::ns::{create_net, with_net};

use super::error::{NetworkError, Unsupported};

/// Switches every offload of a device off that it can switch.
pub(super) fn switch_offloads_off(netlink: &Netlink, name: &str) -> Result<(), NetworkError> {
    for offload in Offload::ALL {
        match netlink.set_offload(name, offload, false) {
            // A device without the offload, or with it wired off, does what is asked.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            other => other.map_err(NetworkError::system(format!("switch offloads of {name} off")))?,
        }
    }
    Ok(())
}

/// Takes a node's port that is gone for a success: the node has deleted its end of the wire.
pub(super) fn unless_gone(node: &Node, done: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    let gone = |refused: &Refused| refused.error.raw_os_error() == Some(libc::ENODEV);
    match done {
        Err(NetlinkError::Refused(refused)) if node.rules_its_network() && refused.iter().all(gone) => Ok(()),
        done => done,
    }
}

/// Has the kernel act on a device's new carrier now, and says whether there is one. By itself the kernel acts a little
/// later, and drops packets until then.
pub(super) fn settle(netlink: &Netlink, name: &str) -> Result<bool, NetworkError> {
    netlink.has_carrier(name).map_err(NetworkError::system(format!("look at the carrier of {name}")))
}

/// Tries requests in a namespace that is thrown away: whether the kernel can is told by the kernel.
pub(super) fn try_in_scratch(driver: DriverKind, module: &str, requests: &[Request<'_>]) -> Result<(), Unsupported> {
    let cannot = |missing: String, hint: String| Unsupported { driver: driver.into(), missing, hint };
    let tried = create_net().and_then(|net| {
        use std::os::fd::AsFd;
        with_net(net.as_fd(), || Netlink::open().map(|mut netlink| netlink.run(requests)))?
    });
    match tried {
        Ok(Ok(())) => Ok(()),
        Ok(Err(NetlinkError::Refused(refused)))
            if refused.iter().any(|one| one.error.kind() == io::ErrorKind::Unsupported) =>
        {
            let missing = format!("the kernel has no {module} devices");
            Err(cannot(missing, format!("load its module (modprobe {module}) or boot a kernel that has it")))
        }
        Ok(Err(error)) => Err(cannot(format!("a trial failed to {error}"), "see slipway doctor".to_owned())),
        Err(error) => Err(cannot(
            format!("no network namespace can be made: {error}"),
            "run slipway as root, or in a user namespace of your own".to_owned(),
        )),
    }
}

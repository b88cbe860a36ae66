//! The queueing discipline at an interface's root, by its kind.

use std::io;

use slipway_sys::netlink::{Handle, Netlink, NetlinkError, Qdisc, ReplaceQdisc, Request};

/// The handle of disciplines that Slipway puts there.
const OWN: u16 = 0x51;

/// `default KIND` for the one that the kernel chose, `KIND` for one that was put there. An interface that is down has none yet.
pub(super) fn read(name: &str) -> io::Result<String> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(name).map_err(io_error)?.index;
    let all = netlink.qdiscs(index).map_err(io_error)?;
    let Some(root) = all.into_iter().find(|qdisc| qdisc.parent == Handle::ROOT) else {
        return Ok("default none".to_owned());
    };
    Ok(if root.handle.major == 0 { format!("default {}", root.kind) } else { root.kind })
}

/// Puts a discipline there with the settings that it has by itself, or gives the interface back its default.
pub(super) fn write(name: &str, value: &str) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link(name).map_err(io_error)?.index;
    let request = if value.starts_with("default ") {
        Request::DeleteQdisc { index, parent: Handle::ROOT }
    } else {
        let qdisc = Qdisc::Plain(value.to_owned());
        Request::ReplaceQdisc(ReplaceQdisc { index, parent: Handle::ROOT, handle: OWN, qdisc })
    };
    netlink.run(&[request]).map_err(io_error)
}

/// The kernel's error number, where it gave one.
fn io_error(error: NetlinkError) -> io::Error {
    match error {
        NetlinkError::NoDevice(_) => rustix::io::Errno::NODEV.into(),
        NetlinkError::Socket(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

//! Identifiers of tunnels that no other lab of a machine has.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use slipway_sys::interfaces::with_address;
use slipway_sys::netlink::{Netlink, NetlinkError, NewLink, Request, Vxlan};
use slipway_sys::ns::{create_net, with_net};

use super::error::NetworkError;
use super::trunk::TUNNEL_PORT;

/// Tunnels of a lab, with room to spare: a message from elsewhere names their count.
const MOST: u32 = 2048;
/// Index of the first device: one that no device of the machine has. Kernels before 6.13 look for it there, too, although the device
/// is for another namespace (`__rtnl_newlink`, net/core/rtnetlink.c).
const FIRST: u32 = 1 << 30;

/// Whether no tunnel of this machine's network has one of `count` VXLAN network identifiers from `first` on. Tunnels of labs
/// are in namespaces that nobody else sees, so the kernel is asked by making some and removing them again.
///
/// # Errors
/// When the machine has no interface with that address, or the kernel makes no namespace.
pub fn is_vacant(first: u32, count: u32, address: Ipv4Addr) -> Result<bool, NetworkError> {
    let mut machine = Netlink::open().map_err(NetworkError::system("look for free tunnels"))?;
    let found = with_address(address.into()).map_err(NetworkError::system("list addresses"))?;
    let name = found.ok_or_else(|| {
        let reason = format!("this machine has no interface with the address {address}");
        NetworkError::impossible(
            "tunnels",
            format!("{reason}\nHint: name machines with addresses that `ip address` lists there"),
        )
    })?;
    let lower = machine.link(&name)?.index;
    let place = create_net().map_err(NetworkError::system("make a network namespace"))?;
    let numbers = 0..count.min(MOST);
    let make: Vec<Request<'_>> = numbers
        .clone()
        .map(|number| {
            let link = NewLink { name: format!("probe{number}"), index: Some(FIRST + number), ..NewLink::default() };
            let net = Some(place.as_fd());
            Request::AddVxlan(Vxlan {
                link,
                vni: first.saturating_add(number),
                local: address.into(),
                port: TUNNEL_PORT,
                lower,
                net,
            })
        })
        .collect();
    let answers = machine.run(&make);
    // The kernel removes those of a namespace some time after it ends, and they would be taken until then.
    let inside = with_net(place.as_fd(), Netlink::open).and_then(|opened| opened);
    let remove: Vec<Request<'_>> = numbers.map(|number| Request::DeleteLink(FIRST + number)).collect();
    // Those that were not made are not there.
    let _ = inside.map_err(NetworkError::system("look for free tunnels"))?.run(&remove);
    let is_taken = |error: &io::Error| error.raw_os_error() == Some(Errno::EXIST.raw_os_error());
    match answers {
        Err(NetlinkError::Refused(refused)) if refused.iter().any(|one| is_taken(&one.error)) => Ok(false),
        // Other errors are told when the tunnels are made.
        _ => Ok(true),
    }
}

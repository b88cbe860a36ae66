//! Settings that hold while one way is measured, and are put back after it.

use std::fs::File;
use std::os::fd::AsFd as _;

use slipway_sys::block::Device;
use slipway_sys::netlink::{Netlink, Request, SetLink};
use slipway_sys::ns::with_net;

use crate::rounds::Stop;

/// A setting for the time of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Everything as it is.
    Nothing,
    /// Bytes that the kernel reads ahead on the disk.
    Readahead(Device, u64),
    /// Bytes of the greatest packet at both ends of a path between nodes.
    Mtu(u32),
}

/// A disk with another readahead, until this is dropped.
#[derive(Debug)]
pub(super) struct Readahead {
    device: Device,
    before: u64,
}

impl Readahead {
    pub(super) fn set(device: Device, bytes: u64) -> Result<Self, Stop> {
        let fail = |why: &str| Stop::Failed(format!("set the readahead of device {device}: {why}"));
        let before = device.readahead().ok_or_else(|| fail("it has none"))?;
        device.set_readahead(bytes).map_err(|error| fail(&error.to_string()))?;
        Ok(Self { device, before })
    }
}

impl Drop for Readahead {
    fn drop(&mut self) {
        // A device that is gone has nothing to put back.
        let _ = self.device.set_readahead(self.before);
    }
}

/// Interfaces of nodes with another MTU, until this is dropped.
#[derive(Debug)]
pub(super) struct Mtu {
    /// Each with its network namespace, name and MTU before.
    before: Vec<(File, String, u32)>,
}

impl Mtu {
    /// Sets the MTU of interfaces, each by the init of its node and its name. All or none are set.
    pub(super) fn set(interfaces: &[(i32, String)], bytes: u32) -> Result<Self, Stop> {
        let mut held = Self { before: Vec::new() };
        for (pid, name) in interfaces {
            let fail =
                |error: &dyn std::fmt::Display| Stop::Failed(format!("set the MTU of {name} to {bytes}: {error}"));
            let net = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| fail(&error))?;
            let before = change(&net, name, bytes).map_err(|error| fail(&error))?;
            held.before.push((net, name.clone(), before));
        }
        Ok(held)
    }
}

impl Drop for Mtu {
    fn drop(&mut self) {
        for (net, name, before) in &self.before {
            // A node that has ended meanwhile has nothing to put back.
            let _ = change(net, name, *before);
        }
    }
}

/// Sets the MTU of an interface, and gives the one before.
fn change(net: &File, name: &str, bytes: u32) -> Result<u32, String> {
    let inside = || {
        let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
        let link = netlink.link(name).map_err(|error| error.to_string())?;
        let set = SetLink { index: link.index, mtu: Some(bytes), ..SetLink::default() };
        netlink.run(&[Request::SetLink(set)]).map_err(|error| error.to_string())?;
        Ok(link.mtu)
    };
    with_net(net.as_fd(), inside).map_err(|error| error.to_string())?
}

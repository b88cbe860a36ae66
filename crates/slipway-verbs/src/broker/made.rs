//! Memory and sockets of connections, as the broker makes them.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::relay::{Limit, Side};
use super::tables::Tables;
use crate::layout::{MEMORY, SIZED};
use crate::untrusted::refuse_rights;

/// The memory and the socket of each end of a connection.
pub(super) struct Made {
    pub(super) first: [OwnedFd; 2],
    pub(super) second: [OwnedFd; 2],
    pub(super) relay: Option<u64>,
}

impl Made {
    /// Two ends that share their memory, or each its own with the relay.
    pub(super) fn new(tables: &mut Tables, is_relayed: bool) -> Result<Self, Errno> {
        let (first, bell) = (memory()?, bells()?);
        if !is_relayed {
            let second = first.try_clone().map_err(|_| Errno::MFILE)?;
            return Ok(Self { first: [first, bell.0], second: [second, bell.1], relay: None });
        }
        let (second, other) = (memory()?, bells()?);
        let sides = [Side::new(&first, bell.1)?, Side::new(&second, other.1)?];
        // Nothing moves before the connection has its limit.
        let relay = tables.relay(sides, Limit { rate: Some(1), priority: 0 })?;
        Ok(Self { first: [first, bell.0], second: [second, other.0], relay: Some(relay) })
    }
}

/// The second end of a connection that the relay carries on by a stream to another host, and its number at the relay.
pub(super) fn relayed_far(tables: &mut Tables, stream: OwnedFd) -> Result<(Vec<OwnedFd>, u64), Errno> {
    let (own, bell) = (memory()?, bells()?);
    let sides = [Side::far(stream)?, Side::new(&own, bell.1)?];
    let relay = tables.relay(sides, Limit { rate: Some(1), priority: 0 })?;
    Ok((vec![own, bell.0], relay))
}

/// Sockets by which two ends wake each other. They pass no descriptors, where the kernel can refuse (Linux 6.16).
fn bells() -> Result<(OwnedFd, OwnedFd), Errno> {
    let bells = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    refuse_rights(&bells.0)?;
    refuse_rights(&bells.1)?;
    Ok(bells)
}

/// Makes the memory of a connection. Its length is sealed, and no more seals can come.
fn memory() -> Result<OwnedFd, Errno> {
    let file = memfd_create("slipway-verbs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, MEMORY as u64)?;
    fcntl_add_seals(&file, SIZED | SealFlags::SEAL)?;
    Ok(file)
}

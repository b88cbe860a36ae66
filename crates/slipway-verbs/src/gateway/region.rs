//! Protection domains of programs, and their memory as the device reaches it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::device::Device;
use super::library::made;
use super::memory::{PAGE, Pages};
use super::{Part, Span};
use crate::abi::{Mr, Pd, Sge};

/// Access that the device is asked for: local writes, and peers' writes, reads and atomic operations.
const ACCESS: u32 = 0b1111;
/// `IBV_ACCESS_LOCAL_WRITE`.
const LOCAL_WRITE: u32 = 1;

/// A protection domain.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) device: &'static Device,
    pub(super) pd: *mut Pd,
}

impl Domain {
    /// Makes one on the device.
    pub(super) fn new(device: &'static Device) -> Result<Arc<Self>, Errno> {
        // SAFETY: the device is open.
        let pd = made(unsafe { (device.library.ibv_alloc_pd)(device.context) })?;
        Ok(Arc::new(Self { device, pd }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: regions and queue pairs own the domain, so none is left.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.pd) };
    }
}

// SAFETY: the library's calls take locks where several threads use one object (rdma-core, `libibverbs`).
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// Memory that the device reaches.
#[derive(Debug)]
pub(super) struct Registration {
    domain: Arc<Domain>,
    mr: *mut Mr,
}

impl Registration {
    /// Registers memory, which stays as it is until this is dropped.
    ///
    /// # Safety
    /// The place is mapped for as long as this lives.
    pub(super) unsafe fn new(
        domain: &Arc<Domain>,
        at: usize,
        length: usize,
        start: u64,
        access: u32,
    ) -> Result<Self, Errno> {
        let access = c_int::try_from(access).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's.
        let mr =
            unsafe { (domain.device.library.ibv_reg_mr_iova)(domain.pd, at as *mut c_void, length, start, access) };
        Ok(Self { domain: Arc::clone(domain), mr: made(mr)? })
    }

    /// The key for the owner, and that for peers.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: the library's until it is dropped.
        unsafe { ((*self.mr).lkey, (*self.mr).rkey) }
    }
}

// SAFETY: as for its domain, and the numbers that it reads stay as they are.
unsafe impl Send for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, and once.
        unsafe { (self.domain.device.library.ibv_dereg_mr)(self.mr) };
    }
}

/// A region of a program's. The device lets go of it before its pages are unmapped: fields end in their order.
#[derive(Debug)]
pub(super) struct Region {
    registration: Registration,
    _pages: Pages,
    start: u64,
    at: u64,
    length: u64,
    access: u32,
}

impl Region {
    /// Registers the pages of a program's memory.
    pub(super) fn new(
        domain: &Arc<Domain>,
        (start, at, length): (u64, u64, u64),
        access: u32,
        (parts, files): (&[Part], &[OwnedFd]),
    ) -> Result<Self, Errno> {
        let access = access & ACCESS;
        let end = at.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::INVAL)?;
        start.checked_add(length).ok_or(Errno::INVAL)?;
        let first = at / PAGE * PAGE;
        let pages = Pages::new(parts, files, end - first)?;
        let place = pages.start() + usize::try_from(at - first).map_err(|_| Errno::INVAL)?;
        let bytes = usize::try_from(length).map_err(|_| Errno::NOMEM)?;
        // SAFETY: within the pages, which end after the registration.
        let registration = unsafe { Registration::new(domain, place, bytes, start, access) }?;
        Ok(Self { registration, _pages: pages, start, at, length, access })
    }

    /// The key for peers. A device may have none for memory that is the owner's alone: then that for the owner, which is as unlike
    /// others.
    pub(super) fn key(&self) -> u32 {
        let (local, remote) = self.registration.keys();
        if remote == 0 { local } else { remote }
    }

    /// Bytes of the program as the device names them; none where they are not all in this region.
    pub(super) fn name(&self, span: Span, is_written: bool) -> Option<Sge> {
        let offset = span.at.checked_sub(self.at)?;
        let end = offset.checked_add(u64::from(span.length))?;
        let may = !is_written || self.access & LOCAL_WRITE != 0;
        (end <= self.length && may).then(|| Sge {
            addr: self.start + offset,
            length: span.length,
            lkey: self.registration.keys().0,
        })
    }
}

//! The device, and news of what happens on it.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{from_mut, null_mut};

use libc::{sa_family_t, sockaddr, sockaddr_storage};
use rustix::io::Errno;

use super::library::{Library, TCP, check, check_number, made};
use crate::abi::{Channel, CmEvent, CompChannel, Context, DeviceAttr};
use crate::management::Offer;

/// Milliseconds that the kernel has to find an address or a route.
pub(super) const PATIENCE: c_int = 2000;
/// Most incomplete requests and receives of a queue pair, and spans of each. A device may have fewer.
const WINDOW: Window = Window { requests: 128, receives: 512, spans: 16 };

/// Bounds of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) requests: u32,
    pub(super) receives: u32,
    pub(super) spans: u32,
}

/// The device that has an address of the machine.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) library: &'static Library,
    pub(super) own: SocketAddr,
    pub(super) context: *mut Context,
    pub(super) events: *mut Channel,
    pub(super) completions: *mut CompChannel,
    pub(super) limits: DeviceAttr,
}

// SAFETY: the library's calls take locks where several threads use one object (rdma-core, `libibverbs`). The fields stay as
// they are.
unsafe impl Sync for Device {}

/// News of a connection.
#[derive(Debug)]
pub(super) struct News {
    /// The number that its identifier was made with.
    pub(super) number: u64,
    /// `enum rdma_cm_event_type`.
    pub(super) kind: c_int,
    pub(super) status: i32,
    /// The peer's, where a connection is established or rejected.
    pub(super) offer: Offer,
}

impl Device {
    /// Opens the device with this address, for as long as this process lives.
    pub(super) fn open(own: SocketAddr) -> Result<&'static Self, String> {
        let library = Library::load()?;
        // SAFETY: the library's objects, which live as long as this process.
        unsafe {
            let doing = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
            let events = made((library.rdma_create_event_channel)()).map_err(doing("make a channel of rdma_cm"))?;
            set_nonblocking((*events).fd).map_err(doing("make a channel of rdma_cm"))?;
            // The identifier stays, and so the device is open.
            let mut id = null_mut();
            check((library.rdma_create_id)(events, &raw mut id, null_mut(), TCP)).map_err(doing("use rdma_cm"))?;
            let mut address = address(own);
            check((library.rdma_bind_addr)(id, from_mut(&mut address).cast::<sockaddr>()))
                .ok()
                .filter(|()| !(*id).verbs.is_null())
                .ok_or_else(|| format!("no RDMA device of this machine has the address {}", own.ip()))?;
            let context = (*id).verbs;
            let completions =
                made((library.ibv_create_comp_channel)(context)).map_err(doing("make a channel of completions"))?;
            set_nonblocking((*completions).fd).map_err(doing("make a channel of completions"))?;
            let mut limits = zeroed();
            check_number((library.ibv_query_device)(context, &raw mut limits)).map_err(doing("ask the device"))?;
            Ok(Box::leak(Box::new(Self { library, own, context, events, completions, limits })))
        }
    }

    /// The device's name.
    pub(super) fn name(&self) -> String {
        // SAFETY: the device is open, and its name ends with 0.
        unsafe {
            let name = (self.library.ibv_get_device_name)((*self.context).device.cast());
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }

    /// Readable where [`news`](Self::news) has some.
    pub(super) fn events(&self) -> BorrowedFd<'static> {
        // SAFETY: open as long as this process lives.
        unsafe { BorrowedFd::borrow_raw((*self.events).fd) }
    }

    /// Readable where a queue pair has completions.
    pub(super) fn completions(&self) -> BorrowedFd<'static> {
        // SAFETY: open as long as this process lives.
        unsafe { BorrowedFd::borrow_raw((*self.completions).fd) }
    }

    /// The next news, without waiting.
    pub(super) fn news(&self) -> Option<News> {
        let mut event: *mut CmEvent = null_mut();
        // SAFETY: an event is the library's until it is acknowledged, and its data are copied before.
        unsafe {
            check((self.library.rdma_get_cm_event)(self.events, &raw mut event)).ok()?;
            let CmEvent { id, event: kind, status, ref param, .. } = *event;
            let length = usize::from(param.private_data_len);
            let has_data = matches!(kind, kind::ESTABLISHED | kind::REJECTED) && !param.private_data.is_null();
            let private = has_data.then(|| std::slice::from_raw_parts(param.private_data.cast::<u8>(), length));
            let offer = Offer {
                queue_pair: param.qp_num,
                private: private.unwrap_or_default().to_vec(),
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                rnr_retry_count: param.rnr_retry_count,
                is_valid: true,
                ..Offer::default()
            };
            let number = (*id).context as u64;
            (self.library.rdma_ack_cm_event)(event);
            Some(News { number, kind, status, offer })
        }
    }

    /// The number of the next queue pair that has completions, without waiting.
    pub(super) fn completed(&self) -> Option<u64> {
        let (mut cq, mut number) = (null_mut(), null_mut());
        // SAFETY: the kernel forgets events of queues that have ended, so this one is there.
        unsafe {
            check((self.library.ibv_get_cq_event)(self.completions, &raw mut cq, &raw mut number)).ok()?;
            (self.library.ibv_ack_cq_events)(cq, 1);
        }
        Some(number as u64)
    }

    /// The bounds that it has room for.
    pub(super) fn window(&self) -> Window {
        let most = |of: i32| u32::try_from(of).unwrap_or(1).max(1);
        Window {
            requests: WINDOW.requests.min(most(self.limits.max_qp_wr)),
            receives: WINDOW.receives.min(most(self.limits.max_qp_wr)),
            spans: WINDOW.spans.min(most(self.limits.max_sge)),
        }
    }
}

/// Kinds of news (`enum rdma_cm_event_type`).
pub(super) mod kind {
    pub(in super::super) const ADDRESS_RESOLVED: i32 = 0;
    pub(in super::super) const ROUTE_RESOLVED: i32 = 2;
    pub(in super::super) const REJECTED: i32 = 8;
    pub(in super::super) const ESTABLISHED: i32 = 9;
    pub(in super::super) const DEVICE_REMOVED: i32 = 11;
    pub(in super::super) const TIME_WAIT_ENDED: i32 = 15;
}

/// A number that the library gives back, and that is no address.
pub(super) fn label(number: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or(usize::MAX))
}

fn set_nonblocking(fd: c_int) -> Result<(), Errno> {
    // SAFETY: open as long as this process lives.
    rustix::io::ioctl_fionbio(unsafe { BorrowedFd::borrow_raw(fd) }, true)
}

#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
const FAMILY: sa_family_t = libc::AF_INET as sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
const FAMILY6: sa_family_t = libc::AF_INET6 as sa_family_t;

/// The address as `connect(2)` takes it.
pub(super) fn address(of: SocketAddr) -> sockaddr_storage {
    // SAFETY: numbers. The structure has room for either family.
    unsafe {
        let mut storage: sockaddr_storage = zeroed();
        match of {
            SocketAddr::V4(of) => {
                let place = from_mut(&mut storage).cast::<libc::sockaddr_in>();
                (*place).sin_family = FAMILY;
                (*place).sin_port = of.port().to_be();
                (*place).sin_addr.s_addr = u32::from(*of.ip()).to_be();
            }
            SocketAddr::V6(of) => {
                let place = from_mut(&mut storage).cast::<libc::sockaddr_in6>();
                (*place).sin6_family = FAMILY6;
                (*place).sin6_port = of.port().to_be();
                (*place).sin6_addr.s6_addr = of.ip().octets();
            }
        }
        storage
    }
}

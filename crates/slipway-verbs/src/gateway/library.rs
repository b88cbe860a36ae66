//! Calls of the machine's own libibverbs and librdmacm, which are loaded at run time: building needs no library.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute_copy;

use libc::sockaddr;
use rustix::io::Errno;

use crate::abi::{
    Channel, CmEvent, CmId, CompChannel, Context, Cq, DeviceAttr, Mr, Param, Pd, Qp, QpAttr, QpInitAttr, RecvWr,
    SendWr, Wc, operation,
};
use crate::servant::{functions, last};

/// `enum rdma_port_space`: reliable connections.
pub(super) const TCP: c_int = 0x0106;

functions! {
    /// The functions that the gateway calls (`rdma/rdma_cma.h`, `infiniband/verbs.h`).
    Library of &[c"librdmacm.so.1", c"libibverbs.so.1"];
    rdma_create_event_channel: unsafe extern "C" fn() -> *mut Channel,
    rdma_create_id: unsafe extern "C" fn(*mut Channel, *mut *mut CmId, *mut c_void, c_int) -> c_int,
    rdma_destroy_id: unsafe extern "C" fn(*mut CmId) -> c_int,
    rdma_bind_addr: unsafe extern "C" fn(*mut CmId, *mut sockaddr) -> c_int,
    rdma_resolve_addr: unsafe extern "C" fn(*mut CmId, *mut sockaddr, *mut sockaddr, c_int) -> c_int,
    rdma_resolve_route: unsafe extern "C" fn(*mut CmId, c_int) -> c_int,
    rdma_create_qp: unsafe extern "C" fn(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int,
    rdma_destroy_qp: unsafe extern "C" fn(*mut CmId),
    rdma_connect: unsafe extern "C" fn(*mut CmId, *mut Param) -> c_int,
    rdma_disconnect: unsafe extern "C" fn(*mut CmId) -> c_int,
    rdma_get_cm_event: unsafe extern "C" fn(*mut Channel, *mut *mut CmEvent) -> c_int,
    rdma_ack_cm_event: unsafe extern "C" fn(*mut CmEvent) -> c_int,
    ibv_get_device_name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    ibv_modify_qp: unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int,
    ibv_query_device: unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int,
    ibv_alloc_pd: unsafe extern "C" fn(*mut Context) -> *mut Pd,
    ibv_dealloc_pd: unsafe extern "C" fn(*mut Pd) -> c_int,
    ibv_reg_mr_iova: unsafe extern "C" fn(*mut Pd, *mut c_void, usize, u64, c_int) -> *mut Mr,
    ibv_dereg_mr: unsafe extern "C" fn(*mut Mr) -> c_int,
    ibv_create_comp_channel: unsafe extern "C" fn(*mut Context) -> *mut CompChannel,
    ibv_create_cq: unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq,
    ibv_destroy_cq: unsafe extern "C" fn(*mut Cq) -> c_int,
    ibv_get_cq_event: unsafe extern "C" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int,
    ibv_ack_cq_events: unsafe extern "C" fn(*mut Cq, u32),
}

/// The result of a call that gives 0 or sets `errno`.
pub(super) fn check(result: c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(last()) }
}

/// The result of a call that gives 0 or an error's number.
pub(super) fn check_number(result: c_int) -> Result<(), Errno> {
    match result.unsigned_abs() {
        0 => Ok(()),
        // Some libraries give it negative.
        number @ 1..4096 => Err(Errno::from_raw_os_error(number.cast_signed())),
        _ => Err(Errno::IO),
    }
}

/// The result of a call that gives an object, or null and sets `errno`.
pub(super) fn made<T>(object: *mut T) -> Result<*mut T, Errno> {
    if object.is_null() { Err(last()) } else { Ok(object) }
}

/// An operation of a context's device.
///
/// # Safety
/// The context is open, and the type is that of the operation.
unsafe fn operation<F: Copy>(context: *mut Context, at: usize) -> F {
    // SAFETY: the caller's. Each device has these operations, and all are pointers to functions.
    unsafe { transmute_copy(&(*context).ops[at]) }
}

/// `ibv_post_send(3)`.
///
/// # Safety
/// The queue pair is there, and the request leads to structures that live through the call.
pub(super) unsafe fn post_send(qp: *mut Qp, request: &mut SendWr) -> Result<(), Errno> {
    type Post = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller's.
    check_number(unsafe { operation::<Post>((*qp).context, operation::POST_SEND)(qp, request, &raw mut bad) })
}

/// `ibv_post_recv(3)`.
///
/// # Safety
/// As for [`post_send`].
pub(super) unsafe fn post_receive(qp: *mut Qp, request: &mut RecvWr) -> Result<(), Errno> {
    type Post = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller's.
    check_number(unsafe { operation::<Post>((*qp).context, operation::POST_RECV)(qp, request, &raw mut bad) })
}

/// `ibv_poll_cq(3)`: gives how many completions it put into `to`.
///
/// # Safety
/// The completion queue is there.
pub(super) unsafe fn poll(cq: *mut Cq, to: &mut [Wc]) -> Result<usize, Errno> {
    type Poll = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
    let most = c_int::try_from(to.len()).unwrap_or(c_int::MAX);
    // SAFETY: the caller's, and room for so many.
    let found = unsafe { operation::<Poll>((*cq).context, operation::POLL_CQ)(cq, most, to.as_mut_ptr()) };
    usize::try_from(found).map_err(|_| Errno::IO)
}

/// `ibv_req_notify_cq(3)`, for the next completion of any kind.
///
/// # Safety
/// The completion queue is there.
pub(super) unsafe fn notify(cq: *mut Cq) -> Result<(), Errno> {
    type Notify = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
    // SAFETY: the caller's.
    check_number(unsafe { operation::<Notify>((*cq).context, operation::REQ_NOTIFY_CQ)(cq, 0) })
}

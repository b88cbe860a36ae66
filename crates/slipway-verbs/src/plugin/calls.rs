//! Calls of libibverbs: devices, protection domains, regions and addresses. Queues have modules of their own.
//!
//! Each function gets pointers that libibverbs or its program vouches for, as with any provider. They lead to structures that
//! this module and its children have made, whose first member is libibverbs' own.

#![allow(unsafe_code)]

mod completions;
mod extended;
mod groups;
mod objects;
mod pairs;
mod queries;
mod requests;
mod waiting;

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::device::Device;
use super::loader::{Library, channel, library, set_errno};
use super::memory::Piece;
use crate::abi::{
    Ah, AhAttr, Context, ContextOps, Device as IbDevice, DeviceOps, Match, Mr, Pd, VerbsContext, VerbsDevice, VerbsMr,
};
use crate::wire::Gid;
use objects::OurAh;
use queries::{query_device_ex, query_port};

/// Bounds that programs can ask for. The broker's caps may be lower.
pub(super) const MAX_REQUESTS: u32 = 16_384;
pub(super) const MAX_PIECES: u32 = 16;
pub(super) const MAX_INLINE: u32 = 512;
const MAX_COMPLETIONS: c_int = 1 << 20;

/// `VERBS_MATCH_MODALIAS`.
const BY_ALIAS: u8 = 2;

static MATCHES: [Match; 2] = [
    Match {
        driver_data: null_mut(),
        modalias: c"rdma_device:*Nslipway*".as_ptr(),
        vendor: 0,
        device: 0,
        kind: BY_ALIAS,
    },
    Match { driver_data: null_mut(), modalias: null(), vendor: 0, device: 0, kind: 0 },
];

/// The plug-in's entry for libibverbs.
pub(super) static DEVICE: DeviceOps = DeviceOps {
    name: c"slipway".as_ptr(),
    match_min_abi_version: 1,
    match_max_abi_version: 1,
    match_table: MATCHES.as_ptr(),
    static_providers: null(),
    match_device: null(),
    alloc_context,
    import_context: null(),
    alloc_device,
    uninit_device,
};

/// Runs when libibverbs loads the plug-in.
#[cfg(feature = "plugin")]
#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = enter;

#[cfg_attr(not(feature = "plugin"), allow(dead_code))]
extern "C" fn enter() {
    if let Some(library) = library() {
        // SAFETY: the operations live as long as the plug-in, which is never unloaded.
        unsafe { (library.register)(&raw const DEVICE) };
    }
}

const NO: *const c_void = null();

static CONTEXT: ContextOps = ContextOps {
    advise_mr: NO,
    alloc_dm: NO,
    alloc_mw: NO,
    alloc_null_mr: NO,
    alloc_parent_domain: NO,
    alloc_pd,
    alloc_td: NO,
    async_event: NO,
    attach_counters_point_flow: NO,
    attach_mcast: groups::attach,
    bind_mw: NO,
    close_xrcd: NO,
    cq_event: completions::cq_event,
    create_ah,
    create_counters: NO,
    create_cq: completions::create_cq,
    create_cq_ex: completions::create_cq_ex,
    create_flow: NO,
    create_flow_action_esp: NO,
    create_qp: pairs::create_qp,
    create_qp_ex: pairs::create_qp_ex,
    create_rwq_ind_table: NO,
    create_srq: requests::create_srq,
    create_srq_ex: requests::create_srq_ex,
    create_wq: NO,
    dealloc_mw: NO,
    dealloc_pd,
    dealloc_td: NO,
    dereg_mr,
    destroy_ah,
    destroy_counters: NO,
    destroy_cq: completions::destroy_cq,
    destroy_flow: NO,
    destroy_flow_action: NO,
    destroy_qp: pairs::destroy_qp,
    destroy_rwq_ind_table: NO,
    destroy_srq: requests::destroy_srq,
    destroy_wq: NO,
    detach_mcast: groups::detach,
    free_context,
    free_dm: NO,
    get_srq_num: requests::get_srq_num,
    import: [NO; 3],
    modify_cq: NO,
    modify_flow_action_esp: NO,
    modify_qp: pairs::modify_qp,
    modify_qp_rate_limit: NO,
    modify_srq: requests::modify_srq,
    modify_wq: NO,
    open_qp: NO,
    open_xrcd: NO,
    poll_cq: completions::poll_cq,
    post_recv: requests::post_recv,
    post_send: requests::post_send,
    post_srq_ops: NO,
    post_srq_recv: requests::post_srq_recv,
    query_device_ex,
    query_ece: NO,
    query_port,
    query_qp: pairs::query_qp,
    query_qp_data_in_order: NO,
    query_rt_values: NO,
    query_srq: requests::query_srq,
    read_counters: NO,
    reg_dm_mr: NO,
    reg_dmabuf_mr: NO,
    reg_mr,
    req_notify_cq: completions::req_notify_cq,
    rereg_mr: NO,
    resize_cq: completions::resize_cq,
    set_ece: NO,
    unimport: [NO; 3],
};

/// The table of operations as the library that has loaded the plug-in takes it.
fn operations(library: &Library) -> *const ContextOps {
    static TABLE: OnceLock<Vec<usize>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let words = size_of::<ContextOps>() / size_of::<usize>();
        // SAFETY: the structure is of pointers alone, each of which may be absent.
        library.interface.table(unsafe { std::slice::from_raw_parts((&raw const CONTEXT).cast::<usize>(), words) })
    });
    table.as_ptr().cast()
}

/// The plug-in's own pointer behind an open context. libibverbs allocates both, and frees nothing but its own part. The context is the last
/// member of `struct verbs_context`, whose beginning grows from release to release.
///
/// # Safety
/// The context is one of [`alloc_context`].
unsafe fn own(context: *mut Context) -> *mut *const Device {
    // SAFETY: the caller's; `alloc_context` has asked for as much.
    unsafe { context.byte_add(size_of::<Context>()).cast() }
}

/// The state of the device that a context belongs to.
///
/// # Safety
/// The context is one of [`alloc_context`], and open.
pub(super) unsafe fn device(context: *mut Context) -> Arc<Device> {
    // SAFETY: the caller's.
    unsafe {
        let device = *own(context);
        Arc::increment_strong_count(device);
        Arc::from_raw(device)
    }
}

/// A null pointer, with the error in `errno(3)`.
pub(super) fn fail<T>(errno: Errno) -> *mut T {
    set_errno(errno.raw_os_error());
    null_mut()
}

/// A result as libibverbs takes it: the error's number, or 0.
pub(super) fn code(result: Result<(), Errno>) -> c_int {
    result.map_or_else(Errno::raw_os_error, |()| 0)
}

unsafe extern "C" fn alloc_device(_sysfs: *mut c_void) -> *mut VerbsDevice {
    // SAFETY: a structure of numbers and pointers, which libibverbs fills in.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

unsafe extern "C" fn uninit_device(device: *mut VerbsDevice) {
    // SAFETY: made by `alloc_device`; libibverbs gives it back once.
    drop(unsafe { Box::from_raw(device) });
}

unsafe extern "C" fn alloc_context(device: *mut IbDevice, cmd_fd: c_int, _private: *mut c_void) -> *mut VerbsContext {
    let Some(library) = library() else { return fail(Errno::NOSYS) };
    let async_fd = channel();
    let state = match Device::open(async_fd) {
        Ok(state) => state,
        Err(errno) => {
            // SAFETY: the descriptors are ours: `cmd_fd` was given over.
            unsafe {
                libc::close(cmd_fd);
                libc::close(async_fd);
            }
            return fail(errno);
        }
    };
    let interface = library.interface;
    let length = interface.context() + size_of::<*const Device>();
    // SAFETY: the interface's: libibverbs' own structure is at the beginning of these bytes.
    unsafe {
        let open = (library.init_context)(device, cmd_fd, length, null_mut(), 0).cast::<VerbsContext>();
        if open.is_null() {
            libc::close(async_fd);
            return null_mut();
        }
        (library.set_ops)(open, operations(library));
        let context = open.byte_add(interface.before_context()).cast::<Context>();
        (*context).async_fd = async_fd;
        (*context).num_comp_vectors = 1;
        own(context).write(Arc::into_raw(state));
        open
    }
}

unsafe extern "C" fn free_context(context: *mut Context) {
    // A context was made by this library.
    let Some(library) = library() else { return };
    // SAFETY: the context is open, and closed by this call.
    unsafe {
        let device = Arc::from_raw(*own(context));
        let mut state = device.lock();
        state.is_ended = true;
        state.wake_service();
        let _ = rustix::io::write(&*state.park, &1_u64.to_ne_bytes());
        drop(state);
        let open = context.byte_sub(library.interface.before_context()).cast::<VerbsContext>();
        (library.uninit_context)(open);
        libc::free(open.cast());
    }
}

unsafe extern "C" fn alloc_pd(context: *mut Context) -> *mut Pd {
    // SAFETY: the context is open.
    let device = unsafe { device(context) };
    let mut state = device.lock();
    state.domains += 1;
    Box::into_raw(Box::new(Pd { context, handle: state.domains }))
}

unsafe extern "C" fn dealloc_pd(domain: *mut Pd) -> c_int {
    // SAFETY: made by `alloc_pd`; libibverbs gives it back once.
    drop(unsafe { Box::from_raw(domain) });
    0
}

unsafe extern "C" fn reg_mr(domain: *mut Pd, at: *mut c_void, length: usize, start: u64, flags: c_int) -> *mut Mr {
    // SAFETY: the domain and its context are open.
    let (device, number) = unsafe { (device((*domain).context), (*domain).handle) };
    let memory = Piece { at: at as usize, length };
    let registered = device.lock().register(number, memory, start, flags.cast_unsigned());
    match registered {
        Ok(key) => {
            // SAFETY: a structure of numbers and pointers.
            let mut made: VerbsMr = unsafe { std::mem::zeroed() };
            made.mr.handle = key;
            made.mr.lkey = key;
            made.mr.rkey = key;
            made.access = flags;
            &raw mut Box::leak(Box::new(made)).mr
        }
        Err(errno) => fail(errno),
    }
}

unsafe extern "C" fn dereg_mr(region: *mut VerbsMr) -> c_int {
    // SAFETY: made by `reg_mr`; libibverbs gives it back once.
    let (device, region) = unsafe { (device((*region).mr.context), Box::from_raw(region)) };
    device.lock().deregister(region.mr.rkey);
    0
}

/// The address in a route.
pub(super) fn destination(attributes: &AhAttr) -> Gid {
    let mut gid = [0; 16];
    let [first, second] = attributes.grh.dgid;
    gid[..8].copy_from_slice(&first.to_ne_bytes());
    gid[8..].copy_from_slice(&second.to_ne_bytes());
    gid
}

unsafe extern "C" fn create_ah(domain: *mut Pd, attributes: *mut AhAttr) -> *mut Ah {
    // SAFETY: the program's structure.
    let attributes = unsafe { &*attributes };
    if attributes.is_global == 0 {
        return fail(Errno::INVAL);
    }
    // SAFETY: the domain is open.
    let ah = Ah { context: unsafe { (*domain).context }, pd: domain, handle: 0 };
    &raw mut Box::leak(Box::new(OurAh { ah, gid: destination(attributes) })).ah
}

unsafe extern "C" fn destroy_ah(ah: *mut Ah) -> c_int {
    // SAFETY: made by `create_ah`; libibverbs gives it back once.
    drop(unsafe { Box::from_raw(ah.cast::<OurAh>()) });
    0
}

#[cfg(test)]
mod tests;

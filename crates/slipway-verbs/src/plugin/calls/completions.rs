//! Calls on completion queues.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::zeroed;

use rustix::io::Errno;

use super::super::device::State;
use super::super::queues::{Armed, CompletionQueue};
use super::super::service;
use super::objects::OurCq;
use super::{MAX_COMPLETIONS, device, fail, waiting};
use crate::abi::{CompChannel, Context, Cq, CqEx, CqInitAttrEx, Wc};

/// Empty polls after which a poll lets others run: the peer may need this very processor. A poll that asks the kernel for what a
/// peer of another host, or the gateway, has sent takes longer, and counts as several.
const YIELD: u32 = 100;
const FAR: u32 = 10;

pub(super) unsafe extern "C" fn create_cq(
    context: *mut Context,
    cqe: c_int,
    channel: *mut CompChannel,
    _: c_int,
) -> *mut Cq {
    if !(1..=MAX_COMPLETIONS).contains(&cqe) {
        return fail(Errno::INVAL);
    }
    // SAFETY: the context is open.
    let (device, mut made) = (unsafe { device(context) }, Box::new(make()));
    made.ex.cq.context = context;
    made.ex.cq.channel = channel;
    made.ex.cq.cqe = cqe;
    let mut state = device.lock();
    let handle = (&raw const *made) as u64;
    // SAFETY: a channel of the program's, where there is one.
    let channel = (!channel.is_null()).then(|| (unsafe { (*channel).fd }, handle));
    if let (Some(_), Err(errno)) = (channel, service::start(&device, &mut state)) {
        return fail(errno);
    }
    if let Some((channel, _)) = channel {
        waiting::note(channel, &device);
    }
    let queue = CompletionQueue {
        completions: VecDeque::new(),
        queue_pairs: Vec::new(),
        armed: Armed::No,
        channel,
        events: 0,
        empty_polls: 0,
        passed: 0,
    };
    made.index = State::place(&mut state.completion_queues, queue);
    Box::into_raw(made).cast()
}

pub(super) unsafe extern "C" fn create_cq_ex(context: *mut Context, attributes: *mut CqInitAttrEx) -> *mut CqEx {
    // SAFETY: the program's structure.
    let attributes = unsafe { &*attributes };
    // Time stamps, tags and the like: the flags up to IBV_WC_EX_WITH_DLID_PATH_BITS are offered.
    if attributes.wc_flags & !0x7f != 0 || attributes.comp_mask & !1 != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let cqe = i32::try_from(attributes.cqe).unwrap_or(0);
    // SAFETY: as for `create_cq`.
    unsafe { create_cq(context, cqe, attributes.channel, 0).cast() }
}

fn make() -> OurCq {
    // SAFETY: numbers, pointers, and functions that may be absent.
    let mut made: OurCq = unsafe { zeroed() };
    let ex = &mut made.ex;
    ex.start_poll = Some(start_poll);
    ex.next_poll = Some(next_poll);
    ex.end_poll = Some(end_poll);
    ex.read_opcode = Some(read_opcode);
    ex.read_vendor_err = Some(read_vendor_err);
    ex.read_byte_len = Some(read_byte_len);
    ex.read_imm_data = Some(read_imm_data);
    ex.read_qp_num = Some(read_qp_num);
    ex.read_src_qp = Some(read_src_qp);
    ex.read_wc_flags = Some(read_wc_flags);
    ex.read_slid = Some(read_slid);
    ex.read_sl = Some(read_byte);
    ex.read_dlid_path_bits = Some(read_byte);
    made
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    // SAFETY: made by `create_cq`.
    let (device, index) = unsafe { (device((*cq).context), (*cq.cast::<OurCq>()).index) };
    {
        let mut state = device.lock();
        let Some(Some(queue)) = state.completion_queues.get(index) else { return Errno::INVAL.raw_os_error() };
        if !queue.queue_pairs.is_empty() {
            return Errno::BUSY.raw_os_error();
        }
        if let Some((channel, handle)) = queue.channel {
            state.forget_events(channel, handle);
        }
        state.completion_queues[index] = None;
    }
    // SAFETY: libibverbs has initialised both, and acknowledgements signal the condition (`ibv_ack_cq_events`).
    unsafe {
        let ours = cq.cast::<OurCq>();
        libc::pthread_mutex_lock(&raw mut (*cq).mutex);
        while (*cq).comp_events_completed != (*ours).events {
            libc::pthread_cond_wait(&raw mut (*cq).cond, &raw mut (*cq).mutex);
        }
        libc::pthread_mutex_unlock(&raw mut (*cq).mutex);
        drop(Box::from_raw(ours));
    }
    0
}

pub(super) unsafe extern "C" fn resize_cq(_: *mut Cq, _: c_int) -> c_int {
    // Queues grow as they need.
    0
}

/// The program has read an event.
pub(super) unsafe extern "C" fn cq_event(cq: *mut Cq) {
    // SAFETY: made by `create_cq`; libibverbs has read its address from the channel, where only this program writes.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*cq).mutex);
        (*cq.cast::<OurCq>()).events += 1;
        libc::pthread_mutex_unlock(&raw mut (*cq).mutex);
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, solicited_only: c_int) -> c_int {
    // SAFETY: made by `create_cq`.
    let (device, index) = unsafe { (device((*cq).context), (*cq.cast::<OurCq>()).index) };
    device.lock().arm(index, if solicited_only == 0 { Armed::Any } else { Armed::Solicited });
    0
}

pub(super) unsafe extern "C" fn poll_cq(cq: *mut Cq, count: c_int, to: *mut Wc) -> c_int {
    let Ok(count) = usize::try_from(count) else { return -1 };
    // SAFETY: the queue is made by `create_cq`, and the program gives room for `count` completions.
    let (device, ours, to) =
        unsafe { (device((*cq).context), cq.cast::<OurCq>(), std::slice::from_raw_parts_mut(to, count)) };
    let (found, weight) = {
        let mut state = device.lock();
        // SAFETY: as above.
        let found = state.poll(unsafe { (*ours).index }, to);
        (found, if state.has_far || state.is_outside() { FAR } else { 1 })
    };
    // SAFETY: a counter that is a hint: two threads that poll one queue may lose a count.
    unsafe {
        let empty = (&raw mut (*ours).empty).read_volatile();
        let empty = if found > 0 { 0 } else { empty + weight };
        (&raw mut (*ours).empty).write_volatile(if empty >= YIELD { 0 } else { empty });
        if empty >= YIELD {
            libc::sched_yield();
        }
    }
    i32::try_from(found).unwrap_or(i32::MAX)
}

unsafe extern "C" fn start_poll(cq: *mut CqEx, _: *mut c_void) -> c_int {
    // SAFETY: an extended queue is an `OurCq`.
    unsafe { next_poll(cq) }
}

unsafe extern "C" fn next_poll(cq: *mut CqEx) -> c_int {
    // SAFETY: as above; `Wc` is of numbers.
    unsafe {
        let mut wc: Wc = zeroed();
        if poll_cq(cq.cast(), 1, &raw mut wc) != 1 {
            return Errno::NOENT.raw_os_error();
        }
        (*cq).status = wc.status;
        (*cq).wr_id = wc.wr_id;
        (*cq.cast::<OurCq>()).current = wc;
    }
    0
}

unsafe extern "C" fn end_poll(_: *mut CqEx) {}

/// # Safety
/// An extended queue, between `start_poll` and `end_poll`.
unsafe fn current(cq: *mut CqEx) -> Wc {
    // SAFETY: the caller's.
    unsafe { (*cq.cast::<OurCq>()).current }
}

macro_rules! readers {
    ($($name:ident $field:ident $kind:ty),*) => {
        $(unsafe extern "C" fn $name(cq: *mut CqEx) -> $kind {
            // SAFETY: libibverbs' program calls it where it may.
            unsafe { current(cq) }.$field
        })*
    };
}

readers!(
    read_opcode opcode c_int, read_vendor_err vendor_err u32, read_byte_len byte_len u32, read_imm_data imm_data u32,
    read_qp_num qp_num u32, read_src_qp src_qp u32, read_wc_flags wc_flags c_uint
);

unsafe extern "C" fn read_slid(_: *mut CqEx) -> u32 {
    0
}

unsafe extern "C" fn read_byte(_: *mut CqEx) -> u8 {
    0
}

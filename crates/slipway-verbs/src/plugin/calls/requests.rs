//! Calls that post requests, and those on shared receive queues.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem::zeroed;

use rustix::io::Errno;

use super::super::device::State;
use super::super::memory::{Atomic, Piece};
use super::super::queues::{Operation, QueuePair, Receive, SharedQueue, Work, state};
use super::super::regions::{Regions, access};
use super::objects::{OurAh, OurQp, OurSrq};
use super::{MAX_PIECES, MAX_REQUESTS, code, device, fail};
use crate::abi::{Context, Pd, Qp, RecvWr, SendWr, Sge, Srq, SrqAttr, SrqInitAttr, SrqInitAttrEx};
use crate::wire::Transport;

/// Largest datagram: the port's MTU.
const DATAGRAM: usize = 4096;

/// `enum ibv_send_flags`.
pub(super) const FENCED: u32 = 1;
pub(super) const SIGNALED: u32 = 1 << 1;
pub(super) const SOLICITED: u32 = 1 << 2;
const INLINE: u32 = 1 << 3;

/// The pieces of a request.
#[derive(Default)]
struct Pieces {
    all: Vec<Piece>,
    length: usize,
    /// One is in no registration.
    is_bad: bool,
    /// One is in memory that the gateway does not know.
    in_lab: bool,
}

/// The pieces of a request, by a program's list.
fn pieces(regions: &Regions, domain: u32, list: &[Sge], needed: u32) -> Pieces {
    let mut pieces = Pieces { all: Vec::with_capacity(list.len()), ..Pieces::default() };
    for sge in list.iter().filter(|it| it.length > 0) {
        let length = sge.length as usize;
        match regions.find(sge.lkey, domain, sge.addr, length, needed) {
            Some(piece) => pieces.all.push(piece),
            None => pieces.is_bad = true,
        }
        pieces.in_lab |= !regions.is_outside(sge.lkey);
        pieces.length += length;
    }
    pieces
}

/// The list of a request.
///
/// # Safety
/// The program's list has that many entries.
unsafe fn list<'a>(list: *const Sge, count: c_int) -> Result<&'a [Sge], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: the caller's.
        Ok(count) if count <= MAX_PIECES as usize && !list.is_null() => {
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => Err(Errno::INVAL),
    }
}

/// A request in a program's list.
trait Chained {
    /// The request after it; null at the end.
    fn next(&self) -> *mut Self;
}

impl Chained for SendWr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Chained for RecvWr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// Posts each request of a program's list, up to the first that fails, which `bad` then names.
///
/// # Safety
/// The list is the program's, and `bad` has room for a pointer.
unsafe fn post_each<T: Chained>(
    mut request: *mut T,
    bad: *mut *mut T,
    mut post: impl FnMut(&T) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller's: a list of the program's.
    while let Some(one) = unsafe { request.as_ref() } {
        if let Err(errno) = post(one) {
            // SAFETY: the caller's: room for a pointer.
            unsafe { *bad = request };
            return Err(errno);
        }
        request = one.next();
    }
    Ok(())
}

pub(super) unsafe extern "C" fn post_send(qp: *mut Qp, request: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    // SAFETY: the queue pair is made by `create_qp`.
    let (device, index) = unsafe { (device((*qp).context), (*qp.cast::<OurQp>()).index) };
    let mut state = device.lock();
    // SAFETY: a list of the program's, with lists of pieces.
    let result = unsafe { post_each(request, bad, |one| post_one(&mut state, index, one)) };
    go(&mut state, index);
    code(result)
}

/// Sends what was posted, or flushes it.
pub(super) fn go(state: &mut State, index: usize) {
    match state.queue_pairs.get(index).and_then(Option::as_ref).map(|it| it.state) {
        Some(state::ERROR) => state.fail(index, None),
        _ => state.progress(index),
    }
    state.hear_kept();
}

unsafe fn post_one(state: &mut State, index: usize, request: &SendWr) -> Result<(), Errno> {
    // SAFETY: the program's list.
    let list = unsafe { list(request.sg_list, request.num_sge) }?;
    let pair = state.queue_pairs.get(index).and_then(Option::as_ref).ok_or(Errno::INVAL)?;
    let [first, second, third, fourth] = request.wr;
    let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
    let high = |word: u64| u32::try_from(word >> 32).unwrap_or(0);
    let is_datagram = pair.transport == Transport::Datagram;
    // `enum ibv_wr_opcode`, and the union `wr` of `struct ibv_send_wr`.
    let (operation, address, key) = match request.opcode {
        0 | 1 => (Operation::Write, first, low(second)),
        2 | 3 if is_datagram => (Operation::Send, 0, high(second)),
        2 | 3 => (Operation::Send, 0, 0),
        4 => (Operation::Read, first, low(second)),
        5 => (Operation::Atomic(Atomic::Swap { compare: second, with: third }), first, low(fourth)),
        6 => (Operation::Atomic(Atomic::Add(second)), first, low(fourth)),
        _ => return Err(Errno::OPNOTSUPP),
    };
    let to = if is_datagram {
        let ah = first as *const OurAh;
        if ah.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an address of the program's, made by `create_ah`.
        Some((unsafe { (*ah).gid }, low(second)))
    } else {
        None
    };
    let mut work = Work {
        id: request.wr_id,
        operation,
        is_signaled: pair.signals_all || request.send_flags & SIGNALED != 0,
        is_solicited: request.send_flags & SOLICITED != 0,
        immediate: matches!(request.opcode, 1 | 3).then_some(request.imm_data),
        pieces: Vec::new(),
        inline: None,
        length: 0,
        address,
        key,
        to,
        is_bad: false,
        in_lab: false,
        done: 0,
        is_fenced: request.send_flags & FENCED != 0,
    };
    if request.send_flags & INLINE != 0 && matches!(operation, Operation::Send | Operation::Write) {
        let parts =
            list.iter().map(|it| Piece { at: usize::try_from(it.addr).unwrap_or(0), length: it.length as usize });
        set_inline(&mut work, parts);
    } else {
        set_list(&mut work, pair.domain, &state.regions, list);
    }
    push(state, index, work)
}

/// Gives a request its bytes by copying them.
pub(super) fn set_inline(work: &mut Work, parts: impl Iterator<Item = Piece>) {
    let mut bytes = Vec::new();
    for part in parts.filter(|it| it.length > 0) {
        bytes.extend_from_slice(super::super::memory::bytes(part));
    }
    let mut bytes = bytes.into_boxed_slice();
    work.length = bytes.len();
    work.pieces = vec![Piece { at: bytes.as_mut_ptr() as usize, length: bytes.len() }];
    work.inline = Some(bytes);
}

/// Gives a request its bytes by a list.
pub(super) fn set_list(work: &mut Work, domain: u32, regions: &Regions, list: &[Sge]) {
    let is_written = matches!(work.operation, Operation::Read | Operation::Atomic(_));
    let needed = if is_written { access::LOCAL_WRITE } else { 0 };
    let Pieces { all, length, is_bad, in_lab } = pieces(regions, domain, list, needed);
    (work.pieces, work.length, work.is_bad, work.in_lab) = (all, length, is_bad, in_lab);
    if matches!(work.operation, Operation::Atomic(_)) && work.length != 8 {
        work.is_bad = true;
    }
}

/// Puts a request into the send queue.
pub(super) fn push(state: &mut State, index: usize, mut work: Work) -> Result<(), Errno> {
    let pair = state.queue_pairs.get_mut(index).and_then(Option::as_mut).ok_or(Errno::INVAL)?;
    check(pair, &work)?;
    // A datagram's key with the highest bit stands for the queue pair's own (InfiniBand specification, 10.2.5).
    if work.to.is_some() && work.key >> 31 != 0 {
        work.key = pair.attributes.qkey;
    }
    pair.sending.push_back(work);
    Ok(())
}

fn check(pair: &QueuePair, work: &Work) -> Result<(), Errno> {
    if pair.state < state::READY_TO_SEND {
        return Err(Errno::INVAL);
    }
    if pair.sending.len() + pair.flying.len() >= pair.cap.max_send_wr as usize {
        return Err(Errno::NOMEM);
    }
    if work.inline.is_some() && work.length > pair.cap.max_inline_data as usize {
        return Err(Errno::INVAL);
    }
    let is_offered = matches!(
        (pair.transport, work.operation),
        (Transport::Reliable, _) | (_, Operation::Send) | (Transport::Unreliable, Operation::Write)
    );
    let is_too_long = pair.transport == Transport::Datagram && work.length > DATAGRAM;
    if !is_offered || is_too_long || work.length > 1 << 30 { Err(Errno::INVAL) } else { Ok(()) }
}

unsafe fn receive(regions: &Regions, domain: u32, request: &RecvWr) -> Result<Receive, Errno> {
    // SAFETY: the program's list.
    let list = unsafe { list(request.sg_list, request.num_sge) }?;
    let Pieces { all, length, is_bad, in_lab } = pieces(regions, domain, list, access::LOCAL_WRITE);
    Ok(Receive { id: request.wr_id, pieces: all, length, is_bad, in_lab })
}

pub(super) unsafe extern "C" fn post_recv(qp: *mut Qp, request: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: the queue pair is made by `create_qp`.
    let (device, index) = unsafe { (device((*qp).context), (*qp.cast::<OurQp>()).index) };
    let mut guard = device.lock();
    let state = &mut *guard;
    let Some(Some(pair)) = state.queue_pairs.get_mut(index) else { return Errno::INVAL.raw_os_error() };
    let post = |one: &RecvWr| {
        if pair.srq.is_some() || pair.state == state::RESET {
            return Err(Errno::INVAL);
        }
        let forwarded = pair.outside.as_ref().map_or(0, |it| it.receives.len());
        if pair.receives.len() + forwarded >= pair.cap.max_recv_wr as usize {
            return Err(Errno::NOMEM);
        }
        // SAFETY: the request has a list of the program's.
        pair.receives.push_back(unsafe { receive(&state.regions, pair.domain, one) }?);
        Ok(())
    };
    // SAFETY: a list of the program's.
    let result = unsafe { post_each(request, bad, post) };
    // A message may have waited for this request.
    go(state, index);
    code(result)
}

pub(super) unsafe extern "C" fn post_srq_recv(srq: *mut Srq, request: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: the queue is made by `create_srq`.
    let (device, index, domain) =
        unsafe { (device((*srq).context), (*srq.cast::<OurSrq>()).index, (*(*srq).pd).handle) };
    let mut guard = device.lock();
    let state = &mut *guard;
    let Some(Some(queue)) = state.shared_queues.get_mut(index) else { return Errno::INVAL.raw_os_error() };
    let post = |one: &RecvWr| {
        // SAFETY: the request has a list of the program's.
        let receive = unsafe { receive(&state.regions, domain, one) }?;
        if queue.receives.len() >= queue.max as usize {
            return Err(Errno::NOMEM);
        }
        queue.receives.push_back(receive);
        Ok(())
    };
    // SAFETY: a list of the program's.
    let result = unsafe { post_each(request, bad, post) };
    let users: Vec<usize> =
        state.queue_pairs.iter().flatten().filter(|it| it.srq == Some(index)).map(|it| it.index).collect();
    for user in users {
        state.progress(user);
    }
    code(result)
}

pub(super) unsafe extern "C" fn create_srq(domain: *mut Pd, attributes: *mut SrqInitAttr) -> *mut Srq {
    // SAFETY: the program's structures.
    let (context, attributes) = unsafe { ((*domain).context, &mut (*attributes).attr) };
    if attributes.max_wr > MAX_REQUESTS || attributes.max_sge > MAX_PIECES {
        return fail(Errno::INVAL);
    }
    // SAFETY: the context is open. A structure of numbers and pointers.
    let (device, mut made) = unsafe { (device(context), Box::new(zeroed::<OurSrq>())) };
    made.srq.context = context;
    made.srq.pd = domain;
    let mut state = device.lock();
    let handle = (&raw const *made) as u64;
    let (max, max_sge) = (attributes.max_wr, attributes.max_sge);
    let queue = SharedQueue { receives: VecDeque::new(), max, max_sge, limit: 0, handle };
    made.index = State::place(&mut state.shared_queues, queue);
    Box::into_raw(made).cast()
}

pub(super) unsafe extern "C" fn create_srq_ex(_: *mut Context, attributes: *mut SrqInitAttrEx) -> *mut Srq {
    // SAFETY: the program's structure; its first members are `SrqInitAttr`'s.
    unsafe {
        // `IBV_SRQ_INIT_ATTR_TYPE`, and the type that is not basic.
        if (*attributes).comp_mask & 1 != 0 && (*attributes).srq_type != 0 {
            return fail(Errno::OPNOTSUPP);
        }
        if (*attributes).comp_mask & 2 == 0 {
            return fail(Errno::INVAL);
        }
        let made = create_srq((*attributes).pd, attributes.cast());
        if !made.is_null() {
            (*made).srq_context = (*attributes).srq_context;
            libc::pthread_mutex_init(&raw mut (*made).mutex, std::ptr::null());
            libc::pthread_cond_init(&raw mut (*made).cond, std::ptr::null());
        }
        made
    }
}

pub(super) unsafe extern "C" fn modify_srq(srq: *mut Srq, attributes: *mut SrqAttr, mask: c_int) -> c_int {
    // SAFETY: made by `create_srq`, and the program's structure.
    let (device, index, attributes) = unsafe { (device((*srq).context), (*srq.cast::<OurSrq>()).index, *attributes) };
    let mut state = device.lock();
    let Some(Some(queue)) = state.shared_queues.get_mut(index) else { return Errno::INVAL.raw_os_error() };
    // `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
    if mask & 1 != 0 {
        if attributes.max_wr > MAX_REQUESTS || (attributes.max_wr as usize) < queue.receives.len() {
            return Errno::INVAL.raw_os_error();
        }
        queue.max = attributes.max_wr;
    }
    if mask & 2 != 0 {
        queue.limit = attributes.srq_limit;
    }
    0
}

pub(super) unsafe extern "C" fn query_srq(srq: *mut Srq, to: *mut SrqAttr) -> c_int {
    // SAFETY: made by `create_srq`.
    let (device, index) = unsafe { (device((*srq).context), (*srq.cast::<OurSrq>()).index) };
    let state = device.lock();
    let Some(Some(queue)) = state.shared_queues.get(index) else { return Errno::INVAL.raw_os_error() };
    // SAFETY: room of the program's.
    unsafe { to.write(SrqAttr { max_wr: queue.max, max_sge: queue.max_sge, srq_limit: queue.limit }) };
    0
}

pub(super) unsafe extern "C" fn get_srq_num(srq: *mut Srq, to: *mut u32) -> c_int {
    // SAFETY: made by `create_srq`, and room of the program's.
    unsafe { to.write(u32::try_from((*srq.cast::<OurSrq>()).index).unwrap_or(0)) };
    0
}

pub(super) unsafe extern "C" fn destroy_srq(srq: *mut Srq) -> c_int {
    // SAFETY: made by `create_srq`.
    let (device, index) = unsafe { (device((*srq).context), (*srq.cast::<OurSrq>()).index) };
    let mut state = device.lock();
    if state.queue_pairs.iter().flatten().any(|it| it.srq == Some(index)) {
        return Errno::BUSY.raw_os_error();
    }
    if let Some(place) = state.shared_queues.get_mut(index) {
        *place = None;
    }
    // SAFETY: libibverbs gives it back once.
    drop(unsafe { Box::from_raw(srq.cast::<OurSrq>()) });
    0
}

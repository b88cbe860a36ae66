//! Calls on queue pairs.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::connection::Joint;
use super::super::device::{Device, State};
use super::super::queues::{QueuePair, state};
use super::super::service;
use super::objects::{OurCq, OurQp, OurSrq};
use super::{MAX_INLINE, MAX_PIECES, MAX_REQUESTS, code, destination, device, extended, fail};
use crate::abi::{Context, Pd, Qp, QpAttr, QpInitAttr, QpInitAttrEx, VerbsQp};
use crate::layout::CLOSED;
use crate::wire::{Gid, Reply, Request, Transport};

/// Bits of `enum ibv_qp_attr_mask`.
mod mask {
    pub(super) const STATE: i32 = 1;
    pub(super) const ACCESS: i32 = 1 << 3;
    pub(super) const PKEY: i32 = 1 << 4;
    pub(super) const PORT: i32 = 1 << 5;
    pub(super) const QKEY: i32 = 1 << 6;
    pub(super) const ADDRESS: i32 = 1 << 7;
    pub(super) const MTU: i32 = 1 << 8;
    pub(super) const TIMEOUT: i32 = 1 << 9;
    pub(super) const RETRIES: i32 = 1 << 10;
    pub(super) const RNR_RETRIES: i32 = 1 << 11;
    pub(super) const RQ_PSN: i32 = 1 << 12;
    pub(super) const READS: i32 = 1 << 13;
    pub(super) const MIN_RNR: i32 = 1 << 15;
    pub(super) const SQ_PSN: i32 = 1 << 16;
    pub(super) const DEST_READS: i32 = 1 << 17;
    pub(super) const DEST: i32 = 1 << 20;
}

/// `IBV_QP_INIT_ATTR_PD` and `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`: what can be asked for.
const OFFERED: u32 = 1 | 1 << 6;
/// Extended operations: all but invalidation, memory windows, segmentation and atomic writes.
const OPERATIONS: u64 = 0x7f;

pub(super) unsafe extern "C" fn create_qp(domain: *mut Pd, attributes: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: the program's structures.
    let result = unsafe { create((*domain).context, domain, &*attributes) };
    result.unwrap_or_else(fail)
}

pub(super) unsafe extern "C" fn create_qp_ex(context: *mut Context, attributes: *mut QpInitAttrEx) -> *mut Qp {
    // SAFETY: the program's structure.
    let attributes = unsafe { &*attributes };
    if attributes.comp_mask & !OFFERED != 0
        || attributes.send_ops_flags & !OPERATIONS != 0 && attributes.comp_mask & 1 << 6 != 0
    {
        return fail(Errno::OPNOTSUPP);
    }
    if attributes.comp_mask & 1 == 0 {
        return fail(Errno::INVAL);
    }
    let base = QpInitAttr {
        qp_context: attributes.qp_context,
        send_cq: attributes.send_cq,
        recv_cq: attributes.recv_cq,
        srq: attributes.srq,
        cap: attributes.cap,
        qp_type: attributes.qp_type,
        sq_sig_all: attributes.sq_sig_all,
    };
    // SAFETY: the program's structures. This sets the fields that `ibv_create_qp` sets for other providers.
    unsafe {
        match create(context, attributes.pd, &base) {
            Ok(made) => {
                (*made).qp_context = attributes.qp_context;
                libc::pthread_mutex_init(&raw mut (*made).mutex, std::ptr::null());
                libc::pthread_cond_init(&raw mut (*made).cond, std::ptr::null());
                if attributes.comp_mask & 1 << 6 != 0 {
                    let ours = made.cast::<OurQp>();
                    (*ours).verbs.extend();
                    extended::set_functions(&raw mut (*ours).verbs.ex);
                }
                made
            }
            Err(errno) => fail(errno),
        }
    }
}

unsafe fn create(context: *mut Context, domain: *mut Pd, attributes: &QpInitAttr) -> Result<*mut Qp, Errno> {
    let transport = match attributes.qp_type {
        2 => Transport::Reliable,
        3 => Transport::Unreliable,
        4 => Transport::Datagram,
        _ => return Err(Errno::OPNOTSUPP),
    };
    let cap = attributes.cap;
    let requests = cap.max_send_wr.max(cap.max_recv_wr);
    let pieces = cap.max_send_sge.max(cap.max_recv_sge);
    if requests > MAX_REQUESTS || pieces > MAX_PIECES || cap.max_inline_data > MAX_INLINE {
        return Err(Errno::INVAL);
    }
    if attributes.send_cq.is_null() || attributes.recv_cq.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the context is open, and the queues are made by this plug-in.
    let (device, send_cq, receive_cq, srq, number) = unsafe {
        let srq = attributes.srq.cast::<OurSrq>();
        (
            device(context),
            (*attributes.send_cq.cast::<OurCq>()).index,
            (*attributes.recv_cq.cast::<OurCq>()).index,
            (!srq.is_null()).then(|| (*srq).index),
            (*domain).handle,
        )
    };
    let mut state = device.lock();
    let request = Request::CreateQueuePair { transport, domain: number };
    let (Reply::QueuePair { number: qpn, proof }, _) = state.ask(&request, &[])? else { return Err(Errno::PROTO) };
    let queues = (send_cq, receive_cq);
    let pair = QueuePair::new((qpn, proof), (transport, number), queues, srq, cap, attributes.sq_sig_all != 0);
    let index = State::place(&mut state.queue_pairs, Box::new(pair));
    if let Some(Some(pair)) = state.queue_pairs.get_mut(index) {
        pair.index = index;
    }
    state.introduce(index);
    state.hear_kept();
    for queue in [send_cq, receive_cq] {
        if let Some(Some(queue)) = state.completion_queues.get_mut(queue)
            && !queue.queue_pairs.contains(&index)
        {
            queue.queue_pairs.push(index);
        }
    }
    // SAFETY: numbers, pointers, and functions that may be absent.
    let verbs: VerbsQp = unsafe { std::mem::zeroed() };
    let signals_all = attributes.sq_sig_all != 0;
    let mut made = Box::new(OurQp { verbs, index, domain: number, signals_all, building: Vec::new(), error: None });
    let qp = &mut made.verbs.ex.qp;
    qp.context = context;
    qp.pd = domain;
    qp.send_cq = attributes.send_cq;
    qp.recv_cq = attributes.recv_cq;
    qp.srq = attributes.srq;
    qp.qp_num = qpn;
    qp.handle = qpn;
    qp.qp_type = attributes.qp_type;
    Ok(Box::into_raw(made).cast())
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: made by `create`; libibverbs gives it back once.
    let (device, ours) = unsafe { (device((*qp).context), Box::from_raw(qp.cast::<OurQp>())) };
    let mut state = device.lock();
    let Some(mut pair) = state.queue_pairs.get_mut(ours.index).and_then(Option::take) else {
        return Errno::INVAL.raw_os_error();
    };
    for connection in &mut pair.connections {
        connection.set(CLOSED, 1);
        connection.ring();
    }
    for queue in [pair.send_cq, pair.receive_cq] {
        if let Some(Some(queue)) = state.completion_queues.get_mut(queue) {
            queue.queue_pairs.retain(|it| *it != ours.index);
            queue.completions.retain(|it| it.qp_num != pair.number);
        }
    }
    state.forget(&mut pair);
    let _ = state.client.ask(&Request::DestroyQueuePair { number: pair.number }, &[]);
    state.hear_kept();
    0
}

pub(super) unsafe extern "C" fn modify_qp(qp: *mut Qp, attributes: *mut QpAttr, mask: c_int) -> c_int {
    // SAFETY: made by `create`, and the program's structure.
    let (device, index, attributes) = unsafe { (device((*qp).context), (*qp.cast::<OurQp>()).index, *attributes) };
    code(modify(&device, index, &attributes, mask))
}

/// Changes a queue pair's attributes and state.
pub(super) fn modify(device: &Arc<Device>, index: usize, new: &QpAttr, bits: i32) -> Result<(), Errno> {
    let mut state = device.lock();
    let pair = state.queue_pairs.get_mut(index).and_then(Option::as_mut).ok_or(Errno::INVAL)?;
    let (number, transport, from) = (pair.number, pair.transport, pair.state);
    let known = &mut pair.attributes;
    macro_rules! take {
        ($($bit:ident $field:ident),*) => { $(if bits & mask::$bit != 0 { known.$field = new.$field; })* };
    }
    take!(
        ACCESS qp_access_flags, PKEY pkey_index, PORT port_num, QKEY qkey, ADDRESS ah_attr, MTU path_mtu, TIMEOUT timeout,
        RETRIES retry_cnt, RNR_RETRIES rnr_retry, RQ_PSN rq_psn, READS max_rd_atomic, MIN_RNR min_rnr_timer, SQ_PSN sq_psn,
        DEST_READS max_dest_rd_atomic, DEST dest_qp_num
    );
    if bits & mask::STATE == 0 {
        return Ok(());
    }
    let (to, address, peer) = (new.qp_state, known.ah_attr, known.dest_qp_num);
    let is_allowed = match to {
        state::RESET | state::ERROR => true,
        state::INIT => matches!(from, state::RESET | state::INIT),
        state::READY_TO_RECEIVE => from == state::INIT,
        state::READY_TO_SEND => matches!(from, state::READY_TO_RECEIVE | state::READY_TO_SEND),
        _ => false,
    };
    if !is_allowed {
        return Err(Errno::INVAL);
    }
    match to {
        state::RESET => {
            reset(&mut state, index);
            state.hear_kept();
            return Ok(());
        }
        state::ERROR => {
            // Completions that are there already are not flushed.
            state.hear_gateway();
            state.fail(index, None);
            state.hear_kept();
            return Ok(());
        }
        state::READY_TO_RECEIVE => {
            service::start(device, &mut state)?;
            if transport != Transport::Datagram {
                if address.is_global == 0 {
                    return Err(Errno::INVAL);
                }
                let gid = destination(&address);
                connect(&mut state, index, number, (gid, peer))?;
            }
        }
        _ => {}
    }
    if let Some(Some(pair)) = state.queue_pairs.get_mut(index) {
        pair.state = to;
    }
    state.progress(index);
    state.hear_kept();
    Ok(())
}

/// Joins a queue pair with its peer: within the lab, or by the gateway where no node has that address.
fn connect(state: &mut State, index: usize, number: u32, (gid, peer): (Gid, u32)) -> Result<(), Errno> {
    match state.ask(&Request::Connect { number, gid, peer }, &[]) {
        Ok((Reply::Connected { end, counts }, fds)) => {
            state.attach(index, Joint { fds, end, counts, peer: (gid, peer) })
        }
        Ok(_) => Err(Errno::PROTO),
        Err(Errno::HOSTUNREACH) => state.join(index).map_err(|_| Errno::HOSTUNREACH),
        Err(errno) => Err(errno),
    }
}

/// Has a queue pair begin anew. The gateway forgets its peer, and may give it another.
fn reset(state: &mut State, index: usize) {
    let Some(mut pair) = state.queue_pairs.get_mut(index).and_then(Option::take) else { return };
    if pair.outside.take().is_some() {
        state.forget(&mut pair);
    }
    pair.sending.clear();
    pair.flying.clear();
    pair.asked = 0;
    pair.receives.clear();
    pair.partial = None;
    pair.connections.clear();
    let peers = std::mem::take(&mut pair.by_peer);
    if pair.transport == Transport::Datagram {
        for &peer in peers.keys() {
            state.leave(pair.number, peer);
        }
    }
    pair.served = 0;
    pair.not_ready_since = None;
    pair.closed_since = None;
    pair.state = state::RESET;
    for queue in [pair.send_cq, pair.receive_cq] {
        if let Some(Some(queue)) = state.completion_queues.get_mut(queue) {
            queue.completions.retain(|it| it.qp_num != pair.number);
        }
    }
    state.queue_pairs[index] = Some(pair);
    state.introduce(index);
}

pub(super) unsafe extern "C" fn query_qp(qp: *mut Qp, to: *mut QpAttr, _: c_int, init: *mut QpInitAttr) -> c_int {
    // SAFETY: made by `create`, and room of the program's.
    unsafe {
        let device = device((*qp).context);
        let state = device.lock();
        let Some(Some(pair)) = state.queue_pairs.get((*qp.cast::<OurQp>()).index) else {
            return Errno::INVAL.raw_os_error();
        };
        let (qp_state, cap) = (pair.state, pair.cap);
        to.write(QpAttr { qp_state, cur_qp_state: qp_state, cap, path_mig_state: 0, ..pair.attributes });
        (*init).qp_context = (*qp).qp_context;
        (*init).send_cq = (*qp).send_cq;
        (*init).recv_cq = (*qp).recv_cq;
        (*init).srq = (*qp).srq;
        (*init).cap = cap;
        (*init).qp_type = (*qp).qp_type;
        (*init).sq_sig_all = pair.signals_all.into();
    }
    0
}

//! Extended requests: `ibv_wr_start`, what to do, with which bytes, `ibv_wr_complete`.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use rustix::io::Errno;

use super::super::memory::{Atomic, Piece};
use super::super::queues::{Operation, Work};
use super::objects::{OurAh, ours};
use super::requests::{FENCED, SIGNALED, SOLICITED, go, push, set_inline, set_list};
use super::{MAX_PIECES, code, device};
use crate::abi::{Ah, DataBuf, QpEx, Sge};

/// Sets the functions of a queue pair.
///
/// # Safety
/// The structure is writable.
pub(super) unsafe fn set_functions(ex: *mut QpEx) {
    // SAFETY: the caller's.
    unsafe {
        (*ex).wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
        (*ex).wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
        (*ex).wr_rdma_read = Some(wr_rdma_read);
        (*ex).wr_rdma_write = Some(wr_rdma_write);
        (*ex).wr_rdma_write_imm = Some(wr_rdma_write_imm);
        (*ex).wr_send = Some(wr_send);
        (*ex).wr_send_imm = Some(wr_send_imm);
        (*ex).wr_set_ud_addr = Some(wr_set_ud_addr);
        (*ex).wr_set_inline_data = Some(wr_set_inline_data);
        (*ex).wr_set_inline_data_list = Some(wr_set_inline_data_list);
        (*ex).wr_set_sge = Some(wr_set_sge);
        (*ex).wr_set_sge_list = Some(wr_set_sge_list);
        (*ex).wr_start = Some(wr_start);
        (*ex).wr_complete = Some(wr_complete);
        (*ex).wr_abort = Some(wr_abort);
    }
}

unsafe extern "C" fn wr_start(qp: *mut QpEx) {
    // SAFETY: an extended queue pair.
    let ours = unsafe { ours(qp) };
    ours.building.clear();
    ours.error = None;
}

unsafe extern "C" fn wr_abort(qp: *mut QpEx) {
    // SAFETY: an extended queue pair.
    unsafe { ours(qp) }.building.clear();
}

unsafe extern "C" fn wr_complete(qp: *mut QpEx) -> c_int {
    // SAFETY: an extended queue pair.
    let (ours, device) = unsafe { (ours(qp), device((*qp).qp.context)) };
    let mut state = device.lock();
    let mut result = ours.error.take().map_or(Ok(()), Err);
    for work in ours.building.drain(..) {
        if result.is_ok() {
            result = push(&mut state, ours.index, work);
        }
    }
    go(&mut state, ours.index);
    code(result)
}

unsafe fn begin(qp: *mut QpEx, operation: Operation, address: u64, key: u32, immediate: Option<u32>) {
    // SAFETY: an extended queue pair.
    let (ours, id, flags) = unsafe { (ours(qp), (*qp).wr_id, (*qp).wr_flags) };
    ours.building.push(Work {
        id,
        operation,
        is_signaled: ours.signals_all || flags & SIGNALED != 0,
        is_solicited: flags & SOLICITED != 0,
        immediate,
        pieces: Vec::new(),
        inline: None,
        length: 0,
        address,
        key,
        to: None,
        is_bad: false,
        in_lab: false,
        done: 0,
        is_fenced: flags & FENCED != 0,
    });
}

unsafe extern "C" fn wr_send(qp: *mut QpEx) {
    // SAFETY: an extended queue pair, as in all that follow.
    unsafe { begin(qp, Operation::Send, 0, 0, None) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut QpEx, immediate: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Send, 0, 0, Some(immediate)) };
}

unsafe extern "C" fn wr_rdma_write(qp: *mut QpEx, key: u32, address: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Write, address, key, None) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut QpEx, key: u32, address: u64, immediate: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Write, address, key, Some(immediate)) };
}

unsafe extern "C" fn wr_rdma_read(qp: *mut QpEx, key: u32, address: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Read, address, key, None) };
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut QpEx, key: u32, address: u64, compare: u64, with: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Atomic(Atomic::Swap { compare, with }), address, key, None) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut QpEx, key: u32, address: u64, by: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, Operation::Atomic(Atomic::Add(by)), address, key, None) };
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut QpEx, ah: *mut Ah, number: u32, key: u32) {
    // SAFETY: as above, and an address of the program's.
    let (ours, gid) = unsafe { (ours(qp), (*ah.cast::<OurAh>()).gid) };
    if let Some(work) = ours.building.last_mut() {
        work.to = Some((gid, number));
        work.key = key;
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut QpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as above.
    unsafe {
        let sge = Sge { addr, length, lkey };
        wr_set_sge_list(qp, 1, &raw const sge);
    }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut QpEx, count: usize, list: *const Sge) {
    // SAFETY: as above.
    let (ours, device) = unsafe { (ours(qp), device((*qp).qp.context)) };
    if count > MAX_PIECES as usize {
        ours.error = Some(Errno::INVAL);
        return;
    }
    // SAFETY: a list of the program's.
    let list = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } };
    if let Some(work) = ours.building.last_mut() {
        set_list(work, ours.domain, &device.lock().regions, list);
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut QpEx, addr: *mut c_void, length: usize) {
    // SAFETY: as above.
    if let Some(work) = unsafe { ours(qp) }.building.last_mut() {
        set_inline(work, std::iter::once(Piece { at: addr as usize, length }));
    }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut QpEx, count: usize, list: *const DataBuf) {
    // SAFETY: as above, and a list of the program's.
    let (ours, list) = unsafe { (ours(qp), if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) }) };
    if let Some(work) = ours.building.last_mut() {
        set_inline(work, list.iter().map(|it| Piece { at: it.addr as usize, length: it.length }));
    }
}

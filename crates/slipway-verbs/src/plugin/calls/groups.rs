//! Calls about groups that datagrams go to (`ibv_attach_mcast(3)`).

#![allow(unsafe_code)]

use std::ffi::c_int;

use rustix::io::Errno;

use super::objects::OurQp;
use super::{code, device};
use crate::abi::Qp;
use crate::wire::{Gid, Request};

pub(super) unsafe extern "C" fn attach(qp: *mut Qp, group: *const Gid, _lid: u16) -> c_int {
    // SAFETY: made by `create_qp`, and the program's identifier.
    code(unsafe { change(qp, *group, true) })
}

pub(super) unsafe extern "C" fn detach(qp: *mut Qp, group: *const Gid, _lid: u16) -> c_int {
    // SAFETY: made by `create_qp`, and the program's identifier.
    code(unsafe { change(qp, *group, false) })
}

/// Makes a queue pair a member of a group, or ends that.
///
/// # Safety
/// The queue pair is one of `create_qp`.
unsafe fn change(qp: *mut Qp, group: Gid, is_member: bool) -> Result<(), Errno> {
    // SAFETY: the caller's.
    let (device, index) = unsafe { (device((*qp).context), (*qp.cast::<OurQp>()).index) };
    let mut state = device.lock();
    let number = state.queue_pairs.get(index).and_then(Option::as_ref).ok_or(Errno::INVAL)?.number;
    let request = if is_member { Request::Attach { number, group } } else { Request::Detach { number, group } };
    state.ask(&request, &[])?;
    if let Some(Some(pair)) = state.queue_pairs.get_mut(index) {
        pair.groups.retain(|known| *known != group);
        pair.groups.extend(is_member.then_some(group));
    }
    state.hear_kept();
    Ok(())
}

//! The plug-in's own data behind libibverbs' pointers. libibverbs' own structure is the first member of each.

#![allow(unsafe_code)]

use rustix::io::Errno;

use super::super::queues::Work;
use crate::abi::{Ah, CqEx, QpEx, Srq, VerbsQp, Wc};
use crate::wire::Gid;

#[repr(C)]
pub(super) struct OurAh {
    pub(super) ah: Ah,
    pub(super) gid: Gid,
}

#[repr(C)]
pub(super) struct OurCq {
    pub(super) ex: CqEx,
    pub(super) index: usize,
    /// The completion that the extended interface looks at.
    pub(super) current: Wc,
    /// Events that the program has read.
    pub(super) events: u32,
    /// Polls in a row that found nothing.
    pub(super) empty: u32,
}

#[repr(C)]
pub(super) struct OurSrq {
    pub(super) srq: Srq,
    pub(super) index: usize,
}

#[repr(C)]
pub(super) struct OurQp {
    pub(super) verbs: VerbsQp,
    pub(super) index: usize,
    pub(super) domain: u32,
    pub(super) signals_all: bool,
    /// Requests between `ibv_wr_start` and `ibv_wr_complete`, and the error of one.
    pub(super) building: Vec<Work>,
    pub(super) error: Option<Errno>,
}

/// The queue pair behind an extended one.
///
/// # Safety
/// The pointer is one of `create_qp_ex`.
pub(super) unsafe fn ours<'a>(qp: *mut QpEx) -> &'a mut OurQp {
    // SAFETY: the caller's. The program may not use a queue pair of this kind in two threads between start and completion.
    unsafe { &mut *qp.cast::<OurQp>() }
}

//! The table of operations that a provider gives to libibverbs.

use std::ffi::{c_int, c_void};

use super::device::{Context, DeviceAttrEx, PortAttr};
use super::objects::{
    Ah, AhAttr, CompChannel, Cq, CqEx, CqInitAttrEx, Mr, Pd, Qp, QpAttr, QpInitAttr, QpInitAttrEx, Srq, SrqAttr,
    SrqInitAttr, SrqInitAttrEx, VerbsMr,
};
use super::work::{RecvWr, SendWr, Wc};
use crate::wire::Gid;

/// An operation that the plug-in does not have: libibverbs answers `EOPNOTSUPP`.
pub type Unused = *const c_void;

/// `struct verbs_context_ops`.
#[repr(C)]
pub struct ContextOps {
    pub advise_mr: Unused,
    pub alloc_dm: Unused,
    pub alloc_mw: Unused,
    pub alloc_null_mr: Unused,
    pub alloc_parent_domain: Unused,
    pub alloc_pd: unsafe extern "C" fn(*mut Context) -> *mut Pd,
    pub alloc_td: Unused,
    pub async_event: Unused,
    pub attach_counters_point_flow: Unused,
    pub attach_mcast: unsafe extern "C" fn(*mut Qp, *const Gid, u16) -> c_int,
    pub bind_mw: Unused,
    pub close_xrcd: Unused,
    pub cq_event: unsafe extern "C" fn(*mut Cq),
    pub create_ah: unsafe extern "C" fn(*mut Pd, *mut AhAttr) -> *mut Ah,
    pub create_counters: Unused,
    pub create_cq: unsafe extern "C" fn(*mut Context, c_int, *mut CompChannel, c_int) -> *mut Cq,
    pub create_cq_ex: unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx,
    pub create_flow: Unused,
    pub create_flow_action_esp: Unused,
    pub create_qp: unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp,
    pub create_qp_ex: unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp,
    pub create_rwq_ind_table: Unused,
    pub create_srq: unsafe extern "C" fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq,
    pub create_srq_ex: unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq,
    pub create_wq: Unused,
    pub dealloc_mw: Unused,
    pub dealloc_pd: unsafe extern "C" fn(*mut Pd) -> c_int,
    pub dealloc_td: Unused,
    pub dereg_mr: unsafe extern "C" fn(*mut VerbsMr) -> c_int,
    pub destroy_ah: unsafe extern "C" fn(*mut Ah) -> c_int,
    pub destroy_counters: Unused,
    pub destroy_cq: unsafe extern "C" fn(*mut Cq) -> c_int,
    pub destroy_flow: Unused,
    pub destroy_flow_action: Unused,
    pub destroy_qp: unsafe extern "C" fn(*mut Qp) -> c_int,
    pub destroy_rwq_ind_table: Unused,
    pub destroy_srq: unsafe extern "C" fn(*mut Srq) -> c_int,
    pub destroy_wq: Unused,
    pub detach_mcast: unsafe extern "C" fn(*mut Qp, *const Gid, u16) -> c_int,
    pub free_context: unsafe extern "C" fn(*mut Context),
    pub free_dm: Unused,
    pub get_srq_num: unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int,
    pub import: [Unused; 3],
    pub modify_cq: Unused,
    pub modify_flow_action_esp: Unused,
    pub modify_qp: unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int,
    pub modify_qp_rate_limit: Unused,
    pub modify_srq: unsafe extern "C" fn(*mut Srq, *mut SrqAttr, c_int) -> c_int,
    pub modify_wq: Unused,
    pub open_qp: Unused,
    pub open_xrcd: Unused,
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_srq_ops: Unused,
    pub post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub query_device_ex: unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int,
    pub query_ece: Unused,
    pub query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int,
    pub query_qp: unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int,
    pub query_qp_data_in_order: Unused,
    pub query_rt_values: Unused,
    pub query_srq: unsafe extern "C" fn(*mut Srq, *mut SrqAttr) -> c_int,
    pub read_counters: Unused,
    pub reg_dm_mr: Unused,
    pub reg_dmabuf_mr: Unused,
    pub reg_mr: unsafe extern "C" fn(*mut Pd, *mut c_void, usize, u64, c_int) -> *mut Mr,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub rereg_mr: Unused,
    pub resize_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub set_ece: Unused,
    pub unimport: [Unused; 3],
}

// SAFETY: functions, and pointers that are null.
unsafe impl Sync for ContextOps {}

//! Layouts for a program of libibverbs and librdmacm, which a provider does not need: `rdma/rdma_cma.h`, and operations that
//! inline functions of `infiniband/verbs.h` call.

use std::ffi::{c_int, c_void};

use super::device::Context;
use super::objects::Qp;

/// `struct rdma_event_channel`.
#[repr(C)]
#[derive(Debug)]
pub struct Channel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`, as far as the gateway reads it.
#[repr(C)]
#[derive(Debug)]
pub struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut Channel,
    pub context: *mut c_void,
    pub qp: *mut Qp,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Debug)]
pub struct Param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_cm_event`, with the parameters of a connection.
#[repr(C)]
#[derive(Debug)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub param: Param,
}

/// Places of inline functions' operations in `struct ibv_context_ops` (`infiniband/verbs.h`).
pub mod operation {
    /// `ibv_poll_cq(3)`.
    pub const POLL_CQ: usize = 11;
    /// `ibv_req_notify_cq(3)`.
    pub const REQ_NOTIFY_CQ: usize = 12;
    /// `ibv_post_send(3)`.
    pub const POST_SEND: usize = 25;
    /// `ibv_post_recv(3)`.
    pub const POST_RECV: usize = 26;
}

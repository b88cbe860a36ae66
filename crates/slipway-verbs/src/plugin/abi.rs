//! Layouts of libibverbs: those of `infiniband/verbs.h`, and of the private interface of providers, number 34.
//!
//! Names are the header's, without prefix. The private structures are those of rdma-core's `libibverbs/driver.h`, equal from
//! release 39 to 56. `tests/abi.rs` compares sizes and offsets with the header.

#![allow(unsafe_code)]
// Fields are the header's, which documents them.
#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_context`, as far as the plug-in reads it.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    pub device: *mut Device,
    pub ops: [*const c_void; 32],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// `struct verbs_context`.
#[repr(C)]
#[derive(Debug)]
pub struct VerbsContext {
    pub ops: [*const c_void; 39],
    pub size: usize,
    pub context: Context,
}

/// `struct ibv_device`.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    pub ops: [*const c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// `struct verbs_device`.
#[repr(C)]
#[derive(Debug)]
pub struct VerbsDevice {
    pub device: Device,
    pub ops: *const DeviceOps,
    pub refcount: c_int,
    pub entry: [*mut c_void; 2],
    pub sysfs: *mut c_void,
    pub core_support: u64,
}

/// `struct verbs_match_ent`.
#[repr(C)]
#[derive(Debug)]
pub struct Match {
    pub driver_data: *mut c_void,
    pub modalias: *const c_char,
    pub vendor: u16,
    pub device: u16,
    pub kind: u8,
}

/// `struct verbs_device_ops`.
#[repr(C)]
#[derive(Debug)]
pub struct DeviceOps {
    pub name: *const c_char,
    pub match_min_abi_version: u32,
    pub match_max_abi_version: u32,
    pub match_table: *const Match,
    pub static_providers: *const c_void,
    pub match_device: *const c_void,
    pub alloc_context: unsafe extern "C" fn(*mut Device, c_int, *mut c_void) -> *mut VerbsContext,
    pub import_context: *const c_void,
    pub alloc_device: unsafe extern "C" fn(*mut c_void) -> *mut VerbsDevice,
    pub uninit_device: unsafe extern "C" fn(*mut VerbsDevice),
}

// SAFETY: the pointers lead to constants.
unsafe impl Sync for DeviceOps {}
// SAFETY: the pointers lead to constants.
unsafe impl Sync for Match {}

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
    pub attach_mcast: Unused,
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
    pub detach_mcast: Unused,
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

#[repr(C)]
#[derive(Debug)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct VerbsMr {
    pub mr: Mr,
    pub mr_type: c_int,
    pub access: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// `struct ibv_cq_ex`.
#[repr(C)]
#[derive(Debug)]
pub struct CqEx {
    pub cq: Cq,
    pub comp_mask: u32,
    pub status: c_int,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut CqEx, *mut c_void) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut CqEx) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut CqEx)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut CqEx) -> c_int>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut CqEx) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub more: [*const c_void; 5],
}

#[repr(C)]
#[derive(Debug)]
pub struct CqInitAttrEx {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut CompChannel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut Pd,
}

#[repr(C)]
#[derive(Debug)]
pub struct Srq {
    pub context: *mut Context,
    pub srq_context: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

#[repr(C)]
#[derive(Debug)]
pub struct SrqInitAttrEx {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
    pub comp_mask: u32,
    pub srq_type: c_int,
    pub pd: *mut Pd,
}

#[repr(C)]
#[derive(Debug)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_int,
    pub qp_type: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
#[derive(Debug)]
pub struct QpEx {
    pub qp: Qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    pub wr_bind_mw: *const c_void,
    pub wr_local_inv: *const c_void,
    pub wr_rdma_read: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub wr_send_inv: *const c_void,
    pub wr_send_tso: *const c_void,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
    pub wr_set_xrc_srqn: *const c_void,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
    pub wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub wr_start: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_atomic_write: *const c_void,
}

/// `struct verbs_qp`.
#[repr(C)]
#[derive(Debug)]
pub struct VerbsQp {
    pub ex: QpEx,
    pub comp_mask: u32,
    pub xrcd: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct DataBuf {
    pub addr: *mut c_void,
    pub length: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct QpInitAttrEx {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut Pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`. The union `wr` is four words, which each opcode reads in its own way (`post_one`).
#[repr(C)]
#[derive(Debug)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub wr: [u64; 4],
    pub qp_type: u32,
    pub rest: [u64; 6],
}

#[repr(C)]
#[derive(Debug)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [u8; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_device_attr_ex`: what follows the first part is zero but for the number of ports.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceAttrEx {
    pub orig: DeviceAttr,
    pub comp_mask: u32,
    pub rest: [u64; 19],
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

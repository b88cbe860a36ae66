//! A device, its context, and what programs ask of both.

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

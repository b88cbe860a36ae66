//! Answers of the device about itself and its port.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::{MAX_COMPLETIONS, MAX_PIECES, MAX_REQUESTS, device};
use crate::abi::{Context, DeviceAttr, DeviceAttrEx, PortAttr};
use crate::wire::MEMBERS;

/// The device's number as sysfs has it, in network order; zero where it has none.
fn node_guid(folder: &CStr) -> u64 {
    let folder = Path::new(OsStr::from_bytes(folder.to_bytes()));
    let text = fs::read_to_string(folder.join("node_guid")).unwrap_or_default();
    u64::from_str_radix(&text.trim().replace(':', ""), 16).unwrap_or(0).to_be()
}

fn attributes() -> DeviceAttr {
    // SAFETY: a structure of numbers.
    let mut attributes: DeviceAttr = unsafe { std::mem::zeroed() };
    attributes.fw_ver[..5].copy_from_slice(b"1.0.0");
    let requests = i32::try_from(MAX_REQUESTS).unwrap_or(i32::MAX);
    let pieces = i32::try_from(MAX_PIECES).unwrap_or(i32::MAX);
    attributes.max_mr_size = 1 << 40;
    attributes.page_size_cap = 4096;
    attributes.max_qp = 1024;
    attributes.max_qp_wr = requests;
    // The peer without receive requests is waited for (`IBV_DEVICE_RC_RNR_NAK_GEN`), and a shared queue can be resized.
    attributes.device_cap_flags = 1 << 12 | 1 << 13;
    attributes.max_sge = pieces;
    attributes.max_sge_rd = pieces;
    attributes.max_cq = 4096;
    attributes.max_cqe = MAX_COMPLETIONS;
    attributes.max_mr = 4096;
    attributes.max_pd = 4096;
    attributes.max_qp_rd_atom = 16;
    attributes.max_res_rd_atom = 16 * 1024;
    attributes.max_qp_init_rd_atom = 16;
    // Atomic with the processor too (`IBV_ATOMIC_GLOB`).
    attributes.atomic_cap = 2;
    attributes.max_mcast_grp = 1024;
    attributes.max_mcast_qp_attach = i32::try_from(MEMBERS).unwrap_or(i32::MAX);
    attributes.max_total_mcast_qp_attach = 1024 * 16;
    attributes.max_ah = 65_536;
    attributes.max_srq = 1024;
    attributes.max_srq_wr = requests;
    attributes.max_srq_sge = pieces;
    attributes.max_pkeys = 1;
    attributes.local_ca_ack_delay = 15;
    attributes.phys_port_cnt = 1;
    attributes
}

pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    _: *const c_void,
    to: *mut DeviceAttrEx,
    size: usize,
) -> c_int {
    if size < size_of::<DeviceAttr>() {
        return Errno::INVAL.raw_os_error();
    }
    // SAFETY: a structure of numbers.
    let mut all: DeviceAttrEx = unsafe { std::mem::zeroed() };
    all.orig = attributes();
    // SAFETY: the context is open, so its device is there, and libibverbs ends its strings with a zero.
    all.orig.node_guid = node_guid(unsafe { CStr::from_ptr((*(*context).device).ibdev_path.as_ptr()) });
    all.orig.sys_image_guid = all.orig.node_guid;
    all.phys_port_cnt_ex = 1;
    let length = size.min(size_of::<DeviceAttrEx>());
    // SAFETY: the program's structure has `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), to.cast::<u8>(), length) };
    0
}

pub(super) unsafe extern "C" fn query_port(context: *mut Context, port: u8, to: *mut PortAttr) -> c_int {
    if port != 1 {
        return Errno::INVAL.raw_os_error();
    }
    // SAFETY: the context is open.
    let gids = unsafe { device(context) }.lock().gids.len();
    let attributes = PortAttr {
        state: 4,
        max_mtu: 5,
        active_mtu: 5,
        gid_tbl_len: i32::try_from(gids).unwrap_or(1),
        // `IBV_PORT_IP_BASED_GIDS`.
        port_cap_flags: 1 << 26,
        max_msg_sz: 1 << 30,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        link_layer: 2,
        ..PortAttr::default()
    };
    // SAFETY: libibverbs gives room for the whole structure.
    unsafe { to.write(attributes) };
    0
}

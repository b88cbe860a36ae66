//! Layouts of the plug-in's structures, beside those of the installed header as its C compiler sees them.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use slipway_verbs::abi;

macro_rules! layouts {
    ($($c:literal $rust:ident { $($field:ident $($there:ident)?),* })*) => {
        vec![$(
            (concat!("sizeof(struct ", $c, ")").to_owned(), size_of::<abi::$rust>()),
            $((concat!("offsetof(struct ", $c, ", ", layouts!(@name $field $($there)?), ")").to_owned(), offset_of!(abi::$rust, $field)),)*
        )*]
    };
    (@name $field:ident $there:ident) => { stringify!($there) };
    (@name $field:ident) => { stringify!($field) };
}

#[test]
fn structures_lie_as_the_header_says() {
    let mut ours = layouts! {
        "ibv_context" Context { cmd_fd, async_fd, num_comp_vectors, abi_compat }
        "verbs_context" VerbsContext { size sz, context }
        "ibv_device" Device { node_type, name, dev_path, ibdev_path }
        "ibv_pd" Pd { handle }
        "ibv_mr" Mr { addr, length, lkey, rkey }
        "ibv_comp_channel" CompChannel { fd }
        "ibv_cq" Cq { channel, cqe, comp_events_completed }
        "ibv_cq_ex" CqEx { status, wr_id, start_poll, read_opcode, read_dlid_path_bits }
        "ibv_cq_init_attr_ex" CqInitAttrEx { cqe, channel, wc_flags, flags }
        "ibv_srq" Srq { pd, handle }
        "ibv_srq_init_attr" SrqInitAttr { attr }
        "ibv_qp" Qp { pd, send_cq, recv_cq, srq, qp_num, state, qp_type }
        "ibv_qp_ex" QpEx { comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_rdma_read, wr_send, wr_set_ud_addr,
            wr_set_inline_data, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort, wr_atomic_write }
        "ibv_qp_init_attr" QpInitAttr { cap, qp_type, sq_sig_all }
        "ibv_qp_init_attr_ex" QpInitAttrEx { comp_mask, pd, create_flags, source_qpn, send_ops_flags }
        "ibv_ah_attr" AhAttr { dlid, is_global, port_num }
        "ibv_qp_attr" QpAttr { dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, min_rnr_timer, rate_limit }
        "ibv_ah" Ah { handle }
        "ibv_sge" Sge { length, lkey }
        "ibv_send_wr" SendWr { sg_list, num_sge, opcode, send_flags, imm_data, wr, qp_type }
        "ibv_recv_wr" RecvWr { sg_list, num_sge }
        "ibv_wc" Wc { status, opcode, byte_len, imm_data, qp_num, src_qp, wc_flags, dlid_path_bits }
        "ibv_device_attr" DeviceAttr { node_guid, max_qp, device_cap_flags, atomic_cap, max_srq_sge, phys_port_cnt }
        "ibv_device_attr_ex" DeviceAttrEx { comp_mask, phys_port_cnt_ex }
        "ibv_port_attr" PortAttr { max_msg_sz, pkey_tbl_len, link_layer, port_cap_flags2 }
        "rdma_event_channel" Channel { fd }
        "rdma_conn_param" Param { private_data_len, responder_resources, rnr_retry_count, srq, qp_num }
    };
    // The gateway reads the beginning of an identifier alone, and of an event.
    for (name, at) in [
        ("rdma_cm_id, verbs", offset_of!(abi::CmId, verbs)),
        ("rdma_cm_id, qp", offset_of!(abi::CmId, qp)),
        ("rdma_cm_event, event", offset_of!(abi::CmEvent, event)),
        ("rdma_cm_event, status", offset_of!(abi::CmEvent, status)),
        ("rdma_cm_event, param", offset_of!(abi::CmEvent, param)),
    ] {
        ours.push((format!("offsetof(struct {name})"), at));
    }
    for (name, number) in [
        ("poll_cq", abi::operation::POLL_CQ),
        ("req_notify_cq", abi::operation::REQ_NOTIFY_CQ),
        ("post_send", abi::operation::POST_SEND),
        ("post_recv", abi::operation::POST_RECV),
    ] {
        let at = offset_of!(abi::Context, ops) + number * size_of::<*const ()>();
        ours.push((format!("offsetof(struct ibv_context, ops.{name})"), at));
    }
    let mut source = String::from("#include <rdma/rdma_cma.h>\n#include <stdio.h>\nint main(void) {\n");
    for (expression, _) in &ours {
        writeln!(source, "printf(\"%zu\\n\", (size_t){expression});").unwrap();
    }
    source.push_str("}\n");
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(compiled.success(), "librdmacm-dev has the header: run `make setup`");
    let output = Command::new(&program).output().unwrap();
    let theirs: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), ours.len());
    for ((expression, ours), theirs) in ours.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}

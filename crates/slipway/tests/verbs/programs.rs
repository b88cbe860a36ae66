//! More programs that people run on RDMA, and a program of our own that looks at every byte.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::common::rdma::{hpcc, put};
use super::common::{Place, await_that, told, verbs};
use super::{LAB, PERFTEST, by_rdma_cm, by_tcp, program};

const ADDRESS: &str = "10.64.0.1";
const PERFTEST_PROGRAMS: [&str; 8] = [
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
];

#[test]
fn each_operation_moves_its_bytes_and_the_rest_is_refused() {
    verbs::plug_in();
    let place = Place::new();
    let built = compiled(&place, "tests/verbs/operations.cc", &["-libverbs", "-lmlx5"]);
    let lab = place.up("bytes", LAB);
    put(&lab, "a", "/tmp/operations", &built);
    assert_eq!(lab.exec("a", ["timeout", "60", "/tmp/operations"]), "all operations\n");
}

/// A program of C++, of a file of this crate.
fn compiled(place: &Place, source: &str, libraries: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let built = place.path().join("compiled");
    let mut cxx = Command::new("c++");
    cxx.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).args([&built, &source]).args(libraries);
    let output = cxx.output().expect("build-essential is installed");
    assert!(output.status.success(), "libibverbs-dev and librdmacm-dev: run `make setup`: {}", told(&output));
    std::fs::read(built).expect("a program")
}

/// Threads that begin at once, each with a channel of its own, the first of which starts librdmacm.
#[test]
fn threads_of_one_program_connect_at_once() {
    verbs::plug_in();
    let place = Place::new();
    let built = compiled(&place, "benches/bench/fast/verbs/scale.cc", &["-lrdmacm", "-libverbs"]);
    let lab = place.up("threads", LAB);
    for node in ["a", "b"] {
        put(&lab, node, "/tmp/scale", &built);
    }
    let mut server = program(&lab, "a", &["/tmp/scale", "serve", "7100"]).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).expect("read");
    assert_eq!(line, "listens\n");
    for _ in 0..5 {
        let done = program(&lab, "b", &["/tmp/scale", "connects", ADDRESS, "7100", "200", "8"]).output();
        let done = done.expect("started");
        assert!(done.status.success(), "{}", told(&done));
    }
    place.run(["stop", &lab.name, "a"]);
    server.wait().expect("ended");
}

#[test]
fn perftest_runs_with_many_queue_pairs_events_inline_and_each_mtu() {
    verbs::plug_in();
    let place = Place::new();
    let lab = place.up("perf", LAB);
    for program in [
        &["ib_write_bw", "-q", "8", "-b"][..],
        &["ib_send_bw", "-q", "8", "-e"],
        &["ib_read_bw", "-q", "8", "-e", "-m", "256"],
        &["ib_read_lat", "-e", "-m", "512"],
        &["ib_atomic_lat", "-m", "1024"],
        &["ib_atomic_bw", "-q", "4", "-A", "CMP_AND_SWAP"],
        &["ib_write_lat", "-I", "128", "-s", "100", "-m", "2048"],
        &["ib_write_bw", "-I", "64", "-s", "64", "-q", "4"],
        &["ib_send_lat", "-c", "UD", "-e", "-s", "2000", "-m", "4096"],
    ] {
        let said = by_tcp(&lab, PERFTEST, &[program, &["-n", "200"]].concat());
        assert!(said.contains("#iterations"), "{said}");
    }
    // Its programs connect twice with -R. The second listener comes late, and the second request waits for it.
    for program in PERFTEST_PROGRAMS {
        let words = [program, "-R", "-n", "200"];
        let said = by_rdma_cm(&lab, &words, &[&words[..], &[ADDRESS]].concat());
        assert!(said.contains("#iterations"), "{said}");
    }
}

/// A program that needs more than the device offers says so, and ends.
#[test]
fn a_program_of_extended_connections_is_refused() {
    verbs::plug_in();
    let place = Place::new();
    let lab = place.up("xrc", LAB);
    let asked = program(&lab, "a", &["ibv_xsrq_pingpong", "-g", "0"]).output().expect("started");
    assert!(!asked.status.success() && asked.status.code() != Some(124), "it ends: {}", told(&asked));
}

#[test]
fn datagrams_find_each_other() {
    verbs::plug_in();
    let place = Place::new();
    let lab = place.up("ud", LAB);
    let said = by_rdma_cm(&lab, &["udaddy"], &["udaddy", "-s", ADDRESS]);
    assert_eq!(said.matches("return status 0").count(), 2, "{said}");
}

#[test]
fn more_programs_of_sockets_run_over_rsockets() {
    verbs::plug_in();
    let place = Place::new();
    let lab = place.up("rs2", LAB);
    let words = ["riostream", "-S", "1024", "-C", "50"];
    let said = by_rdma_cm(&lab, &words, &[&words[..], &["-s", ADDRESS]].concat());
    assert!(said.contains("usec/xfer"), "{said}");
    let library = format!("LD_PRELOAD=/usr/lib/{}-linux-gnu/rsocket/librspreload.so.1", std::env::consts::ARCH);
    let words = ["env", &library, "NPtcp", "-u", "4096", "-n", "5"];
    by_rdma_cm(&lab, &words, &[&words[..], &["-h", ADDRESS, "-o", "/tmp/np.out"]].concat());
    assert!(lab.exec("b", ["cat", "/tmp/np.out"]).contains(" 4096 "));
    let mut server = program(&lab, "a", &["rcopy"]).stdout(Stdio::null()).spawn().expect("started");
    let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    put(&lab, "b", "/tmp/sent", &sent);
    let to = format!("{ADDRESS}:/tmp/received");
    await_that("the server receives", || {
        program(&lab, "b", &["rcopy", "/tmp/sent", &to]).status().is_ok_and(|it| it.success())
    });
    let sums = ["a:/tmp/received", "b:/tmp/sent"].map(|file| {
        let (node, path) = file.split_once(':').expect("a node and a path");
        lab.exec(node, ["sh", "-c", "sha256sum < $0", path])
    });
    assert_eq!(sums[0], sums[1]);
    server.kill().expect("it runs");
    server.wait().expect("ended");
}

#[test]
fn libfabric_ucx_and_hpcc_use_the_device() {
    verbs::plug_in();
    let place = Place::new();
    let lab = place.up("fi", LAB);
    let said = by_tcp(&lab, 47592, &["fi_pingpong", "-p", "verbs", "-e", "msg", "-I", "50", "-S", "65536"]);
    assert!(said.contains("usec/xfer"), "{said}");
    for (provider, endpoint) in [("verbs;ofi_rxm", "rdm"), ("verbs", "dgram")] {
        let words = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", "50", "-S", "1024"];
        let words = [&["env", "FI_VERBS_DGRAM_USE_NAME_SERVER=0"], &words[..]].concat();
        let said = by_tcp(&lab, 47592, &words);
        assert!(said.contains("usec/xfer"), "{endpoint}: {said}");
    }
    let said = lab.exec("a", ["ucx_info", "-d"]);
    assert!(said.contains("Transport: rc_verbs") && said.contains("Transport: ud_verbs"), "{said}");
    let said = hpcc(&place, &lab);
    assert!(said.contains("Success=1") && said.matches("selected ucx best priority").count() == 2, "{said}");
}

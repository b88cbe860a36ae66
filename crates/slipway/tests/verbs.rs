//! RDMA in a lab, through the command itself: unmodified programs of Debian's rdma-core and perftest, between two nodes.

mod common;
#[path = "verbs/programs.rs"]
mod programs;

use std::path::Path;
use std::process::Stdio;

use common::rdma::{by_rdma_cm, program};
use common::{Inventory, Lab, Place, as_before, await_that, told};

const LAB: &str = "\
networks: {net: {driver: fast, rdma: true}, plain: fast}
nodes:
  a: {networks: [net]}
  b: {networks: [net]}
  c: {networks: [plain]}
";

/// Runs a program in node `a`, and its client in `b` once `is_ready`. Gives what both printed.
#[track_caller]
fn pair(lab: &Lab<'_>, server: &[&str], client: &[&str], is_ready: impl FnMut() -> bool) -> String {
    let child = program(lab, "a", server).spawn().expect("started");
    await_that("the server listens", is_ready);
    let asked = program(lab, "b", client).output().expect("started");
    let heard = child.wait_with_output().expect("ended");
    assert!(asked.status.success() && heard.status.success(), "{client:?}: {} {}", told(&asked), told(&heard));
    String::from_utf8_lossy(&heard.stdout).into_owned() + &String::from_utf8_lossy(&asked.stdout)
}

/// The port of perftest and of the examples of libibverbs, and that of UCX' own.
const PERFTEST: u16 = 18515;
const UCX: u16 = 13337;

/// A program whose two sides find each other by TCP at this port.
#[track_caller]
fn by_tcp(lab: &Lab<'_>, port: u16, server: &[&str]) -> String {
    let client = [server, &["a"]].concat();
    let listens = format!("grep -qi ':{port:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    let is_ready = || lab.program("a", ["sh", "-c", &listens]).status().is_ok_and(|status| status.success());
    pair(lab, server, &client, is_ready)
}

#[test]
fn programs_of_verbs_run_unmodified_and_nothing_is_left() {
    common::verbs::plug_in();
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("verbs", LAB);
    assert!(lab.exec("a", ["ibv_devices"]).contains("slipway0"));
    let said = lab.exec("b", ["ibv_devinfo", "-v"]);
    assert!(said.contains("PORT_ACTIVE (4)") && said.contains("::ffff:10.64.0.2, RoCE v2"), "{said}");
    // A node on another network has no device, and no trap.
    assert_eq!(lab.exec("c", ["sh", "-c", "ls /sys/class | grep -c infiniband || true"]).trim(), "0");
    for program in [
        &["ibv_rc_pingpong", "-g", "0", "-n", "100"][..],
        &["ibv_rc_pingpong", "-g", "0", "-n", "100", "-e"],
        &["ib_write_bw", "-n", "200"],
        &["ib_send_lat", "-n", "200", "-e"],
    ] {
        let said = by_tcp(&lab, PERFTEST, program);
        assert!(said.contains("Mbit/sec") || said.contains("#iterations"), "{said}");
    }
    let status = place.json(["fast", "status", &lab.name]);
    assert_eq!(status["brokers"][0]["nodes"].as_array().map(Vec::len), Some(2), "{status}");
    counted(&place, &lab, &status);
    drop(lab);
    let name = place.name("verbs");
    place.run(["down", &name]);
    as_before(&place, &before, "after a lab with RDMA");
}

#[test]
fn programs_connect_by_rdma_cm() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("cm", LAB);
    let address = "10.64.0.1";
    let said = by_rdma_cm(&lab, &["rping", "-s", "-C", "5", "-v"], &["rping", "-c", "-a", address, "-C", "5", "-v"]);
    assert!(said.contains("ping data: rdma-ping-4"), "{said}");
    let said = by_rdma_cm(&lab, &["ucmatose"], &["ucmatose", "-s", address]);
    assert_eq!(said.matches("return status 0").count(), 2, "{said}");
}

/// This machine has no device, so nodes reach no peer outside of a lab. `make test-vm` has two machines with one.
#[test]
fn peers_outside_of_a_lab_take_a_device_of_the_machine() {
    common::verbs::plug_in();
    let place = Place::new();
    let before = Inventory::of(&place);
    let text = "networks: {net: {driver: fast, rdma: true, rdma_peers: [192.0.2.0/24]}}\nnodes: {a: }\n";
    let file = place.file("outside", text);
    let said = place.fails(1, ["up".as_ref(), file.as_os_str()]);
    assert!(said.contains("this machine has no RDMA device to reach `rdma_peers` by"), "{said}");
    as_before(&place, &before, "up");
}

/// Sockets over verbs: librdmacm's own programs, and programs of sockets that its library is preloaded into.
#[test]
fn rsockets_carry_programs_of_sockets() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("rs", LAB);
    let client = ["rstream", "-s", "10.64.0.1", "-S", "1024", "-C", "100", "-T", "s"];
    let said = by_rdma_cm(&lab, &["rstream", "-S", "1024", "-C", "100", "-T", "s"], &client);
    assert!(said.contains("usec/xfer"), "{said}");
    let library = format!("LD_PRELOAD=/usr/lib/{}-linux-gnu/rsocket/librspreload.so.1", std::env::consts::ARCH);
    let [server, client] = [&["-s", "-1"][..], &["-c", "10.64.0.1", "-n", "4M"]]
        .map(|words| [&["env", library.as_str(), "iperf3"], words].concat());
    let said = by_rdma_cm(&lab, &server, &client);
    assert!(said.contains("iperf Done"), "{said}");
}

#[test]
fn ucx_and_open_mpi_run_over_verbs() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("ucx", LAB);
    for transport in ["rc_verbs", "ud_verbs"] {
        for test in ["am_lat", "put_bw"] {
            // Datagrams have no one-sided operations.
            if (transport, test) != ("ud_verbs", "put_bw") {
                let words = ["ucx_perftest", "-d", "slipway0:1", "-x", transport, "-t", test, "-n", "200", "-w", "0"];
                let said = by_tcp(&lab, UCX, &words);
                assert!(said.contains("Final:"), "{said}");
            }
        }
    }
    let words = ["ucx_perftest", "-t", "tag_bw", "-n", "200", "-s", "65536", "-w", "0"];
    let words = [&["env", "UCX_TLS=rc_verbs,ud_verbs,self"], words.as_slice()].concat();
    assert!(by_tcp(&lab, UCX, &words).contains("Final:"));
    let run = ["run", &lab.name, "--on", "a,b", "--mpi", "openmpi", "-e", "OMPI_MCA_pml_base_verbose=10"];
    let output = place.slipway(run.into_iter().chain(["--", "NPopenmpi", "-u", "4096", "-n", "5"])).output();
    let said = told(&output.expect("slipway can be started"));
    assert!(said.contains("4096 bytes") && said.contains("selected ucx best priority"), "{said}");
}

#[test]
fn queue_pairs_keep_the_policy_and_never_pass_conditions_by() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("rules", LAB);
    let rping = ["rping", "-c", "-a", "10.64.0.1", "-C", "1"];
    let client = || lab.program("b", rping).output().expect("started");
    let server = ["timeout", "60", "rping", "-s", "-P"];
    let mut child = lab.program("a", server).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    await_that("the server listens", || client().status.success());
    let closed = place.path().join("closed.yaml");
    std::fs::write(&closed, "policy:\n  - {name: closed, from: b, to: a, verdict: deny}\n").expect("written");
    place.run(["policy", &lab.name, closed.to_str().expect("plain")]);
    let refused = client();
    assert!(!refused.status.success() && told(&refused).contains("UNREACHABLE"), "{}", told(&refused));
    let open = place.path().join("open.yaml");
    std::fs::write(&open, "[]\n").expect("written");
    place.run(["policy", &lab.name, open.to_str().expect("plain")]);
    await_that("the server is served again", || client().status.success());
    place.run(["set", &lab.name, "b:eth0", "delay=1ms"]);
    let refused = client();
    assert!(!refused.status.success(), "{}", told(&refused));
    child.kill().expect("it runs");
    child.wait().expect("ended");
}

/// The programs above have ended; their traffic stays counted, at both nodes.
fn counted(place: &Place, lab: &Lab<'_>, status: &serde_json::Value) {
    let total = |node: usize, of: &str| status["brokers"][0]["nodes"][node]["totals"][0][of].as_u64().unwrap_or(0);
    // Two programs of 100 messages each way, and 200 of 2 bytes: the client's alone send more.
    assert!(total(1, "write_bytes") >= 200 * 65536 && total(1, "writes") >= 200, "{status}");
    let sent = [0, 1].map(|node| (total(node, "sends"), total(node, "send_bytes")));
    let received = [1, 0].map(|node| (total(node, "receives"), total(node, "receive_bytes")));
    assert!(sent[0].0 >= 400 && sent == received, "{status}");
    let page = place.run(["fast", "metrics", &lab.name]);
    let line = format!(
        "slipway_fast_verbs_operations_total{{lab=\"{}\",node=\"b\",peer=\"a\",operation=\"write\"}}",
        lab.name
    );
    assert!(page.contains(&line) && page.contains("slipway_fast_queue_pairs{"), "{page}");
    let said = place.run(["fast", "explain", &lab.name, "a", "b"]);
    assert!(said.contains("verbs from a to b run through shared memory"), "{said}");
    let said = place.run(["fast", "explain", &lab.name, "a", "c"]);
    assert!(said.contains("are refused: node c has no RDMA device"), "{said}");
}

/// A node that moves to its peer's host has its device under the same address there, and programs connect over it.
#[test]
fn a_node_that_moves_takes_its_device_along() {
    common::verbs::plug_in();
    let place = Place::new();
    let text =
        "hosts: 3\nnetworks: {net: {driver: fast, rdma: true}}\nnodes:\n  a: {host: host1}\n  b: {host: host2}\n";
    let lab = place.up("moved", text);
    let device = |node: &str| lab.exec(node, ["ibv_devinfo", "-v"]);
    let writes = |context: &str| {
        let said = by_tcp(&lab, PERFTEST, &["ib_write_bw", "-n", "200"]);
        assert!(said.contains("#iterations"), "{context}: {said}");
    };
    let before = device("b");
    writes("before");
    // To its peer, to a third host, and back.
    for to in ["host1", "host3", "host1"] {
        place.run(["move", &lab.name, "b", "--to", to, "--stop", "--grace", "0s"]);
        assert_eq!(device("b"), before, "on {to}");
        writes(to);
    }
    let said = by_tcp(&lab, PERFTEST, &["ibv_rc_pingpong", "-g", "0", "-n", "100"]);
    assert!(said.contains("Mbit/sec"), "{said}");
    place.run(["move", &lab.name, "a,b", "--to", "host3", "--stop", "--grace", "0s"]);
    writes("both moved");
}

/// Datagrams to a group reach its members, each once, and no node that the policy keeps away from the sender.
#[test]
fn datagrams_to_a_group_reach_its_members() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("group", "networks: {net: {driver: fast, rdma: true}}\nnodes: {a: , b: , c: , d: }\n");
    let closed = place.path().join("closed.yaml");
    std::fs::write(&closed, "policy:\n  - {name: closed, from: c, to: d, verdict: deny}\n").expect("written");
    place.run(["policy", &lab.name, closed.to_str().expect("plain")]);
    let members = ["a", "b", "d"].map(|node| common::rdma::Member::join(&lab, node, "239.1.2.3"));
    let sender = program(&lab, "c", &["mckey", "-m", "239.1.2.3", "-s", "-C", "5"]).output().expect("started");
    assert!(sender.status.success(), "{}", told(&sender));
    let [a, b, d] = members;
    a.hears_all();
    b.hears_all();
    d.hears_nothing();
}

/// One build serves several numbers of the private interface, under a name for each. Others are refused, before anything is made.
#[test]
fn an_image_with_another_libibverbs_is_refused_with_the_reason() {
    common::verbs::plug_in();
    let place = Place::new();
    let library = format!("usr/lib/{}-linux-gnu/libibverbs.so.1", std::env::consts::ARCH);
    let mut bytes = std::fs::read(Path::new("/").join(&library)).expect("libibverbs is installed");
    let version = b"IBVERBS_PRIVATE_34";
    let at = bytes.windows(version.len()).position(|found| found == version).expect("Debian's number");
    let own = place.path().join("image").join(library);
    std::fs::create_dir_all(own.parent().expect("a folder")).expect("made");
    let text = "images: {own: image}\nnetworks: {net: {driver: fast, rdma: true}}\nnodes: {a: {image: own}}\n";
    let file = place.file("image", text);
    for number in ["60", "33", "5x"] {
        bytes[at + version.len() - 2..at + version.len()].copy_from_slice(number.as_bytes());
        std::fs::write(&own, &bytes).expect("written");
        let said = place.fails(2, ["up".as_ref(), file.as_os_str()]);
        let reason = format!("has the private interface {}, and the plug-in", number.trim_end_matches('x'));
        assert!(said.contains("give it an RDMA device") && said.contains(&reason), "{said}");
        assert!(said.contains("34, 57, 59"), "{said}");
    }
}

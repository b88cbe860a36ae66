//! Unmodified programs of Debian's rdma-core and perftest, between two nodes without a NIC.
//!
//! The nodes share a network namespace, where the programs find each other by TCP. Their devices have addresses of their own.

#[path = "programs/gateway.rs"]
mod gateway;
#[path = "programs/outside.rs"]
mod outside;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use slipway_verbs::broker::{Broker, Caps, NodeConfig, Policy, listen};

const ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

/// The plug-in, built once.
fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let output = Command::new(root.join("scripts/verbs.sh"))
            .env("CARGO", env!("CARGO"))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the plug-in can be built");
        // One build has a name for each interface. The first is that of Debian's library.
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().into()
    })
}

/// Two nodes and their broker.
struct Nodes {
    folder: tempfile::TempDir,
    net: Child,
    stop: Arc<AtomicBool>,
    /// Queue pairs that have sent something.
    sending: Arc<AtomicUsize>,
    broker: Option<std::thread::JoinHandle<()>>,
}

impl Nodes {
    fn new(caps: Caps, policy: Policy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::new(caps, policy).unwrap();
        for (id, address) in (1..).zip(ADDRESSES) {
            let listener = listen(&folder.path().join(format!("{id}.sock"))).unwrap();
            broker.add(NodeConfig { id, addresses: vec![address.parse::<IpAddr>().unwrap()], listener }).unwrap();
        }
        let (stop, sending) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_over, count) = (stop.clone(), sending.clone());
        let broker = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                broker.turn(Some(Duration::from_millis(50))).unwrap();
                let links = broker.status().into_iter().flat_map(|it| it.links);
                count.store(links.filter(|it| it.traffic.sends > 0).count(), Ordering::Relaxed);
            }
        });
        let mut net = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is installed");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(net.stdout.as_mut().unwrap()), &mut line).unwrap();
        assert_eq!(line, "up\n", "tests of nodes need root");
        Self { folder, net, stop, sending, broker: Some(broker) }
    }

    fn open() -> Self {
        Self::new(Caps::default(), Box::new(|_, _| Ok(())))
    }

    fn command(&self, node: usize, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.net.id()))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/node.sh"))
            .args([self.folder.path(), node.to_string().as_ref(), ADDRESSES[node - 1].as_ref(), plugin()])
            .args(["timeout", "--signal=KILL", "60"])
            .args(program)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, node: usize, program: &[&str]) -> String {
        succeeded(program, &self.command(node, program).output().unwrap())
    }

    /// Runs a server in the first node, and its client in the second once the server listens.
    fn pair(&self, program: &[&str]) -> String {
        let (server, client) = self.outputs(program);
        succeeded(program, &server) + &succeeded(program, &client)
    }

    fn outputs(&self, program: &[&str]) -> (Output, Output) {
        let server = self.command(1, program).spawn().unwrap();
        self.wait_for_listener();
        let client = self.command(2, &[program, &["127.0.0.1"]].concat()).output().unwrap();
        (server.wait_with_output().unwrap(), client)
    }

    /// Waits until somebody listens in the namespace: nothing else does, and a connection would be the client's.
    fn wait_for_listener(&self) {
        let table = |name| std::fs::read_to_string(format!("/proc/{}/net/{name}", self.net.id())).unwrap();
        until("somebody listens", || {
            [table("tcp"), table("tcp6")].iter().any(|table| table.lines().any(|line| line.contains(" 0A ")))
        });
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("after half a minute, not yet: {what}");
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.net.kill();
        let _ = self.net.wait();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(broker) = self.broker.take() {
            let _ = broker.join();
        }
    }
}

fn succeeded(program: &[&str], output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn a_node_has_a_device() {
    let nodes = Nodes::open();
    assert!(nodes.run(1, &["ibv_devices"]).contains("slipway0"));
    let info = nodes.run(1, &["ibv_devinfo", "-v"]);
    for part in ["hca_id:\tslipway0", "PORT_ACTIVE", "::ffff:10.9.0.1", "ATOMIC_GLOB"] {
        assert!(info.contains(part), "{part}: {info}");
    }
}

#[test]
fn the_pingpongs_of_rdma_core_run() {
    let nodes = Nodes::open();
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"] {
        let length = if program == "ibv_ud_pingpong" { "2048" } else { "65536" };
        let said = nodes.pair(&[program, "-g", "0", "-n", "200", "-s", length]);
        assert!(said.contains("200 iters"), "{program}: {said}");
    }
}

#[test]
fn each_operation_is_carried_out_to_the_byte() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/operations.py");
    assert_eq!(Nodes::open().run(1, &["/usr/bin/python3", script]), "all operations\n");
}

#[test]
fn registrations_that_end_and_forks_harm_nothing() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/hazards.py");
    assert_eq!(Nodes::open().run(1, &["/usr/bin/python3", script]), "all hazards\n");
}

#[test]
fn perftest_runs() {
    let nodes = Nodes::open();
    for program in [
        "ib_write_bw",
        "ib_write_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_send_bw",
        "ib_send_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
    ] {
        nodes.pair(&[program, "-x", "0", "-F", "-n", "200"]);
    }
    for arguments in [
        &["ib_write_bw", "-q", "8", "-s", "100000"][..],
        &["ib_send_bw", "-c", "UD", "-s", "1024"],
        &["ib_send_bw", "-c", "UC", "-s", "1000"],
        &["ib_send_bw", "-r", "64", "--use-srq", "-q", "2"],
        &["ib_send_lat", "-I", "64"],
        &["ib_write_bw", "-b"],
    ] {
        nodes.pair(&[arguments, &["-x", "0", "-F", "-n", "200"]].concat());
    }
}

#[test]
fn the_policy_and_the_caps_are_heard() {
    let denied = Nodes::new(Caps::default(), Box::new(|from, _| if from == 2 { Err(Errno::ACCESS) } else { Ok(()) }));
    let (_, client) = denied.outputs(&["timeout", "3", "ibv_rc_pingpong", "-g", "0", "-n", "10"]);
    assert!(String::from_utf8_lossy(&client.stderr).contains("Failed to modify QP to RTR"));
    let capped = Nodes::new(Caps { queue_pairs: 0, ..Caps::default() }, Box::new(|_, _| Ok(())));
    let output = capped.command(1, &["timeout", "3", "ibv_rc_pingpong", "-g", "0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Couldn't create QP"));
}

#[test]
fn a_peer_that_dies_is_an_error_and_no_hang() {
    let nodes = Nodes::open();
    let program = ["ib_send_bw", "-x", "0", "-F", "-D", "40"];
    let mut server = nodes.command(1, &program).spawn().unwrap();
    nodes.wait_for_listener();
    let client = nodes.command(2, &[&program[..], &["127.0.0.1"]].concat()).spawn().unwrap();
    // Both sides have told each other all by then, over TCP.
    until("the client sends", || nodes.sending.load(Ordering::Relaxed) == 1);
    // `timeout` passes the signal on.
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    server.wait().unwrap();
    let client = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&client.stdout) + String::from_utf8_lossy(&client.stderr);
    assert!(!client.status.success() && said.contains("ailed status 12"), "{said}");
}

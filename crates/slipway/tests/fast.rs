//! The fast path, through the command itself: which programs take it, what becomes of it when its router dies, and what is left.

mod common;

use std::process::{Child, Stdio};

use common::{Inventory, Lab, Place, as_before, await_that, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A node whose server says hello to whoever comes and then waits for them to go, and a client on each of two hosts.
const LAB: &str = r#"hosts: 2
networks: {net: fast}
nodes:
  srv:
    host: host1
    command: [python3, -c, "import socket, threading\ndef serve(c):\n  try:\n    c.sendall(b'hello')\n    c.recv(1)\n  except OSError: pass\n  c.close()\ns = socket.create_server(('', 5000), family=socket.AF_INET6, dualstack_ipv6=True)\nwhile True: threading.Thread(target=serve, args=[s.accept()[0]]).start()"]
  a: {host: host1}
  b: {host: host2}
"#;

/// Connects, prints both addresses, and keeps the connection for as long as it is asked to.
fn client(server: &str) -> String {
    format!(
        "import socket, sys\nc = socket.create_connection(('{server}', 5000))\nassert c.recv(5) == b'hello'\n\
         print(c.getsockname()[0], c.getpeername()[0], c.getpeername()[1], flush=True)\nsys.stdin.read()\n"
    )
}

fn lab<'a>(place: &'a Place, name: &str) -> Lab<'a> {
    let lab = place.up(name, LAB);
    await_that("the server listens", || connect(&lab, "a", "srv").is_some());
    lab
}

/// What the client in a node says; `None` where nobody listens.
fn connect(lab: &Lab<'_>, node: &str, server: &str) -> Option<String> {
    let output = lab.program(node, ["python3", "-c", &client(server)]).stdin(Stdio::null()).output().expect("started");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// One that stays connected until it is dropped.
struct Connected(Child);

impl Connected {
    fn new(lab: &Lab<'_>, node: &str) -> Self {
        let mut command = lab.program(node, ["python3", "-c", &client("srv")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut said, &mut line).expect("it says that it is connected");
        assert!(line.contains("5000"), "{line}");
        Self(child)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn status(lab: &Lab<'_>) -> Vec<Value> {
    let answer = lab.place.json(["fast", "status", &lab.name]);
    answer["routers"].as_array().expect("a list").clone()
}

/// Connections on the fast path so far: within the first host, and from the second.
fn taken(lab: &Lab<'_>) -> (u64, u64) {
    let routers = status(lab);
    let count = |at: usize, what: &str| routers[at]["status"]["connections"][what].as_u64().expect("a number");
    (count(0, "pair"), count(1, "tcp"))
}

fn routers(lab: &Lab<'_>) -> Vec<Pid> {
    let answer = lab.place.json(["inspect", &lab.name]);
    let routers = answer["state"]["routers"].as_array().expect("a list").clone();
    let pid = |router: &Value| Pid::from_raw(i32::try_from(router["pid"].as_i64()?).ok()?);
    routers.iter().filter_map(pid).collect()
}

#[test]
fn programs_slip_past_and_see_virtual_addresses() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = lab(&place, "past");
    let (pair, tcp) = taken(&lab);
    assert_eq!(connect(&lab, "a", "srv").as_deref(), Some("10.64.0.2 10.64.0.1 5000"));
    assert_eq!(connect(&lab, "b", "srv").as_deref(), Some("10.64.0.3 10.64.0.1 5000"));
    assert_eq!(connect(&lab, "a", "ip6-srv").as_deref(), Some("fd53:6c69:7000::2 fd53:6c69:7000::1 5000"));
    assert_eq!(taken(&lab), (pair + 2, tcp + 1));
    // To itself is no matter of networks.
    connect(&lab, "srv", "127.0.0.1").expect("it listens on all of its addresses");
    assert_eq!(taken(&lab), (pair + 2, tcp + 1));
    let text = place.run(["fast", "status", &lab.name]);
    assert!(text.contains("the address is no other node's on a fast network"), "{text}");
    drop(lab);
    as_before(&place, &before, "no router, no group and no map is left");
}

#[test]
fn a_process_is_explained_socket_by_socket() {
    let place = Place::new();
    let lab = lab(&place, "why");
    let _connected = Connected::new(&lab, "b");
    let answer = place.json(["inspect", &lab.name, "b"]);
    let pids = answer["pids"].as_array().expect("a list").clone();
    // Another lab runs, and the process is enough to tell which is meant.
    let other = place.up("other", "networks: {net: fast}\nnodes: {n: }\n");
    let explain = |pid: &Value| place.json(["fast", "explain", &pid.to_string()]);
    let all: Vec<Value> =
        pids.iter().flat_map(|pid| explain(pid)["sockets"].as_array().expect("a list").clone()).collect();
    assert!(all.iter().any(|socket| socket["way"] == "tcp" && socket["peer"] == "10.64.0.1:5000"), "{all:?}");
    let _beside = Connected::new(&lab, "a");
    let why = |node: &str| {
        let answer = place.json(["inspect", &lab.name, node]);
        let pids = answer["pids"].as_array().expect("a list").clone();
        pids.iter().map(|pid| explain(pid)["sockets"].to_string()).collect::<String>()
    };
    let why = why("a");
    assert!(["\"pair\"", "EPIPE", "`exact: true`"].iter().all(|word| why.contains(word)), "{why}");
    let output =
        place.slipway(["fast", "explain", &lab.name, &std::process::id().to_string()]).output().expect("started");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is in no node"), "{}", told(&output));
    place.fails(4, ["fast", "explain", &std::process::id().to_string()]);
    other.down();
    // Names are looked up by sockets of UDP, which are counted apart.
    lab.exec("a", ["python3", "-c", "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('srv', 53))"]);
    let native = &status(&lab)[0]["status"]["connections"]["native"];
    assert!(native["udp"].as_u64() >= Some(1) && native["not-tcp"].is_null(), "{native}");
}

/// What is connected does not notice; a server that waited in `accept` goes on waiting; all that comes is served by another.
#[test]
fn a_router_that_is_killed_is_replaced() {
    let place = Place::new();
    let lab = lab(&place, "again");
    let connected = Connected::new(&lab, "a");
    let old = routers(&lab);
    assert_eq!(old.len(), 2);
    for &pid in &old {
        kill_process(pid, Signal::KILL).expect("it runs");
    }
    await_that("both are replaced", || {
        let now = routers(&lab);
        now.len() == 2 && now.iter().all(|pid| !old.contains(pid))
    });
    assert_eq!(connect(&lab, "b", "srv").as_deref(), Some("10.64.0.3 10.64.0.1 5000"));
    assert_eq!(connect(&lab, "a", "srv").as_deref(), Some("10.64.0.2 10.64.0.1 5000"));
    drop(connected);
    assert_eq!(taken(&lab), (1, 1), "another counts anew");
    let text = place.run(["inspect", &lab.name]);
    assert!(text.contains("1 other before it"), "{text}");
}

/// As in a container: no filter of ours takes set-user-ID programs their meaning.
#[test]
fn set_user_id_programs_work() {
    let place = Place::new();
    let lab = place.up("suid", "networks: {net: fast}\nnodes: {n: }\n");
    lab.exec("n", ["sh", "-c", "cp /usr/bin/id /usr/local/bin/who && chmod u+s /usr/local/bin/who"]);
    let output =
        place.slipway(["exec", "-u", "nobody", &lab.name, "n", "--", "/usr/local/bin/who"]).output().expect("started");
    assert!(String::from_utf8_lossy(&output.stdout).contains("euid=0"), "{}", told(&output));
}

#[test]
fn io_uring_is_refused_unless_the_network_allows_it() {
    const SETUP: &str = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
        params = (ctypes.c_char * 120)()\nprint(libc.syscall(425, 1, params) >= 0)\n";
    let place = Place::new();
    let lab = place.up("ring", "networks: {net: fast, free: {driver: fast, io_uring: allow}}\nnodes: {a: {networks: [net]}, b: {networks: [free]}}\n");
    let says = |node| {
        String::from_utf8_lossy(&lab.program(node, ["python3", "-c", SETUP]).output().expect("started").stdout)
            .trim()
            .to_owned()
    };
    assert_eq!(says("a"), "False");
    let forbidden = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|how| how.trim() == "2");
    assert_eq!(says("b"), if forbidden { "False" } else { "True" });
}

#[test]
fn what_is_under_conditions_is_not_fast() {
    let place = Place::new();
    let lab = lab(&place, "cut");
    place.run(["set", &lab.name, "a", "delay=5ms"]);
    let before = taken(&lab);
    assert_eq!(connect(&lab, "a", "srv").as_deref(), Some("10.64.0.2 10.64.0.1 5000"));
    assert_eq!(taken(&lab), before);
    place.run(["restore", &lab.name]);
    connect(&lab, "a", "srv").expect("it listens");
    assert_eq!(taken(&lab).0, before.0 + 1);
}

/// How a server begins: `s` listens at port 5001 of the node.
const LISTENS: &str = "
import select, socket
def listen(): return socket.create_server(('', 5001), family=socket.AF_INET6, dualstack_ipv6=True)
s = listen()
print('it listens', flush=True)
";

/// A program of the node `srv` that goes on so, once it listens.
fn serves(lab: &Lab<'_>, rest: &str) -> Child {
    let mut command = lab.program("srv", ["python3", "-c", &format!("{LISTENS}{rest}")]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("it says so");
    assert_eq!(line, "it listens\n");
    child
}

/// Connections of TCP that the server's node has opened from outside: one for each knock, none for one of the fast path.
fn knocks(lab: &Lab<'_>) -> u64 {
    let text = lab.exec("srv", ["cat", "/proc/net/snmp"]);
    let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp: ")).map(str::split_whitespace);
    let [names, numbers] = [(); 2].map(|()| tcp.next().expect("two lines"));
    let found = names.zip(numbers).find(|(name, _)| *name == "PassiveOpens");
    found.and_then(|(_, number)| number.parse().ok()).expect("the kernel counts them")
}

/// It comes for each connection by itself. (Once a second a knock tells which listener the kernel picks.)
#[test]
fn who_waits_in_accept_is_not_knocked_for() {
    const CALLS: u64 = 200;
    let place = Place::new();
    let lab = lab(&place, "waits");
    let calls = format!(
        "
import socket
for _ in range({CALLS}):
    with socket.create_connection(('srv', 5000)) as c: assert c.recv(5) == b'hello'
"
    );
    for node in ["a", "b"] {
        let (knocked, (pair, tcp)) = (knocks(&lab), taken(&lab));
        lab.exec(node, ["python3", "-c", &calls]);
        let now = taken(&lab);
        assert_eq!(now.0 + now.1, pair + tcp + CALLS, "{node}: all are fast");
        let knocked = knocks(&lab) - knocked;
        assert!(knocked < CALLS, "{node}: {knocked} knocks");
    }
}

/// Otherwise what a server says first could wait 40 ms for its client to acknowledge what routers said before (`tcp(7)`, RFC 896).
#[test]
fn a_connection_from_another_host_acknowledges_at_once_as_a_new_one_does() {
    let place = Place::new();
    let lab = lab(&place, "quick");
    let calls = "
import socket
for _ in range(100):
    with socket.create_connection(('srv', 5000)) as c:
        assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
        assert c.recv(5) == b'hello'
";
    let tcp = taken(&lab).1;
    lab.exec("b", ["python3", "-c", calls]);
    assert_eq!(taken(&lab).1, tcp + 100, "all are fast");
}

/// Nothing wakes it but a knock, which comes where it has not come for a connection.
#[test]
fn a_server_that_polls_after_it_waited_hears_of_another_host() {
    let place = Place::new();
    let lab = lab(&place, "polls");
    let rest = "
def serve():
    with s.accept()[0] as c: c.sendall(b'hello')
for _ in range(2): serve()
for _ in range(3):
    select.select([s], [], [])
    serve()
";
    let mut server = serves(&lab, rest);
    let tcp = taken(&lab).1;
    let calls = "
import socket
for _ in range(5):
    with socket.create_connection(('srv', 5001), timeout=60) as c: assert c.makefile().read() == 'hello'
";
    lab.exec("b", ["python3", "-c", calls]);
    assert_eq!(taken(&lab).1, tcp + 5, "all are fast");
    assert!(server.wait().expect("it ends").success());
}

/// Who comes at that moment is refused, or is connected and sees the end; nobody waits for ever. And its port is free when it has closed.
///
/// A client that is refused asks the network beneath, where the kernel itself may leave it waiting. A closing listener drops the
/// last packet of a handshake, without a reset (`__inet_inherit_port`). Keep-alive ends that. It ends no fast connection.
#[test]
fn a_listener_that_closes_while_others_connect_leaves_nobody_waiting() {
    let place = Place::new();
    let lab = lab(&place, "closes");
    let rest = "
while True:
    for last in False, False, True:
        c = s.accept()[0]
        c.sendall(b'hello')
        if last: s.close()
        c.close()
    s = listen()
";
    let mut server = serves(&lab, rest);
    let calls = "
import socket, threading
def call():
    served = 0
    while served < 100:
        try:
            with socket.create_connection(('srv', 5001), timeout=60) as c:
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
                c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                served += c.recv(5) == b'hello'
        except (ConnectionRefusedError, ConnectionResetError): pass
    print('served', flush=True)
for _ in range(2): threading.Thread(target=call).start()
";
    for client in ["a", "b"] {
        assert_eq!(lab.exec(client, ["python3", "-c", calls]), "served\nserved\n");
    }
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

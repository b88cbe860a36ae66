//! A hostile program in a node of a fast network, against every line of the threat model (docs/fast-path-threats.md). Needs root
//! and the packages of `scripts/setup.sh test`.
//!
//! The program (`threats/hostile.c`) does one deed at a time and says what came of each step, on a pair of unix sockets (its
//! server is on the same host) and on a connection of TCP between hosts. Afterwards the routers must be those that they were.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Lab, Place, told};
use serde_json::Value;

/// Says hello, and sends back what it gets. Told `F` it sends a descriptor, and says so where it may not.
const SERVER: &str = r"import socket, threading
def serve(c):
  try:
    c.sendall(b'hello')
    while b := c.recv(1):
      if b == b'F':
        try:
          socket.send_fds(c, [b'+'], [0])
          continue
        except OSError: b = b'-'
      c.sendall(b)
  except OSError: pass
  c.close()
s = socket.create_server(('', 5000), backlog=100)
while True: threading.Thread(target=serve, args=[s.accept()[0]]).start()";

fn compile(folder: &Path) {
    std::fs::create_dir(folder).expect("made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threats/hostile.c");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-Wno-nonnull", "-Werror", "-pthread", "-o"]);
    let output = command.arg(folder.join("hostile")).arg(source).output().expect("gcc: install build-essential");
    assert!(output.status.success(), "{}", told(&output));
}

fn lab(place: &Place) -> Lab<'_> {
    lab_under(place, "[]")
}

fn lab_under<'a>(place: &'a Place, policy: &str) -> Lab<'a> {
    lab_with(place, policy, "")
}

/// `more`: further nodes.
fn lab_with<'a>(place: &'a Place, policy: &str, more: &str) -> Lab<'a> {
    compile(&place.path().join("bin"));
    let mounts = "mounts: [\"./bin:/opt/hostile:ro\"]";
    let command = serde_json::json!(["python3", "-c", SERVER]);
    let lab = place.up(
        "threats",
        &format!(
            "hosts: 2\nnetworks: {{net: fast, open: host}}\npolicy: {policy}\nnodes:\n  srv: {{host: host1, networks: [net], command: {command}}}\n  near: {{host: host1, networks: [net], {mounts}}}\n  far: {{host: host2, networks: [net], {mounts}}}\n{more}"
        ),
    );
    lab.listens("srv", 5000);
    lab
}

/// Each router's process, and how many there were before it.
fn routers(lab: &Lab<'_>) -> Vec<(Value, Value)> {
    let answer = lab.place.json(["inspect", &lab.name]);
    let routers = answer["state"]["routers"].as_array().expect("a list").clone();
    routers.iter().map(|router| (router["pid"].clone(), router["restarts"].clone())).collect()
}

fn hostile(lab: &Lab<'_>, node: &str, deed: &str, number: i64) -> String {
    lab.exec(node, ["timeout", "300", "/opt/hostile/hostile", deed, "srv", &number.to_string()])
}

/// The deed says this on both paths, and the routers live.
#[track_caller]
fn comes_to(deed: &str, expected: &str) {
    let place = Place::new();
    let lab = lab(&place);
    let before = routers(&lab);
    for node in ["near", "far"] {
        pretty(&hostile(&lab, node, deed, 0), expected, node);
    }
    assert_eq!(routers(&lab), before);
}

#[track_caller]
fn pretty(found: &str, expected: &str, node: &str) {
    assert!(found.trim() == expected.trim(), "{node}: expected\n{expected}\nfound\n{found}");
}

#[test]
fn a_socket_that_was_handed_out_has_no_powers() {
    comes_to(
        "powers",
        "connect: EISCONN
connect by IPv6: EISCONN
connect to a path: EISCONN
disconnect: EOPNOTSUPP
bind: EINVAL
bind to IPv6: EINVAL
bind to a path: EINVAL
bind to an abstract name: EINVAL
listen: EINVAL
accept: EINVAL
let descriptors pass: EOPNOTSUPP
see its packets: EPERM
let credentials pass: EOPNOTSUPP
be of a device: EPERM
connect by sending: EINVAL
be repaired: EPERM
have a protocol above: ENOENT
open its namespace: ENOTTY
open its peer's process: ENODATA
it is what it was",
    );
}

#[test]
fn there_is_no_way_around_the_calls_that_are_heard() {
    let old = if cfg!(target_arch = "x86_64") { "ENOSYS" } else { "-" };
    comes_to(
        "detours",
        &format!(
            "sendto: EOPNOTSUPP
sendmsg: EOPNOTSUPP
sendmmsg: EOPNOTSUPP
io_uring: EPERM
userfaultfd: EPERM
a filter of its own that listens: EACCES
setsockopt of i386: {old}
setsockopt of x32: ENOSYS
connect of x32: ENOSYS
it is what it was"
        ),
    );
}

/// TCP ignores descriptors.
#[test]
fn descriptors_do_not_pass_between_nodes() {
    let place = Place::new();
    let lab = lab(&place);
    pretty(&hostile(&lab, "near", "descriptor", 0), "a descriptor: EPERM", "near");
    pretty(&hostile(&lab, "far", "descriptor", 0), "a descriptor: done", "far");
}

#[test]
fn a_socket_says_nothing_of_the_host() {
    let file = "of its file: pos\nof its file: flags\nof its file: mnt_id\nof its file: ino";
    let place = Place::new();
    let lab = lab(&place);
    // A unix socket's has a line more.
    for (node, more) in [("near", "\nof its file: scm_fds"), ("far", "")] {
        let expected = format!(
            "addresses: the lab's
cookie of its namespace: 0
peer: process 0, user -1
eth0: the node's
interfaces: the node's
its file: socket:[...]
{file}{more}
of its packets: 0 and 0 bytes
open it anew: ENXIO"
        );
        pretty(&hostile(&lab, node, "looks", 0), &expected, node);
    }
}

#[test]
fn a_node_sees_no_sockets_of_the_host() {
    let place = Place::new();
    let lab = lab(&place);
    let mut client = lab.program(
        "far",
        [
            "python3",
            "-c",
            "import socket, sys\nc = socket.create_connection(('srv', 5000))\nprint(c.recv(5), flush=True)\nsys.stdin.read()",
        ],
    );
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(client.stdout.take().expect("piped")).read_line(&mut line).expect("it says that it is connected");
    for node in ["srv", "far"] {
        let listed = lab.exec(node, ["ss", "-Htan"]);
        assert!(!listed.contains("10.63.") && !listed.contains("ESTAB"), "{listed}");
        // 10.63 in the other order of bytes.
        let tables = lab.exec(node, ["cat", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/unix"]);
        assert!(!tables.contains("3F0A:"), "{tables}");
        let processes = lab.exec(node, ["sh", "-c", "cat /proc/[0-9]*/comm"]);
        assert!(!processes.contains("slipway-router"), "{processes}");
    }
    drop(client.stdin.take());
    client.wait().expect("it ends");
}

#[test]
fn a_router_cannot_be_reached_from_a_node() {
    let place = Place::new();
    let lab = lab(&place);
    let before = routers(&lab);
    for (node, (pid, _)) in ["near", "far"].into_iter().zip(&before) {
        let said = hostile(&lab, node, "processes", pid.as_i64().expect("a number"));
        let expected = "signal: ESRCH\ntrace: ESRCH\nopen memory: ENOENT\nread memory: ESRCH\nopen process: ESRCH\ntake a descriptor: EPERM";
        pretty(&said, expected, node);
        pretty(&hostile(&lab, node, "network", 0), "10.63.0.1: ENETUNREACH\n10.63.0.2: ENETUNREACH", node);
        // Not by root of this machine either, where it lacks the power to trace.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", "readlink", &format!("/proc/{pid}/fd/0")]);
        let output = command.output().expect("setpriv: install util-linux");
        assert!(!output.status.success(), "{}", told(&output));
    }
    assert_eq!(routers(&lab), before);
}

#[test]
fn lengths_and_places_that_lie_do_no_harm() {
    let place = Place::new();
    let lab = lab(&place);
    let before = routers(&lab);
    for node in ["near", "far"] {
        let said = hostile(&lab, node, "lengths", 0);
        pretty(&said, "a name into a file that it may read: EFAULT\nit is what it was", node);
        lab.exec(node, ["cmp", "-n", "4096", "/tmp/read-only", "/dev/zero"]);
    }
    assert_eq!(routers(&lab), before);
}

#[test]
fn addresses_that_change_lead_nowhere_else() {
    comes_to("addresses", "connected elsewhere: 0\nwithout a greeting: 0");
}

/// A socket that was handed out takes another's place while a call on that goes on in the kernel.
#[test]
fn descriptors_that_change_gain_nothing() {
    let place = Place::new();
    let lab = lab(&place);
    let before = routers(&lab);
    for (node, passed) in [("near", "refused"), ("far", "sent")] {
        let expected = format!(
            "interfaces of the host: 0
names of the host: 0
peers of the host: 0
cookies of the host: 0
processes of the host: 0
of its packets: 0 bytes
a descriptor from the server: {passed}
it is what it was"
        );
        pretty(&hostile(&lab, node, "descriptors", 0), &expected, node);
    }
    assert_eq!(routers(&lab), before);
}

/// A listener within the virtual host, which a node that shares its network could reach.
#[test]
fn a_listener_of_the_host_hears_nobody() {
    const KNOCK: &str = "import socket
lines = [line.split() for table in ('tcp', 'tcp6') for line in open('/proc/net/' + table).readlines()[1:]]
ports = [int(line[1].split(':')[1], 16) for line in lines if line[3] == '0A']
print(len(ports), 'listen')
for port in ports:
  for ip in '127.0.0.1', '::1', '10.63.0.2':
    try: print('there is', socket.create_connection((ip, port)).getpeername())
    except ConnectionRefusedError: pass";
    let place = Place::new();
    let lab = lab_with(&place, "[]", "  spy: {host: host2, networks: [open]}\n");
    let mut hostile = lab.program("far", ["/opt/hostile/hostile", "listens", "srv"]);
    let mut hostile = hostile.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut said = BufReader::new(hostile.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert_eq!(said.next().as_deref(), Some("listens"));
    // The other one is the router's.
    assert_eq!(lab.exec("spy", ["python3", "-c", KNOCK]), "2 listen\nthere is ('10.63.0.2', 6953)\n");
    drop(hostile.stdin.take());
    assert_eq!(said.next().as_deref(), Some("who came: 0"));
    hostile.wait().expect("it ends");
}

/// A rate is the rule's to say, not the program's.
#[test]
fn a_rate_cannot_be_raised() {
    let place = Place::new();
    let lab = lab_under(&place, "[{to: srv, rate: 1gbit}]");
    for node in ["near", "far"] {
        pretty(&hostile(&lab, node, "rates", 0), "as fast as it can: EPERM\nanother rate: 0\nit is what it was", node);
    }
}

/// Who takes all ports of its node that a router may want there harms itself alone.
#[test]
fn a_node_without_ports_does_not_end_its_router() {
    const CLIENTS: &str =
        "import socket\nall = [socket.create_connection(('near', 5001)) for _ in range(40)]\nprint(len(all))";
    let place = Place::new();
    let lab = lab(&place);
    let before = routers(&lab);
    let mut hostile = lab.program("near", ["/opt/hostile/hostile", "ports", "near"]);
    let mut hostile = hostile.stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(hostile.stdout.take().expect("piped")).read_line(&mut line).expect("it says that it listens");
    assert_eq!(line, "listens\n");
    assert_eq!(lab.exec("srv", ["python3", "-c", CLIENTS]), "40\n");
    assert_eq!(lab.exec("far", ["python3", "-c", CLIENTS]), "40\n");
    pretty(&self::hostile(&lab, "far", "descriptor", 0), "a descriptor: done", "far");
    assert_eq!(routers(&lab), before);
    hostile.kill().expect("it runs");
    hostile.wait().expect("it ends");
}

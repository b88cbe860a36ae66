//! Policy, through the command itself: what is denied reaches nobody, by whatever way, and what is limited keeps to its limits.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use common::{Lab, Place, await_that, told};
use serde_json::{Value, json};

/// Listens on 5000 and 5001 by TCP and UDP, looks at every frame that arrives, and tells by TCP on 5000 what came; asked for
/// all of it, once the next frame that is allowed has been looked at. TCP listens last, which is how others know that all do.
const SERVER: &str = r#"
import json, re, socket, threading
came = {"tcp": [], "udp": [], "frames": []}
allowed = threading.Semaphore(0)
def tcp(s, port):
    while True:
        c, _ = s.accept()
        came["tcp"].append(port)
        threading.Thread(target=serve, args=[c]).start()
def serve(c):
    try:
        for line in c.makefile():
            if line == "all\n": allowed.acquire()
            if line in ("report\n", "all\n"): said = came
            elif line == "options\n": said = [c.getsockopt(1, 12), int.from_bytes(c.getsockopt(1, 47, 8), "little")]
            else: said = line
            c.sendall((json.dumps(said) + "\n").encode())
    except OSError: pass
    c.close()
def udp(s, port):
    while True:
        data, at = s.recvfrom(4096)
        came["udp"].append([port, data.decode()])
        s.sendto(data, at)
def frames(s):
    while True:
        data, at = s.recvfrom(65536)
        if at[2] == 4: continue
        came["frames"] += [m.decode() for m in re.findall(rb"secret-[a-z]+", data)]
        if b"allowed" in data: allowed.release()
looking = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
for port in (5000, 5001):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("", port))
    threading.Thread(target=udp, args=[s, port]).start()
for port in (5000, 5001):
    s = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
    threading.Thread(target=tcp, args=[s, port]).start()
frames(looking)
"#;

/// What clients begin with: connections that say a line and hear one, as JSON.
const CLIENT: &str = r#"
import errno, json, os, socket, struct, subprocess, sys
SRV = socket.gethostbyname("srv")
class Talk:
    def __init__(self, port=5000, to="srv"):
        self.c = socket.create_connection((to, port))
        self.f = self.c.makefile()
    def ask(self, line):
        self.c.sendall((line + "\n").encode())
        return json.loads(self.f.readline())
def refused(action):
    try: action()
    except OSError as error: return errno.errorcode[error.errno]
# TCP's state (2 is TCP_SYN_SENT) once an answer would have come: those of a witness, asked afterwards on the same processor, have.
def attempt(s, port, witness):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    s.setblocking(False)
    s.connect_ex((SRV, port))
    for _ in range(10): subprocess.run(["ping", "-q", "-c1", "-W60", witness], check=True, stdout=subprocess.DEVNULL)
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
"#;

/// A server and two clients of it, on its host and on another, under these rules. `other` is a client of no rule.
fn lab<'a>(place: &'a Place, name: &str, rules: &str) -> Lab<'a> {
    let server = json!(["python3", "-c", SERVER]);
    let text = format!(
        "hosts: 2\nnetworks: {{net: fast}}\nnodes:\n  srv: {{host: host1, command: {server}}}\n  near: {{host: host1}}\n  far: {{host: host2}}\n  other: {{host: host1}}\npolicy:\n{rules}"
    );
    let lab = place.up(name, &text);
    for port in [5000, 5001] {
        lab.listens("srv", port);
    }
    lab
}

/// Runs a program after [`CLIENT`] in a node, and gives the JSON that it prints.
#[track_caller]
fn run(lab: &Lab<'_>, node: &str, program: &str) -> Value {
    let program = format!("{CLIENT}\n{program}");
    let output = lab.program(node, ["python3", "-c", &program]).output().expect("started");
    assert!(output.status.success(), "{}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", told(&output)))
}

/// A program in a node that does what it is told, an expression of Python a line, until it is dropped.
struct Told {
    child: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Told {
    fn new(lab: &Lab<'_>, node: &str) -> Self {
        let program = format!(
            "{CLIENT}\nfor line in sys.stdin:\n  try: said = eval(line)\n  except OSError as error: said = errno.errorcode.get(error.errno, 'TIMEDOUT')\n  print(json.dumps(said, default=str), flush=True)\n"
        );
        let mut command = lab.program(node, ["python3", "-c", &program]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let (say, hear) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        Self { child, say, hear }
    }

    #[track_caller]
    fn say(&mut self, line: &str) -> Value {
        writeln!(self.say.as_mut().expect("until it is dropped"), "{line}").expect("it listens");
        let mut said = String::new();
        self.hear.read_line(&mut said).expect("it answers");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.say.take();
        let _ = self.child.wait();
    }
}

fn taken(lab: &Lab<'_>, what: &str) -> u64 {
    let answer = lab.place.json(["fast", "status", &lab.name]);
    let routers = answer["routers"].as_array().expect("a list").clone();
    routers.iter().map(|router| router["status"]["connections"][what].as_u64().expect("a number")).sum()
}

/// By every way that root in a container has, and then by one that is allowed: what came before that has not come at all.
const ATTEMPTS: &str = r#"
def mac(node):
    for line in open("/proc/net/arp").read().splitlines()[1:]:
        words = line.split()
        if words[0] == socket.gethostbyname(node): return bytes.fromhex(words[3].replace(":", ""))
def checksum(b):
    n = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
def packet(proto, body, src, dst, flags=0):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 7, flags, 64, proto, 0, socket.inet_aton(src), socket.inet_aton(dst))
    return h[:10] + struct.pack("!H", checksum(h)) + h[12:] + body
def datagram(data, port=5001, sport=7): return struct.pack("!HHHH", sport, port, 8 + len(data), 0) + data
own = socket.gethostbyname(socket.gethostname())
me = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
srv, other = mac("srv"), mac("other")
pending = socket.socket()
pending.setblocking(False)
assert pending.connect_ex((SRV, 5001)) == errno.EINPROGRESS
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
udp.sendto(b"secret-datagram", (SRV, 5001))
udp.sendto(b"secret-broadcast", ("10.64.255.255", 5001))
udp.sendto(b"secret-large" + bytes(4000), (SRV, 5000))
udp6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp6.sendto(b"secret-six", (socket.getaddrinfo("ip6-srv", 5001)[0][4]))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
raw.sendto(packet(132, b"secret-sctp!", own, SRV), (SRV, 0))
raw.sendto(packet(17, datagram(b"secret-spoofed!!"), socket.gethostbyname("other"), SRV), (SRV, 0))
for bypass in (0, 1):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind(("eth0", 0))
    s.setsockopt(263, 20, bypass)
    ip, tcp = b"\x08\x00", struct.pack("!HHIIBBHHH", 7, 5001, 1, 0, 0x50, 2, 512, 0, 0)
    for head, body in [
        (srv + me + ip, packet(17, datagram(b"secret-frame"), own, SRV)),
        (srv + other + ip, packet(17, datagram(b"secret-name"), socket.gethostbyname("other"), SRV)),
        (b"\xff" * 6 + me + ip, packet(17, datagram(b"secret-everybody"), own, SRV)),
        (srv + me + b"\x81\x00\x00\x00" + ip, packet(17, datagram(b"secret-tag"), own, SRV)),
        (srv + me + b"\x88\xa8\x00\x00\x81\x00\x00\x00" + ip, packet(17, datagram(b"secret-tags"), own, SRV)),
        (srv + me + ip, packet(17, datagram(b"secret-first"), own, SRV, 0x2000)),
        (srv + me + ip, packet(17, b"secret-rest!", own, SRV, 0x0003)),
        (srv + me + ip, packet(6, tcp + b"secret-syn!!", own, SRV)),
        (srv + me + b"\x12\x34", b"secret-foreign" + bytes(60)),
    ]:
        s.send(head + body)
udp.connect((SRV, 5000))
udp.send(b"allowed")
while udp.recv(5000) != b"allowed": pass
state = pending.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
print(json.dumps([Talk().ask("all"), state]))
"#;

#[test]
fn what_is_denied_reaches_nobody_and_what_is_allowed_does() {
    let place = Place::new();
    let rules =
        "  - {name: open, from: \"near,far\", to: srv, ports: [5000]}\n  - {name: closed, to: srv, verdict: deny}\n";
    let lab = lab(&place, "deny", rules);
    let before = run(&lab, "near", "print(json.dumps(Talk().ask('report')))");
    assert_eq!(before["udp"], json!([]));
    let arp = "import socket\nfor node in ('srv', 'other'): socket.gethostbyname(node)";
    for node in ["near", "far"] {
        lab.exec(node, ["python3", "-c", arp]);
        let answer = run(&lab, node, ATTEMPTS);
        let (came, state) = (&answer[0], &answer[1]);
        assert_eq!(came["frames"], json!([]), "from {node}");
        let others = came["udp"].as_array().expect("a list").iter().filter(|one| one[1] != "allowed").count();
        assert_eq!(others, 0, "from {node}: {came}");
        // TCP_SYN_SENT: it asks, and nobody answers.
        assert_eq!(*state, 2, "from {node}");
        assert!(lab.is_silent(node, "srv", "other"), "no rule lets it");
    }
    assert_eq!(run(&lab, "other", "print(attempt(socket.socket(), 5000, 'near'))"), 2);
    // Its own questions are answered.
    assert!(lab.pings("srv", "other") && lab.pings("near", "far"));
    let came = run(&lab, "near", "print(json.dumps(Talk().ask('report')))");
    assert!(came["tcp"].as_array().expect("a list").iter().all(|port| *port == 5000), "{came}");
    // The same attempts come where nothing is denied any more; who sends is still known.
    let open = place.path().join("open.yaml");
    std::fs::write(&open, "[]\n").expect("written");
    place.run(["policy", &lab.name, open.to_str().expect("plain")]);
    let came = &run(&lab, "far", ATTEMPTS)[0];
    let frames: std::collections::BTreeSet<&str> =
        came["frames"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let all = [
        "broadcast",
        "datagram",
        "everybody",
        "first",
        "foreign",
        "frame",
        "large",
        "rest",
        "sctp",
        "six",
        "syn",
        "tag",
    ];
    let missing: Vec<_> = all.iter().filter(|name| !frames.contains(format!("secret-{name}").as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} of {frames:?}");
    assert!(!frames.contains("secret-name"), "{frames:?}");
    assert!(!frames.contains("secret-tags"), "a tag of number 0 within another: {frames:?}");
}

#[test]
fn a_program_whose_memory_changes_between_look_and_act_reaches_nothing_that_is_denied() {
    let place = Place::new();
    let rules = "  - {from: near, to: srv, ports: [5000]}\n  - {name: closed, to: srv, verdict: deny}\n";
    let lab = lab(&place, "race", rules);
    let program = r#"
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.create_string_buffer(struct.pack("!H", 0x200) + struct.pack("!H", 5000) + socket.inet_aton(SRV) + bytes(8), 16)
going = True
def flip():
    while going:
        address[2:4] = struct.pack("!H", 5001)
        address[2:4] = struct.pack("!H", 5000)
flipping = threading.Thread(target=flip)
flipping.start()
kept = []
for _ in range(300):
    s = socket.socket()
    s.setblocking(False)
    libc.connect(s.fileno(), address, 16)
    kept.append(s)
going = False
flipping.join()
print(json.dumps(Talk().ask("report")["tcp"]))
"#;
    let came = run(&lab, "near", program);
    let denied = came.as_array().expect("a list").iter().filter(|port| **port == 5001).count();
    assert_eq!(denied, 0);
}

#[test]
fn answers_pass_and_no_more() {
    let place = Place::new();
    let lab = lab(&place, "answers", "  - {name: silent, from: srv, verdict: deny}\n");
    let program = r#"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b"asked", (SRV, 5000))
print(json.dumps([u.recv(100).decode(), Talk(5001).ask("x")]))
"#;
    for node in ["near", "far"] {
        assert_eq!(run(&lab, node, program), json!(["asked", "x\n"]));
        assert!(lab.pings(node, "srv"));
        assert!(lab.is_unheard("srv", node, "other"));
    }
    let open = place.path().join("open.yaml");
    std::fs::write(&open, "[]\n").expect("written");
    place.run(["policy", &lab.name, open.to_str().expect("plain")]);
    assert!(!lab.is_unheard("srv", "far", "other"), "where nothing is denied");
}

const RATE: &str = "int.from_bytes(TALK.c.getsockopt(1, 47, 8), 'little')";

fn rate(of: &mut Told, talk: &str) -> u64 {
    of.say(&RATE.replace("TALK", talk)).as_u64().expect("a number")
}

#[test]
fn a_rate_and_a_priority_hold_at_both_ends_and_the_program_cannot_raise_them() {
    let place = Place::new();
    let lab = lab(&place, "rate", "  - {to: srv, rate: 80mbit, priority: 2}\n");
    for node in ["near", "far"] {
        let mut client = Told::new(&lab, node);
        client.say("globals().update(t=Talk())");
        assert_eq!(rate(&mut client, "t"), 10_000_000, "bytes a second, from {node}");
        assert_eq!(client.say("t.ask('options')"), json!([2, 10_000_000]), "at the server's end, from {node}");
        let mut set = |name: u32, value: &str| client.say(&format!("t.c.setsockopt(1, {name}, {value})"));
        assert_eq!(set(47, "struct.pack('Q', 20_000_000)"), "EPERM");
        assert_eq!(set(12, "3"), "EPERM");
        assert_eq!(set(47, "struct.pack('Q', 5_000_000)"), Value::Null);
        assert_eq!(set(12, "1"), Value::Null);
        assert_eq!(
            client.say("t.c.setsockopt(0, 1, 0x10)"),
            Value::Null,
            "the type of service brings a priority with it"
        );
        assert!(client.say("t.c.getsockopt(1, 12)").as_u64().expect("a number") <= 2);
        assert_eq!(client.say("t.ask('said')"), "said\n");
    }
    assert_eq!(taken(&lab, "pair"), 0, "what is paced is of TCP");
    // Beneath, what a rule limits is not made.
    assert_eq!(run(&lab, "near", "print(attempt(socket.socket(proto=262), 5001, 'other'))"), 2);
}

#[test]
fn those_who_share_a_rate_have_even_parts() {
    let place = Place::new();
    let lab = lab(
        &place,
        "share",
        "  - {from: near, to: srv, rate: {pair: 80mbit}}\n  - {from: far, rate: {node: 80mbit}}\n",
    );
    for node in ["near", "far"] {
        let mut client = Told::new(&lab, node);
        client.say("globals().update(one=Talk())");
        assert_eq!(rate(&mut client, "one"), 10_000_000);
        client.say("globals().update(two=Talk())");
        assert_eq!(rate(&mut client, "two"), 5_000_000);
        await_that("the first has half", || rate(&mut client, "one") == 5_000_000);
        client.say("(two.f.close(), two.c.close())");
        await_that("one alone has all", || rate(&mut client, "one") == 10_000_000);
        await_that("at the server's end too", || client.say("one.ask('options')[1]") == 10_000_000);

        // Others take the place of two, so quickly that as many share as before.
        client.say("globals().update(two=Talk())");
        await_that("half again", || rate(&mut client, "one") == 5_000_000);
        client.say("([(t.f.close(), t.c.close()) for t in (one, two)], globals().update(one=Talk(), two=Talk()))");
        await_that("the first of them has half", || rate(&mut client, "one") == 5_000_000);
        assert_eq!(rate(&mut client, "two"), 5_000_000);
    }
}

#[test]
fn no_more_connections_than_a_rule_allows() {
    let place = Place::new();
    let lab = lab(&place, "cap", "  - {to: srv, ports: [5000], connections: 2}\n");
    let [mut near, mut far] = ["near", "far"].map(|node| Told::new(&lab, node));
    assert_eq!(near.say("globals().update(t=Talk())"), Value::Null);
    assert_eq!(far.say("globals().update(t=Talk())"), Value::Null);
    for client in [&mut near, &mut far] {
        assert_eq!(client.say("Talk()"), "ECONNREFUSED", "a server that has no room");
        assert_eq!(client.say("t.ask('still')"), "still\n");
        assert_eq!(client.say("Talk(5001).ask('of no rule')"), "of no rule\n");
    }
    near.say("(t.f.close(), t.c.close())");
    await_that("there is room again", || far.say("globals().update(u=Talk())") == Value::Null);
    assert_eq!(near.say("Talk()"), "ECONNREFUSED");
}

#[test]
fn a_policy_is_replaced_while_the_lab_runs() {
    let place = Place::new();
    let lab = lab(&place, "live", "  []\n");
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let closed = file("closed.yaml", "- {name: closed, from: near, to: srv, ports: [5000], verdict: deny}\n");
    let slow = file("slow.yaml", "policy:\n  - {name: slow, to: srv, rate: 8mbit}\n");
    let open = file("open.yaml", "[]\n");
    let set = |file: &str| place.json(["policy", &lab.name, file]);
    let [mut near, mut far] = ["near", "far"].map(|node| Told::new(&lab, node));
    for client in [&mut near, &mut far] {
        client.say("globals().update(t=Talk(), u=Talk(5001))");
        assert_eq!(client.say("t.ask('a')"), "a\n");
    }
    let said = place.json(["policy", &lab.name, &closed, "--dry-run"]);
    assert_eq!((&said["dry_run"], &said["rules"][0]["name"]), (&json!(true), &json!("closed")));
    assert_eq!(near.say("t.ask('nothing was changed')"), "nothing was changed\n");
    assert_eq!(set(&closed)["ended"], 1);
    assert_ne!(near.say("t.c.recv(1) and 0"), 0, "it is ended");
    assert_eq!(near.say("u.ask('another port')"), "another port\n");
    assert_eq!(far.say("t.ask('another node')"), "another node\n");
    assert_eq!(near.say("attempt(socket.socket(), 5000, 'other')"), 2, "nobody answers");
    let shown = place.json(["policy", &lab.name]);
    assert_eq!(
        shown["rules"],
        json!([{"name": "closed", "from": ["near"], "to": ["srv"], "ports": ["5000"], "verdict": "deny"}])
    );
    // What was a pair cannot be paced; what is of TCP can.
    set(&slow);
    assert_eq!(rate(&mut far, "t"), 1_000_000);
    near.say("globals().update(t=Talk())");
    assert_eq!(rate(&mut near, "t"), 1_000_000);
    set(&open);
    assert!(rate(&mut far, "t") > 1_000_000_000);
    assert_eq!(far.say("t.ask('as fast as it can')"), "as fast as it can\n");
    let wrong = file("wrong.yaml", "- {from: nobody, verdict: deny}\n- {to: srv, verdict: maybe}\n");
    let told = place.fails(2, ["policy", &lab.name, &wrong]);
    assert!(told.contains("nobody") && told.contains("maybe"), "{told}");
    assert_eq!(place.json(["policy", &lab.name])["rules"], json!([]));
}

/// The router that takes over knows the rules that hold now, and what was made under them.
#[test]
fn limits_outlive_the_router() {
    let place = Place::new();
    let lab = lab(&place, "outlive", "  - {to: srv, ports: [5000], connections: 1, rate: 80mbit}\n");
    let mut client = Told::new(&lab, "near");
    client.say("globals().update(t=Talk())");
    let routers = || {
        let answer = place.json(["inspect", &lab.name]);
        let routers = answer["state"]["routers"].as_array().expect("a list").clone();
        routers.iter().filter_map(|router| router["pid"].as_i64()).collect::<Vec<_>>()
    };
    let old = routers();
    for &pid in &old {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    await_that("both are replaced", || routers().len() == 2 && routers().iter().all(|pid| !old.contains(pid)));
    assert_eq!(client.say("Talk()"), "ECONNREFUSED");
    assert_eq!(client.say("t.c.setsockopt(1, 47, struct.pack('Q', 20_000_000))"), "EPERM");
    assert_eq!(client.say("t.ask('a')"), "a\n");
}

#[test]
fn an_exact_network_has_tcp_within_the_host() {
    let place = Place::new();
    let server = json!(["python3", "-c", SERVER]);
    let text =
        format!("networks: {{net: {{driver: fast, exact: true}}}}\nnodes: {{srv: {{command: {server}}}, near: }}\n");
    let lab = place.up("exact", &text);
    lab.listens("srv", 5000);
    run(&lab, "near", "Talk()\nprint(0)");
    assert_eq!(taken(&lab, "pair"), 0);
    assert!(taken(&lab, "tcp") > 0);
}

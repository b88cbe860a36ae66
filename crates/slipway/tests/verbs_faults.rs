//! Links that are cut, partitions and nodes without power, as programs of verbs see them: as with a device. A message fails after the
//! retries of its queue pair, and goes on where the link heals before.

mod common;

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use common::rdma::{by_rdma_cm, program};
use common::{Lab, Place, await_that};

/// `IBV_WC_RETRY_EXC_ERR`.
const RETRIES_EXCEEDED: &str = "12";
/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: &str = "5";
/// Times of a retry: half a second in all, and more than a test takes.
const SHORT: &str = "14";
const LONG: &str = "20";

fn lab(hosts: u32) -> String {
    let far = format!("host{hosts}");
    format!(
        "hosts: {hosts}\nnetworks: {{net: {{driver: fast, rdma: true}}}}\nnodes:\n  a: {{host: host1}}\n  b: {{host: {far}}}\n"
    )
}

/// A program with one end of a connection.
struct Partner {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Partner {
    fn start(lab: &Lab<'_>, node: &str, retry: &str) -> Self {
        let script = include_str!("verbs/partner.py");
        let mut command = program(lab, node, &["python3", "-c", script, retry]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("started");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, input, output }
    }

    fn says(&mut self) -> String {
        self.output.next().expect("it says something").expect("text")
    }

    fn tell(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("it listens");
    }

    /// Has it send. Gives the status of the last message.
    #[track_caller]
    fn sends(&mut self, line: &str) -> String {
        self.tell(line);
        self.says()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The name of a queue pair, as its partner reads it.
fn name_of(lab: &Lab<'_>, node: &str, number: &str) -> String {
    let addresses = lab.exec(node, ["hostname", "-i"]);
    format!("{number} {}", addresses.split_whitespace().next().expect("an address"))
}

/// Programs in both nodes, whose queue pairs are joined.
fn partners(lab: &Lab<'_>, retry: &str) -> (Partner, Partner) {
    let [mut a, mut b] = ["a", "b"].map(|node| Partner::start(lab, node, retry));
    let [of_a, of_b] = [&mut a, &mut b].map(Partner::says);
    a.tell(&name_of(lab, "b", &of_b));
    b.tell(&name_of(lab, "a", &of_a));
    assert_eq!([a.says(), b.says()], ["joined", "joined"]);
    assert_eq!(b.sends("once"), "0");
    (a, b)
}

fn holds(hosts: u32) {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up(&format!("faults{hosts}"), &lab(hosts));
    let name = lab.name.as_str();
    // A message waits while the link is cut, and arrives afterwards. So does one of the other side.
    let (mut a, mut b) = partners(&lab, LONG);
    for (part, join) in [
        (&["cut", name, "b:eth0"][..], &["heal", name, "b:eth0"][..]),
        (&["partition", name, "a", "b"], &["join", name]),
        (&["freeze", name, "a"], &["thaw", name, "a"]),
    ] {
        place.run(part);
        let said = place.run(["fast", "explain", name, "a", "b"]);
        assert!(said.contains("are refused (EHOSTUNREACH)"), "{said}");
        a.tell("once");
        b.tell("once");
        place.run(join);
        assert_eq!([a.says(), b.says()], ["0", "0"], "{part:?}");
        assert_eq!([a.sends("once"), b.sends("once")], ["0", "0"], "after {join:?}");
    }
    drop((a, b));
    // It fails where the cut outlasts the retries.
    let (_a, mut b) = partners(&lab, SHORT);
    place.run(["cut", name, "a:eth0"]);
    assert_eq!(b.sends("until"), RETRIES_EXCEEDED);
    place.run(["heal", name, "a:eth0"]);
    // A node without power says nothing. It is not revoked, which would flush the message (5).
    let (_a, mut b) = partners(&lab, SHORT);
    place.run(["kill", name, "a", "--how", "hard"]);
    assert_eq!(b.sends("until"), RETRIES_EXCEEDED);
    place.run(["start", name, "a"]);
    // So does a program that is killed. All later messages are flushed.
    let (_a, mut b) = partners(&lab, SHORT);
    lab.exec("a", ["pkill", "-KILL", "python3"]);
    assert_eq!([b.sends("until"), b.sends("once")], [RETRIES_EXCEEDED, FLUSHED]);
}

/// The processes in a list of what the command says.
fn pids(list: &serde_json::Value) -> Vec<i64> {
    list.as_array().expect("a list").iter().filter_map(|it| it["pid"].as_i64()).collect()
}

fn kill(pid: i64) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

/// Kills processes of the lab, and waits until others are in their places.
fn replace(pids: impl Fn() -> Vec<i64>) {
    let old = pids();
    old.iter().copied().for_each(kill);
    await_that("others are in their places", || {
        let new = pids();
        new.len() == old.len() && new.iter().all(|pid| !old.contains(pid))
    });
}

/// Queue pairs outlive brokers, and are told to the next ones, which rule over them: also where a link is cut meanwhile.
fn outlives_brokers(hosts: u32) {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up(&format!("brokers{hosts}"), &lab(hosts));
    let name = lab.name.as_str();
    let (mut a, mut b) = partners(&lab, LONG);
    let links = || {
        let status = place.json(["fast", "status", name]);
        let nodes = status["brokers"].as_array().expect("a list").iter().filter_map(|it| it["nodes"].as_array());
        let links = nodes.flatten().filter_map(|node| node["links"].as_array()).flatten();
        links.filter(|link| link["joined"] == true).count()
    };
    let brokers = || pids(&place.json(["fast", "status", name])["brokers"]);
    // A program calls before the next broker runs, which has the rules by then: each time, whoever is faster.
    for _ in 0..8 {
        replace(brokers);
        await_that("both ends have named their connection", || links() == 2);
        assert_eq!([a.sends("once"), b.sends("once")], ["0", "0"]);
    }
    // The new ones know of a cut, and of its end.
    place.run(["cut", name, "b:eth0"]);
    a.tell("once");
    replace(brokers);
    b.tell("once");
    await_that("both ends have named their connection", || links() == 2);
    place.run(["heal", name, "b:eth0"]);
    assert_eq!([a.says(), b.says()], ["0", "0"]);
    // A program goes on with the next one: it has made nothing since, and makes more now.
    assert_eq!([a.sends("more"), b.sends("more")], ["made", "made"]);
    let closed = place.path().join("closed.yaml");
    std::fs::write(&closed, "- {name: closed, from: b, to: a, verdict: deny}\n").expect("written");
    let said = place.run(["policy", name, closed.to_str().expect("plain")]);
    assert!(said.contains("fast connection") && !said.contains("0 fast"), "{said}");
    assert_eq!([a.sends("until"), b.sends("until")], [FLUSHED, FLUSHED]);
}

/// A program makes a queue pair, and waits for its peer's word. Then the peer alone calls the next brokers.
#[test]
fn a_queue_pair_that_was_only_made_is_joined_by_the_next_brokers() {
    common::verbs::plug_in();
    for hosts in [1, 2] {
        let place = Place::new();
        let lab = place.up(&format!("made{hosts}"), &lab(hosts));
        let [mut a, mut b] = ["a", "b"].map(|node| Partner::start(&lab, node, LONG));
        let [of_a, of_b] = [&mut a, &mut b].map(Partner::says);
        replace(|| pids(&place.json(["fast", "status", &lab.name])["brokers"]));
        a.tell(&name_of(&lab, "b", &of_b));
        assert_eq!(a.says(), "joined");
        b.tell(&name_of(&lab, "a", &of_a));
        assert_eq!(b.says(), "joined");
        assert_eq!([a.sends("once"), b.sends("once")], ["0", "0"]);
    }
}

#[test]
fn pairs_within_a_host_are_ruled_by_the_next_broker() {
    outlives_brokers(1);
}

#[test]
fn pairs_between_hosts_are_ruled_by_the_next_brokers() {
    outlives_brokers(2);
}

/// The router answers calls that no plug-in can. Queue pairs do without, and programs that begin meanwhile are served by the next.
#[test]
fn pairs_outlive_routers_and_new_ones_are_made() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("routers", &lab(2));
    let (mut a, mut b) = partners(&lab, LONG);
    replace(|| pids(&place.json(["inspect", &lab.name])["state"]["routers"]));
    assert_eq!([a.sends("once"), b.sends("once")], ["0", "0"]);
    let (mut c, mut d) = partners(&lab, LONG);
    assert_eq!([c.sends("once"), d.sends("once")], ["0", "0"]);
    let address = lab.exec("a", ["hostname", "-i"]);
    let address = address.split_whitespace().next().expect("an address");
    let said = by_rdma_cm(&lab, &["rping", "-s", "-C", "1", "-v"], &["rping", "-c", "-a", address, "-C", "1", "-v"]);
    assert!(said.contains("ping data: rdma-ping-0"), "{said}");
}

/// `rping` connects by `rdma_cm`, and sends until it is told to end: a line for each message.
struct Client {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(lab: &Lab<'_>, address: &str) -> Self {
        let words = ["stdbuf", "-oL", "rping", "-c", "-a", address, "-C", "1000000", "-v"];
        let mut child = program(lab, "b", &words).stderr(Stdio::inherit()).spawn().expect("started");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, output }
    }

    /// Another message has come back, sent after this was called: what was printed before is no more than this many lines.
    #[track_caller]
    fn goes_on(&mut self) {
        const PRINTED: usize = 2000;
        for _ in 0..PRINTED {
            let line = self.output.next().expect("it goes on").expect("text");
            assert!(line.contains("ping data"), "{line}");
        }
    }
}

/// Connections of `rdma_cm` and their listeners outlive what comes over the lab, again and again.
fn outlives(name: &str, hosts: u32, comes: impl Fn(&Lab<'_>, &str)) {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up(&format!("{name}{hosts}"), &lab(hosts));
    let address = lab.exec("a", ["hostname", "-i"]);
    let address = address.split_whitespace().next().expect("an address");
    let mut server = program(&lab, "a", &["rping", "-s", "-P"]).stderr(Stdio::inherit()).spawn().expect("started");
    let once = ["rping", "-c", "-a", address, "-C", "1"];
    let connects = || await_that("a client is served", || program(&lab, "b", &once).status().expect("run").success());
    connects();
    let mut client = Client::start(&lab, address);
    for _ in 0..4 {
        client.goes_on();
        comes(&lab, address);
        client.goes_on();
        // The listener is there, and the server hears that this one leaves.
        connects();
    }
    // `rping` ends where it hears that a peer is out of reach: here it hears of an end, as of others.
    lab.exec("b", ["pkill", "-KILL", "-x", "rping"]);
    let Client { mut child, output } = client;
    drop(output);
    child.wait().expect("it ends");
    connects();
    assert!(server.try_wait().expect("asked").is_none(), "the server goes on");
    lab.exec("a", ["pkill", "-KILL", "rping"]);
    server.wait().expect("it ends");
}

/// The next router goes on with their events.
fn outlives_routers(hosts: u32) {
    outlives("managed", hosts, |lab, _| replace(|| pids(&lab.place.json(["inspect", &lab.name])["state"]["routers"])));
}

#[test]
fn programs_of_rdma_cm_within_a_host_outlive_routers() {
    outlives_routers(1);
}

#[test]
fn programs_of_rdma_cm_between_hosts_outlive_routers() {
    outlives_routers(2);
}

/// The server's host has no router when the client asks.
#[test]
fn connections_of_rdma_cm_wait_for_the_next_router() {
    common::verbs::plug_in();
    let place = Place::new();
    let lab = place.up("waiting", &lab(2));
    let address = lab.exec("a", ["hostname", "-i"]);
    let address = address.split_whitespace().next().expect("an address");
    let mut server = program(&lab, "a", &["rping", "-s", "-P"]).stderr(Stdio::inherit()).spawn().expect("started");
    let once = ["rping", "-c", "-a", address, "-C", "1"];
    let connects = || program(&lab, "b", &once).stderr(Stdio::inherit()).status().expect("run").success();
    await_that("the server listens", connects);
    kill(pids(&place.json(["inspect", &lab.name])["state"]["routers"])[0]);
    assert!(connects(), "the request waits");
    lab.exec("a", ["pkill", "-KILL", "rping"]);
    server.wait().expect("it ends");
}

/// A freeze comes at any moment of a command or an event.
#[test]
fn programs_of_rdma_cm_outlive_freezes() {
    outlives("frozen", 2, |lab, address| {
        // `rping` closes its channel beside a thread that asks for events, and fails where the freeze has that ask again.
        let clients = format!("echo begun; for i in $(seq 10); do rping -c -a {address} -C 1; done");
        let mut clients = program(lab, "b", &["sh", "-c", &clients]).stderr(Stdio::inherit()).spawn().expect("started");
        // A program cannot be started in a frozen node.
        let mut begun = [0; 6];
        clients.stdout.as_mut().expect("a pipe").read_exact(&mut begun).expect("it begins");
        for _ in 0..10 {
            lab.place.run(["freeze", &lab.name, "a", "b"]);
            lab.place.run(["thaw", &lab.name, "a", "b"]);
        }
        clients.wait().expect("all clients are served");
    });
}

#[test]
fn faults_within_a_host_are_those_of_a_device() {
    holds(1);
}

#[test]
fn faults_between_hosts_are_those_of_a_device() {
    holds(2);
}

//! What programs on the fast path see of failures: of routers, of nodes, of the wire between hosts, of what the kernel has no
//! more of. And that nothing is left of connections, however many. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Lab, Place, await_that, entries, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A lab in which `srv` gives back what it is sent (`fast_faults/*.py`), `a` is on its host, and `b` on another.
#[track_caller]
fn lab<'a>(place: &'a Place, name: &str, network: &str) -> Lab<'a> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fast_faults");
    let mounts = format!("mounts: [\"{}:/opt/test:ro\"]", programs.display());
    let servers = "iperf3 -s -p 5201 & iperf3 -s -p 5202 & redis-server --bind '*' '-::*' --protected-mode no --save '' --dir /scratch & exec python3 /opt/test/mirror.py";
    let text = format!(
        "hosts: 2
networks: {{net: {network}}}
nodes:
  srv: {{host: host1, command: [sh, -c, \"{servers}\"], {mounts}}}
  a: {{host: host1, {mounts}}}
  b: {{host: host2, {mounts}}}
"
    );
    let lab = place.up(name, &text);
    listens(&lab);
    lab
}

/// Waits for the servers of `srv`, without a connection.
#[track_caller]
fn listens(lab: &Lab<'_>) {
    for port in [5000, 5201, 5202, 6379] {
        lab.listens("srv", port);
    }
}

/// A program of a node that says something again and again.
struct Talker {
    child: Child,
    said: PathBuf,
    /// Lines with this word tell of progress.
    word: &'static str,
}

impl Talker {
    /// Starts it, and waits until it makes progress.
    #[track_caller]
    fn start(lab: &Lab<'_>, node: &str, script: &str, word: &'static str) -> Self {
        let said = lab.place.path().join(format!("said-{}", rand::random::<u64>()));
        let file = File::create(&said).expect("made");
        let mut command = lab.program(node, ["sh", "-c", &format!("exec 2>&1; {script}")]);
        let child = command.stdout(file).spawn().expect("slipway can be started");
        let mut talker = Self { child, said, word };
        talker.has_said(1);
        talker
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).expect("it is there")).into_owned()
    }

    fn progress(&self) -> usize {
        self.text().lines().filter(|line| line.contains(self.word)).count()
    }

    #[track_caller]
    fn has_said(&mut self, lines: usize) {
        await_that("it goes on", || {
            let ended = self.child.try_wait().expect("looked at");
            assert!(ended.is_none(), "it ended: {}", self.text());
            self.progress() >= lines
        });
    }

    /// Waits for more of it. The next line may be about what came before.
    #[track_caller]
    fn goes_on(&mut self) {
        self.has_said(self.progress() + 2);
    }

    /// Waits for its end, and gives its last line.
    #[track_caller]
    fn ends(mut self) -> String {
        await_that("it ends", || self.child.try_wait().expect("looked at").is_some());
        self.text().lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of routers.
#[track_caller]
fn log(lab: &Lab<'_>) -> String {
    let log = lab.place.path().join("state").join(&lab.name).join("fast.log");
    fs::read_to_string(log).expect("it is kept")
}

/// Kills the routers so many times. `meanwhile` is called whenever others are there.
#[track_caller]
fn routers_die(lab: &Lab<'_>, times: usize, mut meanwhile: impl FnMut()) {
    for _ in 0..times {
        lab.kill_routers();
        meanwhile();
    }
    let log = log(lab);
    let count = |words: &str| log.matches(words).count();
    assert_eq!(count("; programs' calls wait for another"), 2 * times, "{log}");
    assert_eq!(count(": runs as process "), 2 * times + 2, "{log}");
}

#[test]
fn streams_do_not_notice_that_routers_die() {
    let place = Place::new();
    let lab = lab(&place, "streams", "fast");
    let commands = "while sleep 0.01; do echo incr x; done | redis-cli -h srv";
    let received = || lab.exec("srv", ["sh", "-c", "redis-cli info stats | grep total_connections_received"]);
    let mut streams: Vec<Talker> = ["a", "b"]
        .into_iter()
        .zip(["-p 5201", "-p 5202 -R"])
        .flat_map(|(node, options)| {
            let iperf = format!("exec iperf3 -c srv -t 0 -i 0.1 --forceflush {options}");
            [
                Talker::start(&lab, node, "exec python3 /opt/test/stream.py srv", "the same came back"),
                Talker::start(&lab, node, &iperf, "bits/sec"),
                Talker::start(&lab, node, commands, ""),
            ]
        })
        .collect();
    assert!(lab.connections() > 6, "they are on the fast path");
    let before = received();
    routers_die(&lab, 3, || streams.iter_mut().for_each(Talker::goes_on));
    assert_eq!(lab.connections(), 0, "no stream was made anew: another router counts from nothing");
    // Each look at it is a connection.
    let number = |text: &str| text.trim().rsplit(':').next().and_then(|number| number.parse::<u32>().ok());
    assert_eq!(number(&received()), number(&before).map(|count| count + 1));
}

/// A call that the old router had taken is made again, and one that comes meanwhile waits.
#[test]
fn no_call_fails_while_routers_are_replaced() {
    let place = Place::new();
    let lab = lab(&place, "calls", "fast");
    let mut callers: Vec<Talker> = ["a", "a", "b", "b"]
        .map(|node| Talker::start(&lab, node, "exec python3 /opt/test/calls.py srv", "a hundred calls"))
        .into();
    routers_die(&lab, 5, || callers.iter_mut().for_each(Talker::goes_on));
    assert!(lab.connections() > 0, "they are on the fast path again");
    for caller in &callers {
        let lost = caller.text().matches("before its time").count();
        assert_eq!(lost, 0, "connections that ended");
    }
}

/// Connections that nobody has accepted when their routers are killed are accepted afterwards, with what was sent on them.
#[test]
fn who_waits_to_be_accepted_does_not_notice_that_routers_die() {
    let place = Place::new();
    let lab = lab(&place, "waiting", "fast");
    let server = Talker::start(&lab, "srv", "exec python3 /opt/test/late.py 40", "it listens");
    let clients = ["a", "b"]
        .map(|node| Talker::start(&lab, node, "exec python3 /opt/test/together.py srv 20 6000", "all are connected"));
    let waiting = || lab.routers().iter().filter_map(|router| router["status"]["waiting"].as_u64()).sum::<u64>();
    assert_eq!(waiting(), 40, "they are on the fast path");
    routers_die(&lab, 2, || assert_eq!(waiting(), 40));
    lab.exec("srv", ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 6001))"]);
    for talker in clients.into_iter().chain([server]) {
        assert_eq!(talker.ends(), "all are served");
    }
    assert_eq!(waiting(), 0);
}

/// The sockets of a process, by their inodes; none once it has ended.
fn sockets(pid: Pid) -> BTreeSet<PathBuf> {
    let files = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    let names = files.filter_map(|file| fs::read_link(file.path()).ok());
    names.filter(|name| name.to_string_lossy().starts_with("socket:")).collect()
}

/// The routers that this anchor has made. A keeper has another name.
fn routers_of(anchor: u64) -> impl Iterator<Item = Pid> {
    let children = fs::read_to_string(format!("/proc/{anchor}/task/{anchor}/children")).expect("it runs");
    let children: Vec<Pid> = children.split(' ').filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    let name = |pid: &Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
    children.into_iter().filter(move |pid| name(pid) == "slipway-router\n")
}

/// The next router is killed as soon as it has taken over some of what waits.
#[test]
fn a_router_that_dies_while_it_takes_over_loses_nothing() {
    let place = Place::new();
    let lab = lab(&place, "taking", "fast");
    let server = Talker::start(&lab, "srv", "exec python3 /opt/test/late.py 400", "it listens");
    let clients = ["a", "b"]
        .map(|node| Talker::start(&lab, node, "exec python3 /opt/test/together.py srv 200 6000", "all are connected"));
    let waiting = || lab.routers().iter().filter_map(|router| router["status"]["waiting"].as_u64()).sum::<u64>();
    assert_eq!(waiting(), 400, "they are on the fast path");
    for _ in 0..3 {
        let first = lab.router_processes().into_iter().max_by_key(|&pid| sockets(pid).len()).expect("there are two");
        let (anchor, in_hand) = (status(first, "PPid"), sockets(first));
        kill_process(first, Signal::KILL).expect("it runs");
        let next = loop {
            let takes_over = |pid: &Pid| *pid != first && sockets(*pid).intersection(&in_hand).count() > 50;
            if let Some(next) = routers_of(anchor).find(takes_over) {
                break next;
            }
        };
        kill_process(next, Signal::KILL).expect("it runs");
        await_that("another has taken over", || {
            let now = lab.router_processes();
            now.len() == 2 && [first, next].iter().all(|pid| !now.contains(pid))
        });
        await_that("all are announced", || waiting() == 400);
    }
    lab.exec("srv", ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 6001))"]);
    for talker in clients.into_iter().chain([server]) {
        assert_eq!(talker.ends(), "all are served");
    }
}

/// The routers that heard of its option are not those that serve it.
#[test]
fn a_listener_that_defers_hears_of_who_speaks_when_routers_have_died() {
    for client in ["a", "b"] {
        let place = Place::new();
        let lab = lab(&place, "defers", "fast");
        let _server = Talker::start(&lab, "srv", "exec python3 /opt/test/deferring.py", "it listens");
        routers_die(&lab, 1, || {});
        let _calls = Talker::start(&lab, client, "exec python3 /opt/test/calls.py srv -1 6000", "a hundred calls");
        await_that("a hundred are on the fast path", || lab.connections() >= 100);
    }
}

/// The kernel takes them by itself: no call waits for a router, which is stopped here.
#[test]
fn what_is_set_on_every_connection_is_no_call_of_the_routers() {
    let place = Place::new();
    let lab = lab(&place, "options", "fast");
    assert!(lab.routers().iter().all(|router| router["free_options"] == true), "{:?}", lab.routers());
    let said = place.path().join("said");
    // Within a host, and between two.
    for node in ["a", "b"] {
        let mut command = lab.program(node, ["python3", "/opt/test/options.py", "srv"]);
        let file = File::create(&said).expect("made");
        let mut child = command.stdin(Stdio::piped()).stdout(file).spawn().expect("slipway can be started");
        let says = |words: &str| await_that(words, || fs::read_to_string(&said).expect("it is there").ends_with(words));
        let mut go_on = || child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        // Asked while they are stopped, their anchor would replace them.
        let routers = lab.router_processes();
        let all = |signal| routers.iter().for_each(|pid| kill_process(*pid, signal).expect("it runs"));
        says("connected\n");
        all(Signal::STOP);
        go_on();
        says("set\n");
        all(Signal::CONT);
        go_on();
        says("kept\n");
        assert!(child.wait().expect("it ends").success());
    }
    // Each once.
    assert_eq!(lab.connections(), 2);
}

/// A program can hear of a connection, be interrupted before it does, or be interrupted before it is asked whether it did.
#[test]
fn signals_lose_no_connection_and_leave_no_descriptor() {
    let place = Place::new();
    let lab = lab(&place, "signalled", "fast");
    assert!(lab.routers().iter().all(|router| router["told_again"] == true), "{:?}", lab.routers());
    let _server = Talker::start(&lab, "srv", "exec python3 /opt/test/signalled.py", "it listens");
    for client in ["a", "b"] {
        let said = lab.exec(client, ["python3", "/opt/test/signalled.py", "srv", "100"]);
        assert_eq!(said, "4 of four were served\n");
    }
    assert!(lab.connections() >= 800, "they are on the fast path");
    // What a program does not know of it does not close.
    await_that("all are closed", || {
        let answer = place.json(["fast", "status", "--flows", &lab.name]);
        answer["flows"].as_array().is_some_and(Vec::is_empty)
    });
}

#[test]
fn peers_of_a_killed_node_see_the_end() {
    for (network, client) in [("bridge", "a"), ("fast", "a"), ("fast", "b")] {
        let place = Place::new();
        let lab = lab(&place, "ended", network);
        let mut stream = Talker::start(&lab, client, "exec python3 /opt/test/stream.py srv", "the same came back");
        stream.goes_on();
        place.run(["kill", &lab.name, "srv"]);
        let last = stream.ends();
        let ends = ["ConnectionResetError", "BrokenPipeError", "EOFError"].map(|end| format!("ended: {end}"));
        assert!(ends.contains(&last), "{network}, {client}: {last}");

        place.run(["start", &lab.name, "srv"]);
        listens(&lab);
        let before = lab.connections();
        let mut stream = Talker::start(&lab, client, "exec python3 /opt/test/stream.py srv", "the same came back");
        stream.goes_on();
        assert_eq!(lab.connections() > before, lab.is_fast(), "{network}, {client}");
        let threads = || lab.exec("srv", ["ps", "-C", "python3", "-o", "nlwp="]).trim().to_owned();
        assert_eq!(threads(), "2", "one accepts, one serves");
        place.run(["kill", &lab.name, client]);
        await_that("the server hears that its client is gone", || threads() == "1");
    }
}

/// The option of `nsenter` for the namespace between a lab's hosts, of which its anchor has a descriptor.
#[track_caller]
fn between_hosts(lab: &Lab<'_>) -> String {
    let anchor = lab.place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].clone();
    let is_net = |path: &Path| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("net:"));
    let options = entries(Path::new(&format!("/proc/{anchor}/fd"))).filter(|path| is_net(path));
    let mut options = options.map(|path| format!("--net={}", path.display()));
    let has_wires = |option: &String| {
        let mut command = Command::new("nsenter");
        command.args([option, "ip", "link", "show", "tunnel.2"]);
        command.output().expect("util-linux and iproute2 are installed").status.success()
    };
    options.find(has_wires).expect("the hosts are joined")
}

/// As with any wire: what is under way waits and goes on afterwards, and nobody is told anything.
#[test]
fn a_cut_between_hosts_is_a_pause() {
    let place = Place::new();
    let lab = lab(&place, "wire", "fast");
    let mut stream = Talker::start(&lab, "b", "exec python3 /opt/test/stream.py srv", "the same came back");
    let mut beside = Talker::start(&lab, "a", "exec python3 /opt/test/stream.py srv", "the same came back");
    let between = between_hosts(&lab);
    let set = |state| {
        // Devices for the hosts' own traffic, and for tunnels.
        for device in ["uplink.2", "tunnel.2"] {
            let words = [&*between, "ip", "link", "set", device, state];
            let output = Command::new("nsenter").args(words).output().expect("util-linux and iproute2 are installed");
            assert!(output.status.success(), "{}", told(&output));
        }
    };
    set("down");
    let call = "import socket; socket.create_connection(('srv', 5000), timeout=2)";
    let output = lab.program("b", ["python3", "-c", call]).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("timed out") || said.contains("No route to host"), "{}", told(&output));
    beside.goes_on();
    set("up");
    stream.goes_on();
    let before = lab.connections();
    await_that("new connections are fast again", || {
        lab.exec("b", ["python3", "/opt/test/calls.py", "srv", "1"]);
        lab.connections() > before
    });
}

/// A number of a process, as `/proc/PID/status` has it.
#[track_caller]
fn status(pid: Pid, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
    line.split_whitespace().find_map(|word| word.parse().ok()).expect("a number")
}

fn descriptors(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("it runs").count()
}

/// Has the kernel refuse a process more of something, until it is told otherwise.
#[track_caller]
fn limit(pid: Pid, resource: &str, most: &str) {
    let words = ["--pid".to_owned(), pid.as_raw_nonzero().to_string(), format!("--{resource}={most}:")];
    let output = Command::new("prlimit").args(words).output().expect("util-linux is installed");
    assert!(output.status.success(), "{}", told(&output));
}

/// What waits to be accepted is held by the router, which keeps descriptors back to serve calls with.
#[test]
fn a_router_with_few_descriptors_leaves_connections_to_the_network_beneath() {
    let place = Place::new();
    let lab = lab(&place, "few", "fast");
    place.run(["down", &lab.name]);
    let mut up = Command::new("prlimit");
    place.furnish(&mut up);
    up.args(["--nofile=2000", env!("CARGO_BIN_EXE_slipway"), "up", "few.yaml"]);
    let output = up.output().expect("util-linux is installed");
    assert!(output.status.success(), "{}", told(&output));
    listens(&lab);
    for client in ["a", "b"] {
        let (routers_before, before) = (lab.router_processes(), lab.connections());
        let held = descriptors(routers_before[0]);
        // Nobody accepts. A frozen node would not answer on the network beneath.
        lab.exec("srv", ["pkill", "-STOP", "-f", "mirror.py"]);
        let together = Talker::start(&lab, client, "exec python3 /opt/test/together.py srv 600", "all are connected");
        let waiting = lab.routers()[0]["status"]["waiting"].as_u64().expect("a number");
        // Each takes two, and there are some for who comes next.
        let more = descriptors(routers_before[0]).saturating_sub(held) as u64;
        assert!(more < 3 * waiting, "{client}: {more} descriptors more for {waiting} connections");
        lab.exec("srv", ["pkill", "-CONT", "-f", "mirror.py"]);
        assert_eq!(together.ends(), "all are served", "{client}: {}", log(&lab));
        // More than a node's share, of all that a router has room for.
        let native = |router: &Value| router["status"]["connections"]["native"]["crowded"].as_u64();
        let crowded: u64 = lab.routers().iter().filter_map(native).sum();
        assert!(crowded > 0 && lab.connections() > before, "{client}: some of each: {:?}", lab.routers());
        let before = lab.connections();
        lab.exec(client, ["python3", "/opt/test/calls.py", "srv", "10"]);
        assert!(lab.connections() >= before + 10, "{client}: there is room again");
        assert_eq!(lab.router_processes(), routers_before, "{client}: they are the same ones");
    }
}

/// It ends, and another does what it could not.
#[test]
fn a_router_without_memory_is_replaced() {
    let place = Place::new();
    let lab = lab(&place, "memory", "fast");
    let mut stream = Talker::start(&lab, "a", "exec python3 /opt/test/stream.py srv", "the same came back");
    let old = lab.router_processes();
    limit(old[0], "as", &(status(old[0], "VmSize:") * 1024).to_string());
    // Every tree of programs takes it a thread, and a thread takes memory.
    let callers: Vec<Talker> =
        (0..8).map(|_| Talker::start(&lab, "a", "exec python3 /opt/test/calls.py srv", "a hundred calls")).collect();
    assert!(!lab.router_processes().contains(&old[0]), "another does it");
    drop(callers);
    stream.goes_on();
}

/// What there is of a lab's routers and of its sockets, but for connections between routers that are ready.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Of the routers and the anchor.
    descriptors: u64,
    threads: Vec<u64>,
    /// In the networks of hosts and of nodes: sockets of TCP that somebody has, and unix sockets.
    tcp: u64,
    unix: usize,
    /// Trees of programs that are heard, and so filters.
    listeners: Vec<Value>,
}

impl Held {
    fn of(lab: &Lab<'_>) -> Self {
        let routers = lab.router_processes();
        let anchor = lab.place.json(["inspect", &lab.name])["state"]["anchor"]["pid"].clone();
        let pid = |value: &Value| Pid::from_raw(i32::try_from(value.as_i64().expect("a pid")).expect("small"));
        let nodes = ["srv", "a", "b"].map(|node| pid(&lab.row(node)["pid"]).expect("it runs"));
        let all = routers.iter().copied().chain(pid(&anchor));
        let net = |pid: Pid, file: &str| {
            fs::read_to_string(format!("/proc/{}/net/{file}", pid.as_raw_nonzero())).expect("it runs")
        };
        let tcp = |pid: Pid| -> u64 {
            let stat = net(pid, "sockstat");
            let line = stat.lines().find_map(|line| line.strip_prefix("TCP: inuse ")).expect("TCP is counted");
            line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let networks: Vec<Pid> = routers.iter().copied().chain(nodes).collect();
        let reports = lab.routers();
        let peers = reports.iter().flat_map(|router| router["status"]["peers"].as_array().expect("a list"));
        // Each has two ends.
        let ready: u64 = peers.map(|peer| peer["ready"].as_u64().expect("a number") * 2).sum();
        Self {
            descriptors: (all.map(descriptors).sum::<usize>() as u64).saturating_sub(ready),
            threads: routers.iter().map(|&pid| status(pid, "Threads:")).collect(),
            tcp: networks.iter().map(|&pid| tcp(pid)).sum::<u64>().saturating_sub(ready),
            unix: networks.iter().map(|&pid| net(pid, "unix").lines().count()).sum(),
            listeners: reports.iter().map(|router| router["listeners"].clone()).collect(),
        }
    }
}

/// So many connections on each path, and nothing is left of them.
fn nothing_is_left(connections: usize) {
    let place = Place::new();
    let lab = lab(&place, "left", "fast");
    let call = |count: usize| {
        for client in ["a", "b"] {
            let said = lab.exec(client, ["python3", "/opt/test/calls.py", "srv", &count.to_string()]);
            assert!(!said.contains("before its time"), "{said}");
        }
    };
    // What is kept ready is there by then.
    call(500);
    let memory = || lab.router_processes().iter().map(|&pid| status(pid, "RssAnon:")).collect::<Vec<_>>();
    let (held, used, made) = (Held::of(&lab), memory(), lab.connections());
    for part in 1..=4 {
        call(connections / 4);
        let mut now = Held::of(&lab);
        await_that(&format!("after part {part} it is as before: {held:?}, now {now:?}"), || {
            now = Held::of(&lab);
            now == held
        });
    }
    assert_eq!(lab.connections() - made, 2 * connections as u64, "all were fast");
    let more = memory().iter().zip(used).map(|(now, before)| now.saturating_sub(before)).max().expect("routers");
    println!("after {connections} connections on each path the routers have {:?} KiB, {more} KiB more", memory());
    assert!(more < 1024, "{more} KiB more than before");
    assert!(memory().iter().all(|kib| *kib < 20 * 1024), "a router is small: {:?} KiB", memory());
}

#[test]
fn nothing_is_left_of_connections() {
    nothing_is_left(2_000);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn nothing_is_left_of_a_hundred_thousand_connections() {
    nothing_is_left(50_000);
}

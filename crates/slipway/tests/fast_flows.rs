//! Connections of the fast path that live: seen, counted, ended when they may not be any more, and silent when a node is.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{Inventory, Lab, Place, as_before, await_that, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A server on one host, clients on both.
const LAB: &str = "hosts: 2\nnetworks: {net: fast}\nnodes:\n  srv: {host: host1}\n  other: {host: host1}\n  \
    a: {host: host1}\n  b: {host: host2}\n";

/// Does what it is told, line by line, and says how that went.
const PROGRAM: &str = r"
import errno, resource, socket, sys
listeners, sockets = {}, {}
inside, outside = socket.socketpair()
files = resource.RLIMIT_NOFILE
def connected(data): return 'word' if data else 'end'
def act(what, name, *rest):
    if what == 'listen': listeners[name] = socket.create_server(('', int(name)))
    elif what == 'accept': sockets[name] = listeners[rest[0]].accept()[0]
    elif what == 'connect': sockets[name] = socket.create_connection((rest[0], int(rest[1])))
    elif what == 'say': sockets[name].sendall(b'x')
    elif what == 'hear': return connected(sockets[name].recv(1))
    elif what == 'look': return connected(sockets[name].recv(1, socket.MSG_DONTWAIT))
    elif what == 'hide':
        socket.send_fds(inside, [b'x'], [sockets[name].fileno()])
        sockets.pop(name).close()
    elif what == 'limit': resource.setrlimit(files, (int(name), resource.getrlimit(files)[1]))
    elif what == 'show': sockets[name] = socket.socket(fileno=socket.recv_fds(outside, 1, 1)[1][0])
    return 'done'
print('ready', flush=True)
for line in sys.stdin:
    try: print(act(*line.split()), flush=True)
    except OSError as error: print(errno.errorcode[error.errno], flush=True)
";

/// One that runs in a node until it is dropped.
struct Program {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn new(lab: &Lab<'_>, node: &str) -> Self {
        let mut command = lab.program(node, ["python3", "-c", PROGRAM]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let orders = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        let mut program = Self { process, orders, answers };
        assert_eq!(program.hear(), "ready");
        program
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it is read");
        line.trim().to_owned()
    }

    fn say(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("it runs");
        self.hear()
    }

    #[track_caller]
    fn does(&mut self, order: &str) {
        assert_eq!(self.say(order), "done", "{order}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended with its node.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Joins two programs by a connection of this name, and has a word pass each way.
#[track_caller]
fn join(client: &mut Program, server: &mut Program, node: &str, name: &str) {
    client.does(&format!("connect {name} {node} 5000"));
    server.does(&format!("accept {name} 5000"));
    passes(client, server, name);
}

#[track_caller]
fn passes(client: &mut Program, server: &mut Program, name: &str) {
    client.does(&format!("say {name}"));
    assert_eq!(server.say(&format!("hear {name}")), "word");
    server.does(&format!("say {name}"));
    assert_eq!(client.say(&format!("hear {name}")), "word");
}

fn serving(lab: &Lab<'_>, node: &str) -> Program {
    let mut program = Program::new(lab, node);
    program.does("listen 5000");
    program
}

fn connections(lab: &Lab<'_>) -> Vec<Value> {
    let answer = lab.place.json(["fast", "status", &lab.name]);
    let routers = answer["routers"].as_array().expect("a list");
    routers.iter().map(|router| router["status"]["connections"].clone()).collect()
}

/// Connections on the fast path so far, of all hosts.
fn fast(lab: &Lab<'_>) -> u64 {
    let all = connections(lab);
    all.iter().map(|of| of["pair"].as_u64().expect("a number") + of["tcp"].as_u64().expect("a number")).sum()
}

/// What an end of TCP says that was cut, or whose other end was.
fn is_reset(said: &str) -> bool {
    ["ECONNRESET", "ECONNABORTED"].contains(&said)
}

#[test]
fn conditions_end_what_is_fast_and_hold_afterwards() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("slow", LAB);
    let mut srv = serving(&lab, "srv");
    let mut other = serving(&lab, "other");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut other, "other", "beside");
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    assert_eq!(fast(&lab), 3, "one between hosts is counted once");
    let said = place.json(["set", &lab.name, "srv", "delay=8ms"]);
    assert_eq!(said["ended"], 2, "{said}");
    assert_eq!(a.say("hear within"), "end");
    assert_eq!(a.say("say within"), "EPIPE");
    assert_eq!(srv.say("hear within"), "end");
    let (there, here) = (b.say("hear across"), srv.say("hear across"));
    assert!(is_reset(&there) && is_reset(&here), "{there}, {here}");
    passes(&mut a, &mut other, "beside");
    let counted: u64 = connections(&lab).iter().filter_map(|of| of["revoked"]["conditions"].as_u64()).sum();
    assert_eq!(counted, 2);
    // They connect anew, on the container network, and there the delay is.
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    assert_eq!(fast(&lab), 3);
    let ping = lab.exec("a", ["ping", "-c1", "srv"]);
    let time = ping.split("time=").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|time| time.parse().ok());
    assert!(time.is_some_and(|time: f64| time >= 8.0), "{ping}");
    // A further change finds nothing to end; what is there stays when conditions end.
    assert_eq!(place.json(["set", &lab.name, "srv", "delay=9ms"])["ended"], 0);
    place.run(["restore", &lab.name]);
    passes(&mut a, &mut srv, "within");
    join(&mut a, &mut srv, "srv", "again");
    assert_eq!(fast(&lab), 4);
    drop((srv, other, a, b, lab));
    as_before(&place, &before, "nothing is kept of connections");
}

#[test]
fn a_cut_reaches_what_is_fast() {
    let place = Place::new();
    let lab = place.up("cut", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    let text = place.run(["cut", &lab.name, "b"]);
    assert!(text.contains("1 fast connection was ended"), "{text}");
    let said = b.say("hear across");
    assert!(is_reset(&said), "{said}");
    passes(&mut a, &mut srv, "within");
    place.run(["heal", &lab.name]);
    let count = fast(&lab);
    srv.say("hear across");
    join(&mut b, &mut srv, "srv", "anew");
    assert_eq!(fast(&lab), count + 1);
    let parted = place.json(["partition", &lab.name, "a", "srv,b"]);
    assert_eq!(parted["ended"], 2, "{parted}");
    assert_eq!(a.say("hear within"), "end");
    place.run(["join", &lab.name]);
    srv.say("hear within");
    join(&mut a, &mut srv, "srv", "joined");
}

/// A connection that nobody has accepted yet ends too, and its server finds it so.
#[test]
fn what_waits_to_be_accepted_is_ended() {
    let place = Place::new();
    let lab = place.up("queue", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    a.does("connect within srv 5000");
    b.does("connect across srv 5000");
    assert_eq!(place.json(["set", &lab.name, "srv", "delay=1ms"])["ended"], 2);
    assert_eq!(a.say("hear within"), "end");
    let said = b.say("hear across");
    assert!(is_reset(&said), "{said}");
    srv.does("accept within 5000");
    assert_eq!(srv.say("hear within"), "end");
    srv.does("accept across 5000");
    let said = srv.say("hear across");
    assert!(is_reset(&said), "{said}");
}

/// Descriptors in messages that nobody has received are in no table.
#[test]
fn what_is_hidden_is_ended_once_it_is_shown() {
    let place = Place::new();
    let lab = place.up("hidden", LAB);
    let mut srv = serving(&lab, "srv");
    let mut a = Program::new(&lab, "a");
    join(&mut a, &mut srv, "srv", "half");
    join(&mut a, &mut srv, "srv", "whole");
    a.does("hide half");
    a.does("hide whole");
    srv.does("hide whole");
    assert_eq!(place.json(["set", &lab.name, "a", "delay=1ms"])["ended"], 1, "one end that is found is enough");
    a.does("show half");
    assert_eq!(a.say("hear half"), "end");
    a.does("show whole");
    srv.does("show whole");
    assert_eq!(a.say("hear whole"), "end", "it is looked for again");
}

/// What a node that was killed `hard` had open stays open, until it starts anew.
#[test]
fn a_node_that_is_killed_hard_is_silent() {
    let place = Place::new();
    let lab = place.up("hard", LAB);
    let mut srv = serving(&lab, "srv");
    let mut other = serving(&lab, "other");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    for (client, name) in [(&mut a, "within"), (&mut b, "across")] {
        join(client, &mut srv, "srv", name);
        join(client, &mut other, "other", &format!("{name}-beside"));
    }
    for client in [&mut a, &mut b] {
        // Nobody accepts these.
        client.does("connect waiting srv 5000");
    }
    place.run(["kill", "--how", "hard", &lab.name, "srv"]);
    passes(&mut a, &mut other, "within-beside");
    passes(&mut b, &mut other, "across-beside");
    let silent =
        |program: &mut Program, name: &str| assert_eq!(program.say(&format!("look {name}")), "EAGAIN", "{name}");
    silent(&mut a, "within");
    silent(&mut a, "waiting");
    silent(&mut b, "across");
    silent(&mut b, "waiting");
    // The next routers know that it is.
    lab.kill_routers();
    for (client, name) in [(&mut a, "within-later"), (&mut b, "across-later")] {
        join(client, &mut other, "other", name);
        silent(client, "waiting");
    }
    a.does("say within");
    place.run(["start", &lab.name, "srv"]);
    assert!(["end", "ECONNRESET"].contains(&a.say("hear within").as_str()));
    assert!(["end", "ECONNRESET"].contains(&a.say("hear waiting").as_str()));
    assert_eq!(b.say("hear across"), "ECONNRESET");
    assert!(["end", "ECONNRESET"].contains(&b.say("hear waiting").as_str()));
    let mut srv = serving(&lab, "srv");
    join(&mut a, &mut srv, "srv", "anew");
    join(&mut b, &mut srv, "srv", "anew");
}

/// As by a crash of its programs: the kernel closes what they had.
#[test]
fn a_node_that_is_killed_softly_is_heard_of() {
    let place = Place::new();
    let lab = place.up("soft", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    a.does("say within");
    b.does("say across");
    place.run(["kill", "--how", "soft", &lab.name, "srv"]);
    assert_eq!(a.say("hear within"), "ECONNRESET", "what was sent had not been read");
    assert_eq!(b.say("hear across"), "ECONNRESET");
}

/// Nodes whose links a scenario will change leave the fast path when it begins, so that none of its events resets anything.
#[test]
fn a_scenario_takes_its_nodes_off_beforehand() {
    let place = Place::new();
    let lab = place.up("play", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "before");
    join(&mut b, &mut srv, "srv", "untouched");
    let file = place.path().join("scenario.yaml");
    std::fs::write(&file, "events:\n  - {at: 1h, set: {delay: 5ms}, interfaces: 'a:eth0'}\n").expect("written");
    let mut playing = place.slipway(["play".as_ref(), lab.name.as_ref(), file.as_os_str()]);
    let mut playing = playing.stdout(Stdio::null()).spawn().expect("started");
    assert_eq!(a.say("hear before"), "end", "it begins");
    let count = fast(&lab);
    srv.say("hear before");
    join(&mut a, &mut srv, "srv", "during");
    assert_eq!(fast(&lab), count);
    passes(&mut b, &mut srv, "untouched");
    kill_process(Pid::from_child(&playing), Signal::INT).expect("it plays");
    playing.wait().expect("it ends");
    passes(&mut a, &mut srv, "during");
    join(&mut a, &mut srv, "srv", "after");
    assert_eq!(fast(&lab), count + 1);
}

#[test]
fn what_lives_is_listed_and_counted() {
    let place = Place::new();
    let lab = place.up("list", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    a.does("say within");
    let answer = place.json(["fast", "status", "--flows", &lab.name]);
    let flows = answer["flows"].as_array().expect("a list");
    let of = |client: &str| flows.iter().find(|flow| flow["client"] == client).unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(flows.len(), 2, "{answer}");
    assert_eq!((&of("a")["server"], &of("a")["path"], &of("a")["unread"]), (&json!("srv"), &json!("pair"), &json!(1)));
    let across = of("b");
    assert_eq!((&across["server"], &across["path"]), (&json!("srv"), &json!("tcp")));
    assert_eq!(across["server_port"], 5000);
    assert!(across["sent"].as_u64() > Some(0) && across["rtt_us"].as_u64() > Some(0), "{across}");
    let text = place.run(["fast", "status", "--flows", &lab.name]);
    assert!(text.contains("srv:5000"), "{text}");
    a.does("hide within");
    let between: Vec<Value> =
        connections(&lab).iter().flat_map(|of| of["between"].as_array().expect("a list").clone()).collect();
    assert!(between.iter().any(|of| of["client"] == 2 && of["server"] == 0 && of["pair"] == 1), "{between:?}");
    assert!(between.iter().any(|of| of["client"] == 3 && of["server"] == 0 && of["tcp"] == 1), "{between:?}");
}

/// Its server had no descriptor left for it, by one router and by the next.
#[test]
fn a_connection_that_is_put_back_stays_one_and_the_same() {
    let place = Place::new();
    let lab = place.up("back", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    for (client, name) in [(&mut a, "within"), (&mut b, "across")] {
        let accept = format!("accept {name} 5000");
        // New routers have to meet first: until then, a connection to another host takes the network.
        await_that("the client's router reaches the server's", || {
            lab.routers()[1]["status"]["peers"][0]["ready"].as_u64() > Some(0)
        });
        client.does(&format!("connect {name} srv 5000"));
        srv.does("limit 1");
        assert_eq!(srv.say(&accept), "EMFILE");
        lab.kill_routers();
        assert_eq!(srv.say(&accept), "EMFILE");
        srv.does("limit 1000");
        srv.does(&accept);
        passes(client, &mut srv, name);
    }
    let answer = place.json(["fast", "status", "--flows", &lab.name]);
    assert_eq!(answer["flows"].as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!(place.json(["set", &lab.name, "srv", "delay=1ms"])["ended"], 2);
}

/// The text format, read strictly (<https://prometheus.io/docs/instrumenting/exposition_formats/>): every family with its help
/// and type before its samples, and no sample twice. Gives the samples by name and labels.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    assert!(page.ends_with('\n'), "the last line ends");
    let (mut family, mut helped, mut all) = ("", "", BTreeMap::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and words");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, helped, "its help comes first");
            assert!(matches!((kind, name.ends_with("_total")), ("counter", true) | ("gauge", false)), "{line}");
            family = name;
        } else {
            let (name, rest) = line.split_once('{').expect("all have labels");
            assert_eq!(name, family, "samples are together");
            let (labels, number) = rest.rsplit_once("} ").expect("labels end");
            for label in labels.split("\",") {
                let (key, value) = label.split_once("=\"").expect("a label");
                assert!(is_name(key) && !value.trim_end_matches('"').contains('"'), "{line}");
            }
            let number = number.parse().expect("a number");
            assert_eq!(all.insert(format!("{name}{{{labels}}}"), number), None, "twice: {line}");
        }
    }
    all
}

fn fetch(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(request).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and hangs up");
    answer
}

#[test]
fn numbers_are_there_for_prometheus() {
    let place = Place::new();
    let lab = place.up("numbers", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    a.say("connect none srv 1");
    let name = &lab.name;
    let printed = samples(&place.run(["fast", "metrics", name]));
    let expect = |all: &BTreeMap<String, f64>, sample: &str, number: f64| {
        let found = all.get(sample).unwrap_or_else(|| panic!("{sample} is not among {all:#?}"));
        assert!((found - number).abs() < f64::EPSILON, "{sample} is {found}");
    };
    expect(&printed, &format!("slipway_fast_connections_total{{lab=\"{name}\",host=\"host1\",path=\"pair\"}}"), 1.0);
    expect(&printed, &format!("slipway_fast_connections_total{{lab=\"{name}\",host=\"host2\",path=\"tcp\"}}"), 1.0);
    expect(&printed, &format!("slipway_fast_refused_total{{lab=\"{name}\",host=\"host1\"}}"), 1.0);
    expect(&printed, &format!("slipway_fast_router_up{{lab=\"{name}\",host=\"host2\"}}"), 1.0);
    let memory = printed[&format!("slipway_fast_router_resident_memory_bytes{{lab=\"{name}\",host=\"host1\"}}")];
    assert!(memory > 0.0);
    let flows = |client: &str, path: &str| {
        format!("slipway_fast_flows{{lab=\"{name}\",client=\"{client}\",server=\"srv\",path=\"{path}\"}}")
    };
    expect(&printed, &flows("a", "pair"), 1.0);
    expect(&printed, &flows("b", "tcp"), 1.0);

    let mut serving = place.slipway(["fast", "metrics", name, "--listen", "127.0.0.1:0", "--json"]);
    let mut serving = serving.stdout(Stdio::piped()).spawn().expect("started");
    let mut said = String::new();
    let mut answer = BufReader::new(serving.stdout.take().expect("piped"));
    while !said.ends_with("}\n") {
        answer.read_line(&mut said).expect("it says where");
    }
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let url = said["url"].as_str().and_then(|url| url.strip_prefix("http://")?.strip_suffix("/metrics"));
    let at: SocketAddr = url.and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    // Those who say nothing, or nonsense, keep nobody.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(at).expect("it listens")).collect();
    assert!(fetch(at, b"\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(fetch(at, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    place.run(["cut", name, "a"]);
    let page = fetch(at, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = page.split_once("\r\n\r\n").expect("a header");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    let served = samples(body);
    expect(&served, &format!("slipway_fast_revoked_total{{lab=\"{name}\",host=\"host1\",reason=\"conditions\"}}"), 1.0);
    assert_eq!(served.get(&flows("a", "pair")), None);
    drop(silent);
    place.run(["down", name]);
    assert!(fetch(at, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    kill_process(Pid::from_child(&serving), Signal::INT).expect("it serves");
    assert!(serving.wait().expect("it ends").success());
}

/// What Prometheus' own checker says of them: nothing.
#[test]
#[ignore = "promtool comes with all of Prometheus; `make test-long` installs it and runs this"]
fn promtool_finds_nothing_to_complain_of() {
    let place = Place::new();
    let lab = place.up("checked", LAB);
    let mut srv = serving(&lab, "srv");
    let (mut a, mut b) = (Program::new(&lab, "a"), Program::new(&lab, "b"));
    join(&mut a, &mut srv, "srv", "within");
    join(&mut b, &mut srv, "srv", "across");
    a.say("connect none srv 1");
    // One that was ended, and one that is not fast.
    place.run(["cut", &lab.name, "b"]);
    place.run(["heal", &lab.name, "b"]);
    place.run(["set", &lab.name, "b", "delay=1ms"]);
    join(&mut b, &mut srv, "srv", "beneath");
    let page = place.run(["fast", "metrics", &lab.name]);
    for family in ["flows", "native_total", "node_connections_total", "refused_total", "revoked_total"] {
        assert!(page.contains(&format!("\nslipway_fast_{family}{{")), "{family} is there: {page}");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap_or_else(|error| panic!("promtool: {error}: install prometheus"));
    let mut input = promtool.stdin.take().expect("piped");
    input.write_all(page.as_bytes()).expect("it reads");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{}\n{page}", told(&output));
}

//! Commands that look at a lab over several machines show all of it, whichever machine they are given on.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use common::await_that;
use common::machines::{Machines, address, must};
use serde_json::Value;

/// Serves one connection until its client has ended.
const SERVER: &str = "import socket
listener = socket.create_server(('', 7000))
stream = listener.accept()[0]
stream.sendall(b'x' * 1000)
stream.recv(1)";

/// Takes all that the server sends, says so, and stays until its input ends.
const CLIENT: &str = "import socket, sys
stream = socket.create_connection(('n2', 7000))
left = 1000
while left: left -= len(stream.recv(left))
print('joined', flush=True)
sys.stdin.read()";

fn json(machines: &Machines, machine: usize, words: &[&str]) -> Value {
    serde_json::from_str(&machines.run(machine, [&["--json"], words].concat())).expect("JSON")
}

/// The names at `key` of a list.
fn names<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().expect("a list").iter().map(|one| one[key].as_str().expect("a name")).collect()
}

/// A connection that stays, from n1 on machine a to n2 on machine b.
struct Connected {
    server: Child,
    client: Child,
}

impl Connected {
    fn new(machines: &Machines, lab: &str) -> Self {
        let mut server = machines.slipway(1, ["exec", lab, "n2", "--", "python3", "-c", SERVER]);
        let server = server.spawn().expect("slipway can be started");
        await_that("the server listens", || {
            !machines.run(1, ["exec", lab, "n2", "--", "ss", "-Hltn", "sport", "=", "7000"]).is_empty()
        });
        let mut client = machines.slipway(0, ["exec", lab, "n1", "--", "python3", "-c", CLIENT]);
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut client = client.expect("slipway can be started");
        let mut line = String::new();
        BufReader::new(client.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it says something");
        assert_eq!(line, "joined\n");
        Self { server, client }
    }

    fn end(mut self) {
        drop(self.client.stdin.take());
        assert!(self.client.wait().expect("it ends").success());
        assert!(self.server.wait().expect("it ends").success());
    }
}

#[test]
fn the_fast_path_of_a_lab_is_shown_whole() {
    let machines = Machines::new(3);
    let file = machines.file("fast", "networks: {net: fast}\nnodes: {n: {count: 2}}\n");
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let connected = Connected::new(&machines, "fast");
    let page = machines.run(1, ["fast", "metrics", "fast"]);
    // Client's and server's machine see the same, and so does one without nodes, which has no router.
    for machine in 0..3 {
        let status = json(&machines, machine, &["fast", "status", "fast", "--flows"]);
        assert_eq!(names(&status["routers"], "machine"), ["a", "b"], "{status:#}");
        let taken: Vec<&Value> =
            status["routers"].as_array().unwrap().iter().map(|of| &of["status"]["connections"]["tcp"]).collect();
        assert_eq!(taken, [1, 0], "{status:#}");
        let flows = status["flows"].as_array().expect("flows");
        let [flow] = flows.as_slice() else { panic!("one connection, though two machines see it: {flows:#?}") };
        assert_eq!((&flow["client"], &flow["server"], &flow["path"]), (&"n1".into(), &"n2".into(), &"tcp".into()));
        assert!(flow["received"].as_u64() >= Some(1000), "by its client: {flow:#}");
    }
    for host in ["a", "b"] {
        let up = format!("slipway_fast_router_up{{lab=\"fast\",host=\"{host}\"}} 1\n");
        let memory = format!("slipway_fast_router_resident_memory_bytes{{lab=\"fast\",host=\"{host}\"}} ");
        assert!(page.contains(&up) && page.contains(&memory), "{page}");
    }
    assert!(page.contains("slipway_fast_flows{lab=\"fast\",client=\"n1\",server=\"n2\",path=\"tcp\"} 1\n"), "{page}");
    // A process is one of the machine where the command is given; the way of its sockets leads to another.
    let node = json(&machines, 0, &["inspect", "fast", "n1"]);
    let ways = |pid: &Value| json(&machines, 0, &["fast", "explain", "fast", &pid.to_string()]);
    let sockets: Vec<Value> = node["pids"]
        .as_array()
        .unwrap()
        .iter()
        .map(ways)
        .flat_map(|of| of["sockets"].as_array().unwrap().clone())
        .collect();
    assert!(sockets.iter().any(|socket| socket["way"] == "tcp"), "{sockets:#?}");
    connected.end();

    machines.run(1, ["down", "fast"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_lab_and_its_devices_are_shown_whole() {
    let machines = Machines::new(3);
    let file = machines.file("whole", "networks: {net: vxlan}\nnodes: {n: {count: 5}}\n");
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.run(0, ["cut", "whole", "n2"]);
    let whole = json(&machines, 2, &["inspect", "whole"]);
    assert_eq!(names(&whole["nodes"], "name"), ["n1", "n2", "n3", "n4", "n5"]);
    assert_eq!(names(&whole["nodes"], "host"), ["a", "b", "c", "a", "b"]);
    assert_eq!(names(&whole["machines"], "machine"), ["a", "b", "c"]);
    assert_eq!(whole["machines"][2]["folder"], whole["folder"], "this machine's part stands alone too");
    let cut: Vec<&Value> =
        whole["links"]["interfaces"].as_array().unwrap().iter().filter(|of| of["cut"] == true).collect();
    assert_eq!(cut.iter().map(|of| &of["node"]).collect::<Vec<_>>(), [1], "a link of machine b");
    let said = machines.run(2, ["inspect", "whole"]);
    assert!(said.contains("machine  b: anchor is process"), "{said}");

    let drawn = json(&machines, 1, &["graph", "whole", "--devices"]);
    assert_eq!(names(&drawn["devices"], "machine"), ["a", "b", "c"]);
    let picture = drawn["graph"].as_str().expect("a picture");
    for words in ["label=\"machine c\"", "label=\"n5\"", "-- between;"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    // Each machine's tunnels lead to both others.
    for part in drawn["devices"].as_array().unwrap() {
        let links = part["graph"]["links"].as_array().expect("links");
        let leads = |of: &&Value| of["kind"] == "vxlan" && of["tunnel"]["remotes"].as_array().unwrap().len() == 2;
        assert!(links.iter().any(|of| leads(&of)), "{part:#}");
    }
    let mermaid = machines.run(1, ["graph", "whole", "--devices", "--mermaid"]);
    assert!(mermaid.contains("[\"machine a\"]") && mermaid.contains(" --- between"), "{mermaid}");
    machines.run(0, ["down", "whole"]);
    assert_eq!(machines.remains(), [""; 0]);
}

/// The experiment of `examples/failure-detection`: n3, which fails, is on a machine of its own.
#[test]
#[ignore = "a minute, most of it waiting for what hangs; `make test-long` runs it"]
fn failures_are_detected_between_machines() {
    let machines = Machines::new(3);
    let run = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/failure-detection/run");
    let chosen = format!("a={},b={},c={}", address(0), address(1), address(2));
    let out = machines.path().join("out");
    let mut run = machines.program(0, run.to_str().expect("plain"));
    must(run.args(["--quick", "--machines", &chosen, "--out"]).arg(&out));
    let report = std::fs::read_to_string(out.join("report.md")).expect("there is a report");
    let said = |row: &str| report.lines().find(|line| line.starts_with(row)).unwrap_or_default().to_owned();
    // soft, then hard: nothing tells of a machine without power.
    for row in ["| Open MPI, by the agent | detected, aborted after", "| Open MPI, by ssh | detected, aborted after"] {
        assert!(said(row).ends_with("| **not** detected, hangs beyond 20 s |"), "{report}");
    }
    assert_eq!(machines.remains(), [""; 0]);
}

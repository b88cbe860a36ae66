//! Labs over several machines, each with its own network, folders and ssh server.

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use common::machines::Machines;
use common::{await_that, told};

/// Whether a ping gets from a node to an address, asked on a machine.
fn pings(machines: &Machines, machine: usize, lab: &str, from: &str, to: &str) -> bool {
    let mut ping = machines.slipway(machine, ["exec", lab, from, "--", "ping", "-q", "-c1", "-W2", to]);
    ping.stdout(Stdio::null()).status().expect("slipway can be started").success()
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_lab_lives_on_three_machines_and_leaves_nothing() {
    let machines = Machines::new(3);
    let file =
        machines.file("wide", "networks: {net: vxlan, wire: bridge}\nnodes: {n: {count: 6, networks: [net, wire]}}\n");
    let said = machines.run(0, ["up".as_ref(), file.as_os_str()]);
    assert!(said.contains("lab wide is up") && said.contains("6 nodes on 3 hosts"), "{said}");

    let nodes: serde_json::Value = serde_json::from_str(&machines.run(1, ["--json", "ps", "wide"])).expect("JSON");
    let places: Vec<_> = nodes["nodes"].as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(places, ["a", "b", "c", "a", "b", "c"], "whichever machine is asked");

    for (from, to) in [("n1", "n2"), ("n2", "n3.wire"), ("n6", "n4.wire"), ("n5", "n3"), ("n1", "n4")] {
        assert!(pings(&machines, 0, "wide", from, to), "{from} to {to}");
    }
    // A program on another machine: its words, its input, its exit code.
    let words = ["exec", "--env", "WORD=a  b", "--workdir", "/tmp", "wide", "n3", "--", "sh", "-c"];
    let script = "echo \"$WORD $(pwd) $(hostname)\"; exit 7";
    let output = machines.slipway(0, words.into_iter().chain([script])).output().expect("slipway can be started");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"a  b /tmp n3\n"[..]),
        "{}",
        told(&output)
    );

    machines.run(2, ["kill", "wide", "n2", "--how", "hard"]);
    let status = |node: &str| {
        let nodes: serde_json::Value = serde_json::from_str(&machines.run(0, ["--json", "ps", "wide"])).expect("JSON");
        let found = nodes["nodes"].as_array().unwrap().iter().find(|one| one["name"] == node).unwrap().clone();
        found["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status("n2"), "dead");
    machines.run(0, ["start", "wide", "n2"]);
    assert!(pings(&machines, 0, "wide", "n1", "n2"));
    machines.run(0, ["freeze", "wide", "n6"]);
    assert_eq!((status("n6"), status("n5")), ("frozen".into(), "running".into()));
    machines.run(1, ["thaw", "wide", "n6"]);

    machines.run(0, ["stop", "wide", "n2,n4"]);
    assert_eq!((status("n2"), status("n4"), status("n5")), ("stopped".into(), "stopped".into(), "running".into()));
    machines.run(2, ["start", "wide", "n2,n4"]);

    machines.run(0, ["partition", "wide", "n1,n2", "rest"]);
    assert!(pings(&machines, 0, "wide", "n1", "n2") && !pings(&machines, 0, "wide", "n3", "n2"));
    assert!(pings(&machines, 2, "wide", "n3", "n5"), "within the rest");
    machines.run(2, ["join", "wide"]);
    machines.run(0, ["cut", "wide", "n3"]);
    assert!(!pings(&machines, 0, "wide", "n1", "n3"));
    machines.run(1, ["heal", "wide", "n3"]);
    machines.run(0, ["set", "wide", "n3", "delay=30ms"]);
    let rtt = machines.run(0, ["exec", "wide", "n1", "--", "ping", "-q", "-c1", "n3"]);
    let least: f64 = rtt.rsplit("= ").next().unwrap().split('/').next().unwrap().parse().expect("a time");
    assert!(least >= 30.0, "a condition that was set on one machine holds on another: {rtt}");

    machines.run(1, ["down", "wide"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn every_driver_reaches_other_machines() {
    let machines = Machines::new(3);
    for driver in ["host", "ovs", "macvlan", "fast"] {
        let file = machines.file(driver, &format!("networks: {{net: {driver}}}\nnodes: {{n: {{count: 4}}}}\n"));
        machines.run(0, ["up".as_ref(), file.as_os_str()]);
        assert!(pings(&machines, 0, driver, "n1", "n2") && pings(&machines, 0, driver, "n3", "n4"), "{driver}");
        if driver == "fast" {
            carries_streams(&machines, driver);
        }
        machines.run(2, ["down", driver]);
        assert_eq!(machines.remains(), [""; 0], "{driver}");
    }
}

/// The fast path carries streams between machines: their routers have one secret.
fn carries_streams(machines: &Machines, lab: &str) {
    let mut server = machines.slipway(1, ["exec", lab, "n2", "--", "iperf3", "-s", "-1"]);
    let mut server = server.stdout(Stdio::null()).spawn().expect("slipway can be started");
    await_that("the server listens", || {
        !machines.run(1, ["exec", lab, "n2", "--", "ss", "-Hltn", "sport", "=", "5201"]).is_empty()
    });
    machines.run(0, ["exec", lab, "n1", "--", "iperf3", "-c", "n2", "-n", "1M"]);
    assert!(server.wait().expect("it ends").success());
    let status = machines.run(0, ["fast", "status", lab]);
    assert!(status.contains(", 2 by TCP"), "control and data: {status}");
}

#[test]
fn one_machine_that_cannot_undoes_the_lab_on_all() {
    let machines = Machines::new(3);
    // A folder that machine b lacks: /run is each machine's own.
    for machine in [0, 2] {
        succeeds(machines.program(machine, "mkdir").arg("/run/data"));
    }
    let file = machines.file("torn", "nodes: {n: {count: 3, mounts: [/run/data:/data]}}\n");
    let said = machines.fails(0, 1, ["up".as_ref(), file.as_os_str()]);
    assert!(said.contains("on machine b") && said.contains("/run/data"), "{said}");
    assert!(!said.contains("on machine a") && !said.contains("on machine c"), "{said}");
    assert_eq!(machines.remains(), [""; 0]);

    machines.plug(1, false);
    let said = machines.fails(0, 3, ["up".as_ref(), file.as_os_str()]);
    assert!(said.contains("reach machine b") && said.contains("Hint: try `ssh"), "{said}");
    assert_eq!(machines.remains(), [""; 0], "nothing was begun anywhere");
}

#[test]
fn a_coordinator_that_is_killed_leaves_nothing() {
    let machines = Machines::new(2);
    let file = machines.file("gone", "nodes: {n: {count: 40}}\n");
    // The parts hear of it by the end of their input, whatever they were at.
    for moment in [20, 60, 120, 250] {
        let mut up = machines.slipway(0, ["up".as_ref(), file.as_os_str()]);
        let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slipway can be started");
        std::thread::sleep(std::time::Duration::from_millis(moment));
        up.kill().expect("it can be killed");
        if up.wait().expect("it ends").success() {
            machines.run(1, ["down", "gone"]);
        }
        await_that("the parts of a killed coordinator are down", || machines.remains().is_empty());
    }
}

#[test]
fn machines_are_chosen_where_the_lab_is_brought_up() {
    let machines = Machines::new(2);
    let file = machines.path().join("open.yaml");
    std::fs::write(&file, "lab: open\nnetworks: {net: vxlan}\nnodes: {n: {count: 2}}\n").expect("written");
    let named = format!("a={},b={}", common::machines::address(0), common::machines::address(1));
    machines.run(0, ["up".as_ref(), "--machines".as_ref(), named.as_ref(), file.as_os_str()]);
    assert!(pings(&machines, 0, "open", "n1", "n2"));
    machines.run(1, ["down", "open"]);

    let hosts = machines.path().join("hosts.txt");
    let (a, b) = (common::machines::address(0), common::machines::address(1));
    std::fs::write(&hosts, format!("a slots=2 address={a}\nb slots=1 address={b}\n")).expect("written");
    let up =
        |file: &std::path::Path| ["up".into(), "--machines-from".into(), hosts.clone().into_os_string(), file.into()];
    machines.run(0, up(&file));
    machines.run(0, ["down", "open"]);
    std::fs::write(&file, "lab: open\nnodes: {n: {count: 4, cpu: 1 core}}\n").expect("written");
    let error = machines.fails(0, 2, up(&file));
    assert!(error.contains("no machine has room for node `n4`"), "{error}");
    let words = ["up".as_ref(), "--machines".as_ref(), "n[1-".as_ref(), file.as_os_str()];
    assert!(machines.fails(0, 2, words).contains("a bracket is not closed"));
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_machine_that_was_away_is_taken_down_when_it_is_back() {
    let machines = Machines::new(3);
    let file = machines.file("away", "nodes:\n  n: {count: 3}\n");
    machines.run(0, ["up", "--quiet", file.to_str().expect("plain")]);
    machines.plug(1, false);
    let said = machines.fails(0, 1, ["down", "away"]);
    assert!(said.contains("reach machine b") && said.contains("down --all` on this machine tries again"), "{said}");
    // Only what cannot be reached is left, and the note of it.
    let left = machines.remains();
    assert!(left.iter().all(|line| line.starts_with("b: ") || line == "a: .away"), "{left:?}");
    // It is still away.
    assert!(machines.fails(0, 1, ["down", "--all"]).contains("reach machine b"));
    machines.plug(1, true);
    assert!(machines.run(0, ["down", "--all"]).contains("lab away"));
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());
    assert_eq!(machines.run(0, ["down", "--all"]), "no lab is up: nothing to remove\n");
}

#[test]
fn a_policy_holds_on_all_machines_and_nodes_are_inspected_where_they_are() {
    let machines = Machines::new(3);
    let file = machines.file("rules", "networks: {net: fast}\nnodes:\n  n: {count: 3}\n");
    machines.run(0, ["up", "--quiet", file.to_str().expect("plain")]);
    let serve = "import socket\ns = socket.create_server(('', 5000))\nprint('listens', flush=True)\nwhile True: s.accept()[0].sendall(b'x')";
    let mut server = machines.slipway(2, ["exec", "rules", "n3", "--", "python3", "-c", serve]);
    let mut server = server.stdout(Stdio::piped()).spawn().expect("slipway runs");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).expect("read");
    assert_eq!(line, "listens\n");
    let ask = "import socket; print(socket.create_connection(('n3', 5000), 5).recv(1))";
    let attempt = |machine| machines.slipway(machine, ["exec", "rules", "n1", "--", "python3", "-c", ask]).output();
    assert_eq!(told(&attempt(0).expect("runs")).matches("b'x'").count(), 1);

    let rules = machines.path().join("closed.yaml");
    std::fs::write(&rules, "- {name: closed, to: n3, verdict: deny}\n").expect("written");
    // From a machine that has neither of the two nodes.
    machines.run(1, ["policy", "rules", rules.to_str().expect("plain")]);
    for machine in 0..3 {
        assert!(machines.run(machine, ["policy", "rules"]).contains("closed"), "machine {machine}");
    }
    assert!(!attempt(0).expect("runs").status.success());

    let inspected: serde_json::Value =
        serde_json::from_str(&machines.run(0, ["--json", "inspect", "rules", "n3"])).expect("JSON");
    assert_eq!(
        (inspected["node"]["name"].as_str(), inspected["now"]["status"].as_str()),
        (Some("n3"), Some("running"))
    );
    machines.run(0, ["down", "--quiet", "rules"]);
    let _ = server.wait();
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());
}

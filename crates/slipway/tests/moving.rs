//! Nodes that move to other virtual hosts and are found again under their addresses, through the command itself.

mod common;

use std::process::Stdio;

use common::{Inventory, Lab, Place, as_before, await_that, told};

/// Host `far` has none of the networks at first, and `wire` is on one host alone.
const LAB: &str = "
hosts: [near, next, far]
networks: {over: vxlan, wire: bridge}
nodes:
  a: {host: near, networks: [over, wire]}
  b: {host: next, networks: [over]}
  m:
    host: near
    networks: {over: , wire: {conditions: {loss: 100%}}}
    memory: 64MiB
";

/// Whether each node answers each on `over`.
#[track_caller]
fn all_meet(lab: &Lab<'_>, context: &str) {
    for from in ["a", "b", "m"] {
        for to in ["a", "b", "m", "ip6-a", "ip6-b", "ip6-m"] {
            assert!(lab.pings(from, to), "{from} to {to}, {context}");
        }
    }
}

/// The host that a node is on, as the lab's record has it.
fn host(lab: &Lab<'_>, node: &str) -> String {
    lab.row(node)["host"].as_str().expect("a name").to_owned()
}

#[test]
fn a_node_keeps_its_addresses_files_limits_and_conditions() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("moving", LAB);
    all_meet(&lab, "before");
    lab.exec("m", ["sh", "-c", "echo kept > /root/file; echo kept > /scratch/file"]);
    let interface = lab.interface("m", 0);
    assert!(!lab.program("a", ["ping", "-q", "-c1", "-W1", "m.wire"]).output().expect("started").status.success());
    for to in ["far", "near", "far", "next"] {
        let name = format!("{}:m", lab.name);
        let from = host(&lab, "m");
        let answer = place.json(["move", &name, "--to", to, "--stop", "--grace", "0s"]);
        assert_eq!((&answer["moved"][0]["from"], &answer["moved"][0]["restarted"]), (&from.into(), &true.into()));
        assert_eq!(host(&lab, "m"), to);
        all_meet(&lab, to);
        assert_eq!(lab.exec("m", ["cat", "/root/file", "/scratch/file"]), "kept\nkept\n");
        assert_eq!(lab.interface("m", 0), interface);
    }
    // Its link loses every packet still, and without that it is found on the other network too.
    let on_wire =
        || lab.program("a", ["ping", "-q", "-c1", "-W1", "m.wire"]).output().expect("started").status.success();
    assert!(!on_wire());
    place.run(["set", &lab.name, "m:eth1", "loss=none"]);
    assert!(lab.pings("a", "m.wire") && lab.pings("m", "a.wire"), "over a wire that was laid for it");
    let shown = place.json(["inspect", &lab.name, "m"]);
    assert_eq!((&shown["node"]["limits"]["memory"], &shown["host"]["name"]), (&"64MiB".into(), &"next".into()));
    assert!(place.run(["export", &lab.name]).contains("host: next"));
    drop(lab);
    place.run(["down", &place.name("moving")]);
    as_before(&place, &before, "after nodes moved");
}

#[test]
fn what_cannot_move_stays_and_says_why() {
    let place = Place::new();
    let text = "
hosts: {one: {cpus: \"0\"}, two: {cpus: \"1\"}, three: {}}
networks: {net: vxlan, shared: host}
nodes:
  a: {host: one, networks: [net]}
  h: {host: one, networks: [shared]}
  c: {host: three, networks: [net]}
";
    let lab = place.up("staying", text);
    let told = place.fails(1, ["move", &lab.name, "a", "--to", "three"]);
    assert!(told.contains("it runs") && told.contains("--stop"), "{told}");
    let told = place.fails(4, ["move", &lab.name, "a", "--to", "thre"]);
    assert!(told.contains("did you mean `three`?"), "{told}");
    assert!(place.fails(4, ["move", &lab.name, "z", "--to", "one"]).contains("Hint"));
    let told = place.fails(1, ["move", &lab.name, "h", "--to", "two", "--stop", "--grace", "0s"]);
    assert!(told.contains("its host's own network"), "{told}");
    let told = place.fails(1, ["move", &lab.name, "a", "--to", "two", "--stop", "--grace", "0s"]);
    assert!(told.contains("processors 1 alone") && told.contains("uses 0"), "{told}");
    assert_eq!((host(&lab, "a"), host(&lab, "h")), ("one".to_owned(), "one".to_owned()));
    // They run again where they were.
    assert!(lab.pings("c", "a"));
    assert_eq!(lab.row("h")["status"], "running");
    let plan = place.run(["move", &lab.name, "a,c", "--to", "three", "--stop", "--dry-run"]);
    assert!(plan.contains("would move a") && plan.contains("unchanged: c"), "{plan}");
    place.run(["stop", &lab.name, "a", "--grace", "0s"]);
    place.run(["move", &lab.name, "a", "--to", "three"]);
    assert_eq!(lab.row("a")["status"], "stopped");
    place.run(["start", &lab.name, "a"]);
    assert!(lab.pings("c", "a") && lab.pings("a", "c"));
}

/// A database that is moved has its data under the same address, for clients over a fast network. Connections of others go on.
#[test]
fn a_database_on_a_fast_network_moves_with_its_data() {
    let place = Place::new();
    let server =
        "command: [redis-server, --dir, /root, --save, '', --appendonly, 'yes', --protected-mode, 'no', --bind, '*']";
    let text = format!(
        "hosts: 3\nnetworks: {{net: fast}}\nnodes:\n  db:\n    host: host1\n    {server}\n  a: {{host: host1}}\n  b: {{host: host2}}\n"
    );
    let lab = place.up("database", &text);
    let ask = |node: &str, words: &[&str]| {
        let words: Vec<&str> = ["redis-cli", "-h", "db"].into_iter().chain(words.iter().copied()).collect();
        let output = lab.program(node, words).output().expect("started");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_ready = |node: &str| await_that("the database serves", || ask(node, &["ping"]).as_deref() == Some("PONG"));
    is_ready("a");
    assert_eq!(ask("b", &["set", "key", "value"]).as_deref(), Some("OK"));
    // One connection between the two others, which lives through all moves.
    let listen =
        "import socket; c = socket.create_server(('', 5000)).accept()[0]; c.sendall(c.recv(9) + b'!'); c.recv(1)";
    let mut listener = lab.program("a", ["python3", "-c", listen]).stdin(Stdio::null()).spawn().expect("started");
    lab.listens("a", 5000);
    let talk = "import socket, sys; c = socket.create_connection(('a', 5000)); print('there', flush=True); \
                sys.stdin.readline(); c.sendall(b'still'); print(c.recv(9).decode())";
    let mut talker = lab
        .program("b", ["python3", "-c", talk])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = std::io::BufReader::new(talker.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("it is connected");
    for to in ["host2", "host3", "host1"] {
        place.run(["move", &lab.name, "db", "--to", to, "--stop"]);
        // None was refused by another that did not run yet: it would pause, and its node's connections take the network.
        for router in lab.routers() {
            let peers = router["status"]["peers"].as_array().expect("a list").clone();
            assert!(peers.iter().all(|peer| peer["trouble"].is_null()), "{router}");
        }
        for node in ["a", "b"] {
            is_ready(node);
            let begun = lab.connections();
            assert_eq!(ask(node, &["get", "key"]).as_deref(), Some("value"), "{node} to {to}");
            assert!(lab.connections() > begun, "{node} reaches {to} by the fast path");
        }
        assert!(ask("db", &["ping"]).is_some(), "the moved node reaches itself by its name");
    }
    std::io::Write::write_all(&mut talker.stdin.take().expect("piped"), b"\n").expect("written");
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).expect("it says");
    assert_eq!(line.trim(), "still!", "a connection of others goes on");
    let _ = (talker.wait(), listener.wait());
    let output = place.slipway(["fast", "explain", &lab.name, "a", "db"]).output().expect("started");
    assert!(output.status.code() != Some(101), "{}", told(&output));
}

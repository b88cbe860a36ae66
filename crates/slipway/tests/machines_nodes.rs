//! Output, restoring and moving of nodes on several machines.

mod common;

use common::machines::Machines;

#[test]
fn output_of_all_machines_is_read_and_all_are_restored() {
    let machines = Machines::new(3);
    let node = "{command: [sh, -c, 'echo hello from $(hostname); exec sleep infinity']}";
    let file =
        machines.file("logs", &format!("networks: {{net: vxlan}}\nnodes: {{a: {node}, b: {node}, c: {node}}}\n"));
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    common::await_that("the node has said something", || {
        machines.run(0, ["logs", "logs", "c"]).contains("hello from c")
    });

    let pings = |machine: usize, from: &str, to: &str| {
        let mut ping = machines.slipway(machine, ["exec", "logs", from, "--", "ping", "-q", "-c1", "-W2", to]);
        ping.output().expect("slipway can be started").status.success()
    };
    machines.run(0, ["cut", "logs", "b", "c"]);
    machines.run(0, ["freeze", "logs", "a"]);
    machines.run(1, ["kill", "logs", "c", "--how", "hard"]);
    let said = machines.run(1, ["--json", "restore", "logs", "--nodes"]);
    let restored: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&restored["thawed"], &restored["started"]), (&serde_json::json!(["a"]), &serde_json::json!(["c"])));
    assert!(pings(0, "a", "c") && pings(1, "b", "c"));
    machines.run(2, ["down", "logs"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn a_node_moves_between_hosts_of_its_machine_and_others_find_it() {
    let machines = Machines::new(3);
    let hosts = "hosts: {one: {machine: a}, two: {machine: a}, three: {machine: b}, four: {machine: c}}\n";
    let node = |host: &str| format!("{{host: {host}, networks: [net, wire, quick]}}");
    let nodes = format!("{{m: {}, x: {}, y: {}, z: {}}}", node("one"), node("three"), node("four"), node("two"));
    let text = format!("{hosts}networks: {{net: vxlan, wire: bridge, quick: fast}}\nnodes: {nodes}\n");
    let file = machines.file("moving", &text);
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let pings = |from: &str, to: &str| {
        let mut ping = machines.slipway(1, ["exec", "moving", from, "--", "ping", "-q", "-c1", "-W2", to]);
        ping.output().expect("slipway can be started").status.success()
    };
    let reach = || {
        for network in ["net", "wire", "quick"] {
            for (from, to) in [("x", "m"), ("m", "y"), ("z", "m")] {
                assert!(pings(from, &format!("{to}.{network}")), "{from} to {to} over {network}");
            }
        }
    };
    reach();
    // Given on another machine than the node's.
    let said = machines.run(2, ["move", "moving", "m", "--to", "two", "--stop", "--grace", "1s"]);
    assert!(said.contains("moved m of lab moving from one to two"), "{said}");
    reach();
    let said = machines.fails(0, 1, ["move", "moving", "m", "--to", "three", "--stop", "--grace", "1s"]);
    assert!(said.contains("host three is on another machine"), "{said}");
    assert!(pings("x", "m"), "it runs on");
    machines.run(1, ["down", "moving"]);
    assert_eq!(machines.remains(), [""; 0]);
}

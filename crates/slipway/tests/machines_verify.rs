//! Links of a lab over several machines, measured from end to end.

mod common;

use common::machines::Machines;
use common::told;
use serde_json::Value;

/// Verifies, and gives the checked paths. Whether all is as asked depends on the machine's load.
#[track_caller]
fn verify(machines: &Machines, machine: usize, words: &[&str]) -> Vec<Value> {
    let output =
        machines.slipway(machine, [&["--json", "verify", "paths"], words].concat()).output().expect("it starts");
    assert!(output.status.code().is_some_and(|code| code <= 1), "{}", told(&output));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
    checked.as_array().expect("a list").clone()
}

fn check<'a>(path: &'a Value, what: &str) -> &'a Value {
    path["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["what"] == what)
        .unwrap_or_else(|| panic!("{what}: {path:#}"))
}

fn measured(path: &Value, what: &str) -> f64 {
    check(path, what)["measured"].as_f64().expect("a number")
}

#[test]
fn paths_between_machines_are_measured() {
    let machines = Machines::new(3);
    let file = machines.file("paths", "networks: {net: vxlan}\nnodes: {n: {count: 4}}\n");
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    machines.run(0, ["set", "paths", "n1", "delay=40ms"]);
    machines.run(0, ["set", "paths", "n2", "loss=100%"]);
    machines.run(0, ["set", "paths", "n4", "rate=5mbit"]);
    // Between a and c, from b to a, and within a; told by machine b, whose nodes have an end of one alone.
    let paths = verify(&machines, 1, &["--packets", "100", "n1->n3", "n2->n1", "n4->n1", "n3->n4"]);
    assert_eq!(paths.len(), 4);
    let [far, lost, near, back] = paths.as_slice() else { panic!("{paths:#?}") };
    for path in [far, near] {
        assert!(measured(path, "loss") <= 0.0, "{path:#}");
    }
    assert!((0.035..0.2).contains(&measured(far, "delay")), "the clocks' difference is taken off: {far:#}");
    assert!(measured(lost, "loss") >= 1.0, "{lost:#}");
    assert!((4e6..6e6).contains(&measured(near, "rate")), "{near:#}");
    assert!(back["delays"]["median"].as_f64().expect("a delay") < 0.02, "nothing is asked of it: {back:#}");

    // A dead node has no paths, on whatever machine it is.
    machines.run(0, ["kill", "paths", "n3", "--how", "hard"]);
    let all = verify(&machines, 0, &["--packets", "10", "--time", "1s"]);
    assert!(all.len() == 6 && all.iter().all(|path| path["from"] != "n3" && path["to"] != "n3"), "{all:#?}");
    // So does a scenario that measures its links first, and its log has the result.
    let scenario = machines.path().join("calm.yaml");
    std::fs::write(&scenario, "events:\n  - {at: 100ms, freeze: n1, for: 100ms}\n").expect("written");
    let out = machines.path().join("out");
    let mut play = machines.slipway(0, ["play", "--quiet", "--verify=1s", "paths"]);
    common::machines::must(play.arg(&scenario).arg("--out").arg(&out));
    let log = std::fs::read_to_string(out.join("events.jsonl")).expect("there is a log");
    let begin: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert!(begin["checks"].as_array().is_some_and(|checks| checks.len() == 6), "{begin:#}");

    machines.run(0, ["down", "paths"]);
    assert_eq!(machines.remains(), [""; 0]);
}

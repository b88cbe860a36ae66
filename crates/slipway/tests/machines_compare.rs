//! A comparison of drivers on a lab over several machines.

mod common;

use common::machines::{Machines, address, must};
use serde_json::Value;

#[test]
fn drivers_are_compared_between_machines() {
    let machines = Machines::new(3);
    let job = "job: {command: hostname}\n";
    let text = format!("networks: {{net: vxlan}}\nnodes: {{n: {{count: 3}}}}\n{job}");
    let file = machines.file("which", &text);
    let out = machines.path().join("out");
    let words =
        ["--json", "compare", "--drivers", "vxlan,fast,macvlan,bridge", "--jobs", "iperf3,job", "--streams", "1"];
    let mut command = machines.slipway(1, words);
    command.args(["--time", "1s", "--repeat", "1", "--warm-up", "0", "--out"]).arg(&out).arg(&file);
    let said = String::from_utf8(must(&mut command).stdout).expect("UTF-8");
    let summary: Value = serde_json::from_str(&said).expect("JSON");
    assert!(summary["figures"].as_array().is_some_and(|figures| figures.len() >= 2), "{said}");
    let records = std::fs::read_to_string(out.join("records.jsonl")).expect("there are records");
    for driver in ["vxlan", "fast", "macvlan", "bridge"] {
        let of = |line: &&str| line.contains(&format!("\"driver\":\"{driver}\"")) && line.contains("\"samples\":[{");
        assert_eq!(records.lines().filter(of).count(), 2, "{driver}: {records}");
    }
    assert_eq!(machines.remains(), [""; 0]);

    let far = machines.fails(0, 2, ["compare".as_ref(), "--client".as_ref(), "n2".as_ref(), file.as_os_str()]);
    assert!(far.contains("it is on machine b"), "{far}");
}

#[test]
fn conditions_and_a_scenario_reach_all_machines_in_a_comparison() {
    let machines = Machines::new(2);
    let text = "\
networks: {net: vxlan}
nodes: {n: {count: 4, cpu: 1 core}}
scenario:
  length: 100ms
  events:
    - {at: 0s, freeze: n2, for: 50ms}
    - {at: 10ms, kill: n4, how: hard}
    - {at: 20ms, set: {delay: 1ms}, nodes: 'n*'}
";
    let file = machines.file("held", text);
    let compare = |name: &str, words: &[&str]| -> (Value, Vec<Value>) {
        let out = machines.path().join(name);
        let mut command = machines.slipway(0, ["--json", "compare", "--drivers", "vxlan", "--jobs", "ping"]);
        command.args(["--warm-up", "0", "--verify=0s"]).args(words).arg("--out").arg(&out).arg(&file);
        let said = String::from_utf8(must(&mut command).stdout).expect("UTF-8");
        let records = std::fs::read_to_string(out.join("records.jsonl")).expect("there are records");
        let records = records.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (serde_json::from_str(&said).expect("JSON"), records)
    };
    // 100 ms at each end: a round trip that only one machine delayed takes half.
    let (summary, records) =
        compare("under", &["--repeat", "1", "--under", "as it is:", "--under", "far: delay=100ms cpu=50%"]);
    let middle = |under: &str| -> f64 {
        let of = |row: &&Value| row["driver"].as_str().is_some_and(|name| name.contains(under));
        let rows = summary["figures"][0]["rows"].as_array().expect("rows");
        rows.iter()
            .find(of)
            .and_then(|row| row["value"]["median"].as_f64())
            .unwrap_or_else(|| panic!("{under}: {summary:#}"))
    };
    assert!(middle("far") - middle("as it is") > 190.0, "{summary:#} {records:#?}");

    // Between two rounds, a node that was killed on the other machine is started.
    let (_, records) = compare("scenario", &["--repeat", "2", "--scenario"]);
    let played: Vec<&Vec<Value>> = records.iter().filter_map(|record| record["played"].as_array()).collect();
    assert_eq!(played.len(), 2, "{records:#?}");
    for lines in played {
        let done = lines.iter().filter(|line| line["type"] == "event" && line["outcome"] == "done").count();
        assert_eq!(done, 4, "{lines:#?}");
    }
    assert_eq!(machines.remains(), [""; 0]);
}

/// The comparison of Gankevich et al. (CSIT 2015): OpenFOAM's dam break on the networks between machines.
#[test]
#[ignore = "takes minutes, and OpenFOAM is large; `make test-long` runs it"]
fn a_dam_breaks_on_each_network_between_machines() {
    let machines = Machines::new(3);
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/openfoam-dambreak");
    // All machines see this folder.
    let here = machines.path().join("dambreak");
    std::fs::create_dir(&here).expect("made");
    for file in ["run.sh", "lab.yaml"] {
        common::copy_program(example.join(file), &here.join(file));
    }
    let chosen = format!("a={},b={}", address(0), address(1));
    let mut run = machines.program(0, here.join("run.sh").to_str().expect("plain"));
    run.args(["compare", "--machines", &chosen, "--drivers", "host,bridge,macvlan,fast", "--jobs", "job"]);
    let said = must(run.args(["--repeat", "1", "--warm-up", "0"])).stdout;
    let said = String::from_utf8_lossy(&said);
    for driver in ["host", "bridge", "macvlan", "fast"] {
        assert!(said.contains(driver), "{said}");
    }
    assert_eq!(machines.remains(), [""; 0]);
}

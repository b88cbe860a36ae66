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
    let mut under = machines.slipway(0, ["compare", "--drivers", "vxlan", "--under", "delay=5ms"]);
    let output = under.arg(&file).output().expect("slipway can be started");
    assert!(!output.status.success() && common::told(&output).contains("that is not there yet"), "{output:?}");
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

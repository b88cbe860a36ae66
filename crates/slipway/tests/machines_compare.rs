//! A comparison of drivers on a lab over several machines.

mod common;

use common::machines::Machines;
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
    let said = String::from_utf8(common::machines::must(&mut command).stdout).expect("UTF-8");
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

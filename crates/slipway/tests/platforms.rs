//! Platform files at the front door: what is imported runs, what runs is exported and runs again.

mod common;

use std::path::{Path, PathBuf};

use common::Place;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../slipway-platform/tests/platform").join(name)
}

/// The least round trip of a few pings, in milliseconds.
fn round_trip(place: &Place, lab: &str, from: &str, to: &str) -> f64 {
    let said = place.run(["exec", lab, from, "--", "ping", "-c3", "-i0.2", "-q", to]);
    let line = said.lines().find(|line| line.contains("min/avg/max")).unwrap_or_else(|| panic!("{said}"));
    let least = line.split(" = ").nth(1).and_then(|times| times.split('/').next());
    least.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// A lab that was brought up by its file alone; dropped, it goes down.
struct Up<'p>(&'p Place, String);

impl<'p> Up<'p> {
    fn new(place: &'p Place, file: &Path) -> Self {
        let file = file.to_str().expect("a name of the test's own");
        let name = place.json(["export", file])["lab"].as_str().expect("a name").to_owned();
        place.run(["up", file]);
        Self(place, name)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let _ = self.0.slipway(["down", &self.1]).output();
    }
}

/// Gives an imported lab a name that no other test has.
fn renamed(place: &Place, file: &Path, name: &str) {
    let text = std::fs::read_to_string(file).expect("it was written");
    let line = text.lines().find(|line| line.starts_with("lab: ")).expect("it has a name").to_owned();
    std::fs::write(file, text.replace(&line, &format!("lab: {}", place.name(name)))).expect("it can be written");
}

#[test]
fn an_imported_platform_runs_with_its_delays() {
    let place = Place::new();
    let lab = place.path().join("lab.yaml");
    let imported =
        place.json(["import", fixture("zones.xml").to_str().expect("UTF-8"), "-o", lab.to_str().expect("UTF-8")]);
    assert!(!imported["lost"].as_array().expect("a list").is_empty());
    renamed(&place, &lab, "zones");
    let up = Up::new(&place, &lab);
    // p1-l, wan, wan2 and l2's own link, there and back; 7.1 ms each way between the laptop and p1.
    assert!(round_trip(&place, &up.1, "p1", "l2") >= 2.0 * 15.3);
    assert!(round_trip(&place, &up.1, "laptop", "p1") >= 2.0 * 7.1);
}

#[test]
fn a_platform_of_distem_runs() {
    let place = Place::new();
    let text = std::fs::read_to_string(fixture("two-networks.json")).expect("the fixture is there");
    let platform = place.path().join("saved.json");
    // This machine's root instead of an image that is not here.
    let text = text.replace("file:///srv/images/debian.tar.gz", "http://example.org/debian.tar.gz");
    // No disk of that name has to be here.
    let text = text.replace(",\n                        \"disk_throttling\"", ",\n                        \"unread\"");
    std::fs::write(&platform, text).expect("it can be written");
    let lab = place.path().join("lab.yaml");
    place.run(["import", platform.to_str().expect("UTF-8"), "-o", lab.to_str().expect("UTF-8")]);
    renamed(&place, &lab, "distem");
    let up = Up::new(&place, &lab);
    // 5 ms on the way in; on the way out some of its packets are reordered, and those are not delayed.
    assert!(round_trip(&place, &up.1, "node1", "nodegw") >= 5.0);
    assert!(place.run(["exec", &up.1, "node-2", "--", "ping", "-c1", "10.144.2.1"]).contains("1 received"));
}

#[test]
fn a_running_lab_comes_back_as_it_was() {
    let place = Place::new();
    let text = "
nodes: {n: {count: 4, memory: 256MiB}, web: {networks: [net, other]}}
networks: {net: {conditions: {delay: 2ms}}, other: bridge}
links: [{between: [n1, n2], delay: 5ms, loss: 0.1%}]
job: {command: hostname, nodes: [n]}
";
    let lab = place.up("again", text);
    for change in [
        &["n3:eth0", "delay=8ms", "loss=0.5%"][..],
        &["web:eth1/ingress", "rate=10mbit"],
        &["n1->n2", "loss=none"],
        &["n2->web", "delay=3ms"],
        &["n4", "cpu=50%", "pids=200"],
    ] {
        place.run(["set", &lab.name].into_iter().chain(change.iter().copied()));
    }
    let file = place.path().join("saved.yaml");
    let shown = file.to_str().expect("UTF-8");
    place.run(["export", &lab.name, "-o", shown]);
    let before = links(&place, &lab.name);
    assert!(before.len() >= 5, "{before:?}");
    lab.down();

    let again = Up::new(&place, &file);
    assert_eq!(links(&place, &again.1), before);
    let saved = std::fs::read_to_string(&file).expect("it was written");
    assert_eq!(place.run(["export", &again.1]), saved, "and its own export is the same file");
    assert!(saved.contains("n4: {group: n, cpu: 0.5 core, memory: 256MiB, pids: 200}"), "{saved}");
    for (format, begin) in [("simgrid", "<?xml"), ("distem", "{\n  \"vplatform\"")] {
        let output = place.slipway(["export", &again.1, "--format", format]).output().expect("slipway runs");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(begin));
        assert!(String::from_utf8_lossy(&output.stderr).contains("lost: "), "what is lost is told");
    }
}

/// What holds at every interface, and between nodes.
fn links(place: &Place, lab: &str) -> Vec<Value> {
    let all = place.json(["inspect", lab]);
    let interfaces = all["links"]["interfaces"].as_array().expect("a list").clone();
    let what = |at: Value| {
        let of = |way: &str| serde_json::json!([at[way]["now"], at[way]["peers"]]);
        serde_json::json!([at["node"], at["slot"], of("egress"), of("ingress")])
    };
    interfaces.into_iter().map(what).collect()
}

#[test]
fn what_is_wrong_is_told_before_anything_is_written() {
    let place = Place::new();
    let lab = place.path().join("lab.yaml");
    let said =
        place.fails(2, ["import", fixture("wrong.xml").to_str().expect("UTF-8"), "-o", lab.to_str().expect("UTF-8")]);
    assert!(said.contains("did you mean `l`?"), "{said}");
    assert!(!lab.exists());
    let said = place.fails(2, ["import", "no-such.xml"]);
    assert!(said.contains("Hint: check the path"), "{said}");
}

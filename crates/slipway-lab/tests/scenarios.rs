//! Every file below `scenarios/wrong/` has its message under a snapshot, every file below `scenarios/right/` its schedule:
//! the same on every machine, or these tests fail there.

use std::path::Path;

use slipway_lab::model::Lab;
use slipway_lab::parse_scenario;
use slipway_lab::scenario::{Scenario, Schedule, Traces};

const LAB: &str = "
seed: 7
networks: {net: bridge, storage: vxlan, own: host}
nodes:
  n: {count: 8, networks: [net]}
  db: {count: 2, networks: [net, storage]}
  lonely: {networks: [own]}
";

fn lab() -> Lab {
    slipway_lab::parse("lab.yaml", LAB, Path::new("/labs")).unwrap_or_else(|errors| panic!("{}", errors.plain()))
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/right"))
}

/// The files that a scenario names, which lie beside it.
fn traces(scenario: &Scenario) -> Traces {
    let read = |path: &&Path| std::fs::read_to_string(folder().join(path.file_name().unwrap())).unwrap();
    scenario.files().iter().map(|path| ((*path).to_owned(), read(path))).collect()
}

fn parse_file(path: &Path) -> Result<Scenario, slipway_document::errors::DocumentErrors> {
    let text = std::fs::read_to_string(path).unwrap();
    parse_scenario(path.file_name().unwrap().to_str().unwrap(), &text, Path::new("/labs"), &lab())
}

#[test]
fn wrong_scenarios_say_what_is_wrong() {
    insta::glob!("scenarios/wrong/*.yaml", |path| {
        let errors = parse_file(path).expect_err("a file under tests/scenarios/wrong was accepted");
        insta::assert_snapshot!(errors.plain());
    });
}

#[test]
fn right_scenarios_have_their_schedule() {
    insta::glob!("scenarios/right/*.yaml", |path| {
        let scenario = parse_file(path).unwrap_or_else(|errors| panic!("{}", errors.plain()));
        let written = serde_json::to_string(&scenario).unwrap();
        let read: Scenario = serde_json::from_str(&written).unwrap();
        assert_eq!(read, scenario, "a saved scenario is the same");
        let lab = lab();
        let schedule = read.plan(&lab, None, &traces(&scenario)).unwrap();
        let json = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
        insta::assert_snapshot!(schedule.table(&lab));
    });
}

//! Labs written as lab files.

use std::path::{Path, PathBuf};

use slipway_lab::model::Lab;
use slipway_lab::{parse, platform, scenario};

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Files below a folder whose name ends like this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Lab {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    parse(name, &text, path.parent().unwrap()).unwrap_or_else(|errors| panic!("{}", errors.plain()))
}

/// What is written, known to read back equal.
fn written(lab: &Lab) -> String {
    let text = platform::to_slipway(lab, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&parse("other.yaml", &text, Path::new("/elsewhere")).unwrap(), lab, "{text}");
    text
}

#[test]
fn every_example_and_right_file_reads_back_equal() {
    let all = [files(&folder("../../examples"), "yaml"), files(&folder("tests/right"), "yaml")].concat();
    assert!(all.len() > 12);
    for path in all {
        written(&read(&path));
    }
}

#[test]
fn every_scenario_reads_back_equal() {
    let lab = "nodes: {n: {count: 8, networks: [net, storage]}, db: {count: 2, networks: [net, storage]}}
networks: {net: , storage: }";
    let mut lab = parse("lab.yaml", lab, Path::new("/labs")).unwrap();
    for path in files(&folder("tests/scenarios/right"), "yaml") {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = scenario::parse("scenario.yaml", &text, Path::new("/labs"), &lab);
        lab.scenario = Some(found.unwrap_or_else(|errors| panic!("{}", errors.plain())));
        written(&lab);
    }
}

#[test]
fn nothing_that_is_so_by_default_is_written() {
    let text = "lab: x\nnodes: {n: {count: 3}, web: {networks: [net]}}";
    let lab = parse("x.yaml", text, Path::new("/")).unwrap();
    assert_eq!(written(&lab), "lab: x\nnodes:\n  n: {count: 3}\n  web: {}\n");
}

#[test]
fn a_node_that_differs_stays_in_its_group() {
    let text = "nodes: {n: {count: 4, cpu: 50%}}\nnetworks: {net: {conditions: {delay: 20ms, loss: 1%}}}";
    let mut lab = parse("x.yaml", text, Path::new("/")).unwrap();
    let third = &mut lab.nodes[2];
    third.limits.cpu = Some("2 cores".parse().unwrap());
    third.interfaces[0].conditions.egress.loss = None;
    third.interfaces[0].conditions.ingress.rate = Some("10mbit".parse().unwrap());
    insta::assert_snapshot!(written(&lab), @r"
    lab: x
    networks:
      net: {conditions: {delay: 20ms, loss: 1%}}
    nodes:
      n: {count: 2, cpu: 0.5 core}
      n3: {group: n, networks: {net: {conditions: {loss: none, ingress: {rate: 10mbit}}}}, cpu: 2 cores}
      n4: {group: n, cpu: 0.5 core}
    ");
}

#[test]
fn comments_stand_at_the_top() {
    let lab = parse("x.yaml", "nodes: {a: }", Path::new("/")).unwrap();
    let text = platform::to_slipway(&lab, &["one\ntwo".to_owned()]).unwrap();
    assert!(text.starts_with("# one\n# two\nlab: x\n"));
}

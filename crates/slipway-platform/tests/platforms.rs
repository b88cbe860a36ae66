//! Labs written as lab files.

use std::path::{Path, PathBuf};

use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::{parse, parse_scenario};
use slipway_platform as platform;

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

/// The written text, which reads back equal.
fn written(lab: &Lab) -> String {
    let text = platform::to_slipway(lab, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&parse("other.yaml", &text, Path::new("/elsewhere")).unwrap(), lab, "{text}");
    text
}

#[test]
fn every_example_and_right_file_reads_back_equal() {
    let mut examples = files(&folder("../../examples"), "yaml");
    // Campaigns are no labs.
    examples.retain(|path| !path.starts_with(folder("../../examples/campaigns")));
    let all = [examples, files(&folder("../slipway-lab/tests/right"), "yaml")].concat();
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
    for path in files(&folder("../slipway-lab/tests/scenarios/right"), "yaml") {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = parse_scenario("scenario.yaml", &text, Path::new("/labs"), &lab);
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
    let third = &mut lab.nodes[NodeId(2)];
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

/// A platform file as a lab: the lab file, which is one, and the lab.
fn imported(file: &str) -> (platform::Platform, Lab) {
    let text = std::fs::read_to_string(folder("tests/platform").join(file)).unwrap();
    let found = platform::import(file, &text, "delays.csv").unwrap_or_else(|error| panic!("{error}"));
    let lab =
        parse("imported.yaml", &found.text, Path::new("/labs")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    (found, lab)
}

/// The conditions between two nodes that share a network: the delay in milliseconds, the rate in Mbit/s.
fn between(lab: &Lab, from: &str, to: &str) -> (f64, f64) {
    use slipway_lab::change::Keys;
    let (from, node) = lab.node(from).unwrap();
    let (to, receiver) = lab.node(to).unwrap();
    let (own, rules) = lab.egress_rules(&[], (from, 0));
    let held = rules.iter().find(|rule| rule.node == to).map_or_else(|| own.clone(), |rule| rule.conditions.over(own));
    let rates = [held.rate, node.interfaces[0].conditions.egress.rate, receiver.interfaces[0].conditions.ingress.rate];
    let rate = rates.into_iter().flatten().map(|rate| rate.0).min().unwrap();
    // To the nanosecond: sums of decimals are not quite those of binary numbers.
    (held.delay.map_or(0.0, |delay| (delay.0 * 1e9).round() / 1e6), rate as f64 / 1e6)
}

#[test]
fn platforms_become_labs() {
    for file in ["full.xml", "cluster.xml", "zones.xml", "two-networks.json"] {
        insta::assert_snapshot!(file, imported(file).0.text);
    }
}

#[test]
fn ways_are_those_of_simgrid() {
    let (_, full) = imported("full.xml");
    assert_eq!(between(&full, "alice", "bob"), (0.05, 1000.0));
    assert_eq!(between(&full, "alice", "carol-example-org"), (20.05, 10.0));
    assert_eq!(between(&full, "bob", "carol-example-org"), (1.0, 1000.0));
    assert_eq!(between(&full, "carol-example-org", "bob"), (20.0, 10.0));
    let (_, cluster) = imported("cluster.xml");
    assert_eq!(cluster.nodes.len(), 8);
    // Own link, backbone, the other's own link.
    assert_eq!(between(&cluster, "node-0-acme-org", "node-11-acme-org"), (0.6, 1000.0));
    let (_, zones) = imported("zones.xml");
    assert_eq!(between(&zones, "p1", "p2"), (0.2, 100.0));
    // p1-l, wan, wan2, the member's own link.
    assert_eq!(between(&zones, "p1", "l2"), (15.3, 50.0));
    assert_eq!(between(&zones, "l1", "l3"), (0.4, 1000.0));
    assert_eq!(between(&zones, "laptop", "p2"), (7.1, 20.0));
}

#[test]
fn what_has_no_counterpart_is_named() {
    let (found, _) = imported("full.xml");
    for lost in ["<prop> of a host (line 8)", "sharing_policy FATPIPE"] {
        assert!(found.lost.iter().any(|line| line.starts_with(lost)), "{lost}: {:?}", found.lost);
        assert!(found.text.contains(&format!("# - {lost}")));
    }
    let (found, _) = imported("two-networks.json");
    for lost in ["pnodes", "ssh_key of a vnode", "the image http://example.org/rootfs.tar.gz"] {
        assert!(found.lost.iter().any(|line| line.starts_with(lost)), "{lost}: {:?}", found.lost);
    }
}

#[test]
fn wrong_platforms_say_what_is_wrong() {
    for file in ["wrong.xml", "wrong.json"] {
        let text = std::fs::read_to_string(folder("tests/platform").join(file)).unwrap();
        insta::assert_snapshot!(file, platform::import(file, &text, "d.csv").unwrap_err().to_string());
    }
    let texts = [
        "",
        "<platform version='4.1'>",
        "<platform version='3'/>",
        "<platform version='4'/>",
        "<html/>",
        "<!DOCTYPE p [<!ENTITY a \"b\">]><platform version='4'/>",
        "{",
        "{}",
        "[]",
        "nodes: {a: }",
    ];
    let said: Vec<String> =
        texts.iter().map(|text| format!("{text}\n{}\n", platform::import("x", text, "d.csv").unwrap_err())).collect();
    insta::assert_snapshot!(said.join("\n"));
}

/// Many hosts with a delay for each pair: a matrix, which reads back.
#[test]
fn many_delays_are_a_matrix() {
    use std::fmt::Write;
    let mut xml = "<platform version='4.1'><zone id='w' routing='Vivaldi'>".to_owned();
    for i in 0..60 {
        let (x, y) = (i * i % 97, i * 7 % 89);
        write!(xml, "<peer id='p{i}' speed='1Gf' bw_in='1Gbps' bw_out='1Gbps' lat='1ms' coordinates='{x} {y} 1'/>")
            .unwrap();
    }
    let found = platform::import("x.xml", &(xml + "</zone></platform>"), "delays.csv").unwrap();
    assert!(found.text.contains("{matrix: delays.csv}"));
    let lab = parse("x.yaml", &found.text, Path::new("/labs")).unwrap();
    let matrix = slipway_lab::matrix::parse(&found.matrix.unwrap(), &lab).unwrap();
    assert_eq!(matrix.senders.len(), 60);
    let delay = matrix.delays[3].unwrap().0;
    let expected = (9f64 - 0.0).hypot(21.0) + 2.0 + 2.0;
    assert!((delay * 1e3 - expected).abs() < 1e-6, "{delay} {expected}");
}

#[test]
fn nothing_nests_too_deep() {
    let deep = format!("<platform version='4'>{}", "<zone id='a' routing='Full'>".repeat(20_000));
    assert!(platform::import("x", &deep, "d.csv").is_err());
    let closed = deep + &"</zone>".repeat(20_000) + "</platform>";
    assert!(platform::import("x", &closed, "d.csv").is_err());
    assert!(platform::import("x", &"[".repeat(20_000), "d.csv").is_err());
}

const THERE_AND_BACK: &str = "
nodes:
  a: {cpu: 50%, networks: {one: {conditions: {delay: 2ms, rate: 10mbit, ingress: {rate: 20mbit}}}}}
  b: {networks: [one]}
  c: {cpu: 2 cores, networks: [one]}
networks: {one: {ipv6: false, conditions: {delay: 5ms, rate: 1gbit}}}
";

#[test]
fn simgrid_and_back_keeps_nodes_delays_and_rates() {
    let lab = parse(
        "x.yaml",
        &format!("{THERE_AND_BACK}links: [{{between: [b, c], delay: 30ms, rate: 1mbit}}]"),
        Path::new("/"),
    );
    let lab = lab.unwrap();
    let written = platform::to_simgrid(&lab, &[]).unwrap();
    insta::assert_snapshot!("to_simgrid", written.text);
    let back = platform::import("x.xml", &written.text, "d.csv").unwrap();
    let back = parse("x.yaml", &back.text, Path::new("/")).unwrap();
    assert_eq!(back.nodes.len(), 3);
    for (from, to) in [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")] {
        assert_eq!(between(&lab, from, to), between(&back, from, to), "{from} to {to}");
    }
    let share = |node: &str| back.node(node).unwrap().1.limits.cpu.unwrap().to_string();
    assert_eq!([share("a"), share("b"), share("c")], ["0.5 core", "1 core", "2 cores"]);
}

/// A packet that passes a gateway undergoes the conditions of both networks.
#[test]
fn simgrid_routes_pass_gateways() {
    let text = "nodes: {a: {networks: [one]}, gw: {gateway: true, networks: [one, two]}, b: {networks: [two]}}
networks: {one: {conditions: {delay: 5ms}}, two: {conditions: {delay: 7ms, rate: 3mbit}}}";
    let lab = parse("x.yaml", text, Path::new("/")).unwrap();
    let back = platform::import("x.xml", &platform::to_simgrid(&lab, &[]).unwrap().text, "d.csv").unwrap();
    let back = parse("x.yaml", &back.text, Path::new("/")).unwrap();
    assert_eq!(between(&back, "a", "b"), (12.0, 3.0));
    assert_eq!(between(&back, "gw", "b"), (7.0, 3.0));
}

#[test]
fn distem_and_back_keeps_all_that_it_can_say() {
    let (_, lab) = imported("two-networks.json");
    let written = platform::to_distem(&lab);
    let back = platform::import("two-networks.json", &written.text, "d.csv").unwrap();
    let back = parse("two-networks.yaml", &back.text, Path::new("/labs")).unwrap();
    for (a, b) in lab.nodes.iter().zip(&back.nodes) {
        assert_eq!((&a.name, &a.interfaces, &a.limits, &a.routes), (&b.name, &b.interfaces, &b.limits, &b.routes));
    }
    assert_eq!((&lab.networks, lab.nodes.len()), (&back.networks, back.nodes.len()));
    let lab = parse("x.yaml", THERE_AND_BACK, Path::new("/")).unwrap();
    let written = platform::to_distem(&lab);
    let back = platform::import("x.json", &written.text, "d.csv").unwrap();
    let back = parse("x.yaml", &back.text, Path::new("/")).unwrap();
    assert_eq!((back.networks, back.nodes), (lab.networks, lab.nodes));
}

#[test]
fn exports_say_what_is_lost() {
    let text = "nodes: {n: {count: 2, memory: 1GiB, env: {A: b}, networks: {net: {conditions: {loss: gemodel 1% 10%, limit: 5}}}}}
job: {command: hostname}";
    let lab = parse("x.yaml", text, Path::new("/")).unwrap();
    let lost = [platform::to_simgrid(&lab, &[]).unwrap().lost, platform::to_distem(&lab).lost];
    insta::assert_snapshot!(lost.map(|lines| lines.join("\n")).join("\n\n"));
}

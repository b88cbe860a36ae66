//! What holds for every lab file, found by random ones.

use std::collections::HashSet;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use slipway_lab::graph;
use slipway_lab::model::Lab;

fn parse(text: &str) -> Result<Lab, slipway_lab::LabErrors> {
    slipway_lab::parse("random.yaml", text, Path::new("/labs"))
}

/// Whatever is read, the answer is a lab that can be drawn, or errors that can be shown.
fn has_an_answer(text: &str) {
    match parse(text) {
        Ok(lab) => {
            let drawn = [graph::svg(&lab), graph::dot(&lab), graph::mermaid(&lab)];
            assert!(drawn.iter().all(|picture| !picture.is_empty()));
        }
        Err(errors) => {
            assert!((1..=50).contains(&errors.errors().len()));
            for error in errors.errors() {
                assert!(error.line <= text.lines().count().max(1) + 1, "{text:?}\n{}", errors.plain());
                assert!(!error.message.is_empty() && !error.help.is_empty());
            }
            let mut rendered = String::new();
            miette::GraphicalReportHandler::new().render_report(&mut rendered, &errors).unwrap();
        }
    }
}

/// The text of every right file.
fn right_files() -> Vec<String> {
    files_below("tests/right")
}

fn files_below(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[derive(Debug, Clone)]
enum Edit {
    Delete(usize),
    Insert(usize, String),
    SwapLines(usize, usize),
    CopyLine(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let snippet = prop_oneof![
        "[ -~]{1,4}",
        prop::sample::select(vec![
            "\t",
            "\n",
            "  ",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            "&a ",
            "*a",
            "!!str ",
            "? ",
            "\"",
            "'",
            "|\n",
            ">\n",
            "---\n",
            "\u{feff}",
            "\0",
            "é",
            "null",
            "~",
            "-1",
            "99999999999",
            "1e9",
            "0x10",
            "10.0.0.0/8",
            "::/0",
            "%YAML 1.2\n",
            "<<: ",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        any::<usize>().prop_map(Edit::Delete),
        (any::<usize>(), snippet).prop_map(|(at, text)| Edit::Insert(at, text)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::SwapLines(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::CopyLine(a, b)),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    match edit {
        Edit::Delete(at) if !letters.is_empty() => {
            letters.remove(at % letters.len());
            letters.into_iter().collect()
        }
        Edit::Insert(at, snippet) => {
            let at = at % (letters.len() + 1);
            letters[..at].iter().chain(&snippet.chars().collect::<Vec<_>>()).chain(&letters[at..]).collect()
        }
        Edit::SwapLines(a, b) if !lines.is_empty() => {
            let (a, b) = (a % lines.len(), b % lines.len());
            lines.swap(a, b);
            lines.concat()
        }
        Edit::CopyLine(from, to) if !lines.is_empty() => {
            let (from, to) = (from % lines.len(), to % lines.len());
            lines.insert(to, lines[from]);
            lines.concat()
        }
        _ => text.to_owned(),
    }
}

/// A right lab of bridges and vxlans over a few hosts. JSON, which is YAML too.
fn right_lab() -> impl Strategy<Value = Value> {
    let drivers = prop::sample::select(vec!["bridge", "ovs", "vxlan", "macvlan"]);
    let networks = vec((drivers, any::<bool>()), 1..4);
    (networks, 1u32..5, prop::sample::select(vec!["spread", "pack"]), vec(any::<(u8, u8, bool, u8)>(), 1..8)).prop_map(
        |(networks, hosts, placement, groups)| {
            let network = |(i, (driver, ipv6)): (usize, &(&str, bool))| {
                (format!("net{i}"), json!({"driver": driver, "ipv6": ipv6}))
            };
            let declared: Map<String, Value> = networks.iter().enumerate().map(network).collect();
            let group = |(i, (count, on, gateway, address)): (usize, (u8, u8, bool, u8))| {
                let mut on: Vec<usize> = (0..networks.len()).filter(|n| on >> n & 1 == 1).collect();
                if on.is_empty() {
                    on.push(0);
                }
                let mut members = Map::new();
                for network in &on {
                    // Far apart, so that groups do not meet: a group may go on into the next /24.
                    let asked = format!("10.{}.{}.{}", 64 + network, 100 + 2 * i, address.max(1));
                    let member = if address % 3 == 0 { json!({"ipv4": asked}) } else { Value::Null };
                    members.insert(format!("net{network}"), member);
                }
                let mut node = json!({"networks": members, "gateway": gateway && on.len() > 1});
                if count % 4 > 0 {
                    node["count"] = json!(count % 20 + 1);
                }
                (format!("g{}-", char::from(b'a' + u8::try_from(i).unwrap())), node)
            };
            let nodes: Map<String, Value> = groups.into_iter().enumerate().map(group).collect();
            json!({"lab": "random", "hosts": hosts, "placement": placement, "networks": declared, "nodes": nodes})
        },
    )
}

/// Keys that need no other, some of them with `none`.
fn some_conditions() -> impl Strategy<Value = Map<String, Value>> {
    let values = [
        ("delay", vec![json!("20ms"), json!("1.5s"), json!("none")]),
        (
            "loss",
            vec![json!("0.05%"), json!("gemodel 1% 10% 70% 0.1%"), json!("state 1% 10% 5% 50% 0.1%"), json!("none")],
        ),
        ("corrupt", vec![json!("1%"), json!("none")]),
        ("duplicate", vec![json!("2%"), json!("none")]),
        ("rate", vec![json!("10mbit"), json!("1gbit"), json!("none")]),
        ("limit", vec![json!(5), json!(1000), json!("none")]),
    ];
    let key = |(key, values): (&'static str, Vec<Value>)| {
        proptest::option::of(prop::sample::select(values)).prop_map(move |value| Some((key.to_owned(), value?)))
    };
    values.map(key).to_vec().prop_map(|keys| keys.into_iter().flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_has_an_answer(text in "(?s).{0,300}") {
        has_an_answer(&text);
    }

    #[test]
    fn any_text_of_yaml_letters_has_an_answer(text in "([a-z0-9:,\\[\\]{}\"'&*!|>%@?#~ -]|\n|  |: |- |nodes|count|networks){0,80}") {
        has_an_answer(&text);
    }

    #[test]
    fn a_right_file_with_some_edits_has_an_answer(
        file in prop::sample::select(right_files()),
        edits in vec(edit(), 1..6),
    ) {
        let text = edits.iter().fold(file, |text, edit| apply(&text, edit));
        has_an_answer(&text);
    }

    /// Whatever a platform file holds, the answer is a lab or an error that can be shown.
    #[test]
    fn a_platform_with_some_edits_has_an_answer(
        file in prop::sample::select(files_below("tests/platform")),
        edits in vec(edit(), 0..6),
    ) {
        let text = edits.iter().fold(file, |text, edit| apply(&text, edit));
        match slipway_lab::platform::import("p", &text, "d.csv") {
            Ok(platform) => prop_assert!(parse(&platform.text).is_ok()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_right_lab_is_accepted_and_consistent(file in right_lab()) {
        let lab = parse(&file.to_string()).unwrap_or_else(|errors| panic!("{file:#}\n{}", errors.plain()));
        prop_assert_eq!(&parse(&file.to_string()).unwrap(), &lab, "the same file is the same lab");
        let mut names = HashSet::new();
        let mut v4 = HashSet::new();
        let mut v6 = HashSet::new();
        let mut macs = HashSet::new();
        for node in &lab.nodes {
            prop_assert!(names.insert(&node.name));
            prop_assert!(node.host < lab.hosts.len() && node.image < lab.images.len());
            for interface in &node.interfaces {
                let network = &lab.networks[interface.network];
                prop_assert!(network.ipv4.contains(&interface.ipv4));
                prop_assert!(v4.insert(interface.ipv4));
                prop_assert_eq!(network.ipv6.is_some(), interface.ipv6.is_some());
                if let (Some(net), Some(address)) = (network.ipv6, interface.ipv6) {
                    prop_assert!(net.contains(&address) && v6.insert(address));
                }
                prop_assert!(macs.insert(interface.mac) && interface.mac[0] & 1 == 0);
            }
            for route in &node.routes {
                let to_own = |network: usize| {
                    let network = &lab.networks[network];
                    route.to == network.ipv4.into() || network.ipv6.is_some_and(|net| route.to == net.into())
                };
                prop_assert!(!node.interfaces.iter().any(|interface| to_own(interface.network)));
            }
        }
        let written = serde_json::to_string(&lab).unwrap();
        prop_assert_eq!(serde_json::from_str::<Lab>(&written).unwrap(), lab);
    }

    /// What holds at an interface is the node's, key by key over the network's.
    #[test]
    fn conditions_hold_key_by_key(of_network in some_conditions(), of_node in some_conditions()) {
        let file = json!({
            "networks": {"net": {"conditions": of_network}},
            "nodes": {"n": {"networks": {"net": {"conditions": of_node}}}},
        });
        let lab = parse(&file.to_string()).unwrap();
        let held = serde_json::to_value(&lab.nodes[0].interfaces[0].conditions.egress).unwrap();
        let mut expected = of_network;
        expected.extend(of_node);
        expected.retain(|_, value| value != "none");
        prop_assert_eq!(held, Value::Object(expected));
        let written = serde_json::to_string(&lab).unwrap();
        prop_assert_eq!(serde_json::from_str::<Lab>(&written).unwrap(), lab);
    }

    /// Whatever was changed in a lab, its export reads back equal.
    #[test]
    fn an_export_reads_back_equal(
        file in right_lab(),
        changes in vec((any::<prop::sample::Index>(), some_conditions(), any::<[u8; 4]>()), 0..6),
        macs in any::<bool>(),
    ) {
        let mut lab = parse(&file.to_string()).unwrap();
        let (nodes, hosts, last) = (lab.nodes.len(), lab.hosts.len(), lab.nodes.len() - 1);
        for (at, mut conditions, [host, limits, mac, slot]) in changes {
            conditions.retain(|_, value| value != "none");
            if conditions.contains_key("rate") && limits % 2 == 0 {
                conditions.insert("queue".to_owned(), json!(limits + 1));
            }
            let conditions = serde_json::from_value(Value::Object(conditions)).unwrap();
            let node = &mut lab.nodes[at.index(nodes)];
            node.host = usize::from(host) % hosts;
            node.limits.pids = (limits % 2 == 0).then_some(8 + u32::from(limits));
            node.read_only = limits % 3 == 0;
            let slot = usize::from(slot) % node.interfaces.len();
            let interface = &mut node.interfaces[slot];
            if macs {
                interface.mac = [0x02, 0xff, 0, 0, mac, u8::try_from(at.index(nodes)).unwrap_or(0)];
            }
            match slot % 2 {
                0 => interface.conditions.egress = conditions,
                _ => interface.conditions.ingress = conditions,
            }
            if lab.nodes[0].interfaces[0].network == lab.nodes[last].interfaces[0].network && last > 0 {
                let mut rule = slipway_lab::condition::LinkRule {
                    from: vec![0],
                    to: vec![last],
                    network: None,
                    conditions: slipway_lab::condition::LinkConditions::default(),
                };
                rule.conditions.delay = Some(slipway_lab::units::Seconds(f64::from(mac) / 1000.0));
                lab.links.push(rule.clone());
                if host % 2 == 0 {
                    std::mem::swap(&mut rule.from, &mut rule.to);
                    lab.links.push(rule);
                }
            }
        }
        // Two cannot have one Ethernet address.
        let macs: HashSet<_> = lab.nodes.iter().flat_map(|node| &node.interfaces).map(|interface| interface.mac).collect();
        prop_assume!(macs.len() == lab.nodes.iter().map(|node| node.interfaces.len()).sum::<usize>());
        let text = slipway_lab::platform::to_slipway(&lab, &[]).unwrap_or_else(|error| panic!("{error}\n{lab:#?}"));
        prop_assert_eq!(parse(&text).unwrap(), lab);
    }

    /// Following the routes arrives, and nothing that could be reached has no route.
    #[test]
    fn routes_arrive(file in right_lab()) {
        let lab = parse(&file.to_string()).unwrap();
        for node in &lab.nodes {
            let on: HashSet<_> = node.interfaces.iter().map(|interface| interface.network).collect();
            let reachable = reachable(&lab, on.clone());
            for (to, network) in lab.networks.iter().enumerate() {
                let route = node.routes.iter().find(|route| route.to == network.ipv4.into());
                prop_assert_eq!(route.is_some(), !on.contains(&to) && reachable.contains(&to));
                if route.is_some() {
                    prop_assert!(arrives(&lab, node, to), "{} to {}", node.name, network.name);
                }
            }
        }
    }

    /// What is there keeps its addresses when a node without a wish of its own follows.
    #[test]
    fn a_node_at_the_end_changes_no_other(file in right_lab()) {
        let before = parse(&file.to_string()).unwrap();
        let mut longer = file.clone();
        longer["nodes"]["zz-last"] = json!({"count": 3});
        let after = parse(&longer.to_string()).unwrap();
        for (old, new) in before.nodes.iter().zip(&after.nodes) {
            prop_assert_eq!((&old.name, &old.interfaces), (&new.name, &new.interfaces));
        }
        prop_assert_eq!(after.nodes.len(), before.nodes.len() + 3);
    }
}

fn reachable(lab: &Lab, mut on: HashSet<usize>) -> HashSet<usize> {
    loop {
        let gateways = lab.nodes.iter().filter(|node| node.gateway);
        let reached = gateways.filter(|node| node.interfaces.iter().any(|interface| on.contains(&interface.network)));
        let more: Vec<_> = reached.flat_map(|node| &node.interfaces).map(|interface| interface.network).collect();
        let count = on.len();
        on.extend(more);
        if on.len() == count {
            return on;
        }
    }
}

fn arrives(lab: &Lab, from: &slipway_lab::model::Node, to: usize) -> bool {
    let mut here = from;
    for _ in 0..=lab.networks.len() {
        if here.interfaces.iter().any(|interface| interface.network == to) {
            return true;
        }
        let Some(route) = here.routes.iter().find(|route| route.to == lab.networks[to].ipv4.into()) else {
            return false;
        };
        let shares = |network: usize| here.interfaces.iter().any(|mine| mine.network == network);
        let is_via = |node: &&slipway_lab::model::Node| {
            node.gateway && node.interfaces.iter().any(|theirs| shares(theirs.network) && route.via == theirs.ipv4)
        };
        match lab.nodes.iter().find(is_via) {
            Some(next) => here = next,
            None => return false,
        }
    }
    false
}

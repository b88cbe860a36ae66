//! What holds for every lab file, found by random ones.

use std::collections::HashSet;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use slipway_lab::graph;
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::Lab;

mod random;

use random::{apply, edit, files_below, right_lab, some_conditions};

fn parse(text: &str) -> Result<Lab, slipway_document::errors::DocumentErrors> {
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
    files_below(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right"))
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
            prop_assert!(node.host.index() < lab.hosts.len() && node.image < lab.images.len());
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
                let to_own = |network: NetworkId| {
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
        let held = serde_json::to_value(&lab.nodes[NodeId(0)].interfaces[0].conditions.egress).unwrap();
        let mut expected = of_network;
        expected.extend(of_node);
        expected.retain(|_, value| value != "none");
        prop_assert_eq!(held, Value::Object(expected));
        let written = serde_json::to_string(&lab).unwrap();
        prop_assert_eq!(serde_json::from_str::<Lab>(&written).unwrap(), lab);
    }

    /// Following the routes arrives, and nothing that could be reached has no route.
    #[test]
    fn routes_arrive(file in right_lab()) {
        let lab = parse(&file.to_string()).unwrap();
        for node in &lab.nodes {
            let on: HashSet<_> = node.interfaces.iter().map(|interface| interface.network).collect();
            let reachable = reachable(&lab, on.clone());
            for (to, network) in lab.networks.enumerate() {
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

fn reachable(lab: &Lab, mut on: HashSet<NetworkId>) -> HashSet<NetworkId> {
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

fn arrives(lab: &Lab, from: &slipway_lab::model::Node, to: NetworkId) -> bool {
    let mut here = from;
    for _ in 0..=lab.networks.len() {
        if here.interfaces.iter().any(|interface| interface.network == to) {
            return true;
        }
        let Some(route) = here.routes.iter().find(|route| route.to == lab.networks[to].ipv4.into()) else {
            return false;
        };
        let shares = |network: NetworkId| here.interfaces.iter().any(|mine| mine.network == network);
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

//! Matrices of delays, and what follows from them and from rules for one sender.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use slipway_document::units::Seconds;
use slipway_lab::change::{Keys, LinkChange};
use slipway_lab::condition::{LinkConditions, LinkRule, MatrixFile};
use slipway_lab::id::NodeId;
use slipway_lab::matrix::{self, Matrix};
use slipway_lab::model::Lab;

fn lab(text: &str) -> Lab {
    slipway_lab::parse("lab.yaml", text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()))
}

fn words(text: &str) -> LinkConditions {
    text.parse::<LinkChange>().unwrap().set
}

#[test]
fn cells_with_units_and_without() {
    let lab = lab("nodes: {n: {count: 3}}");
    let ms = |value: f64| Some(Seconds(value / 1e3));
    let with = matrix::parse(",n1,n2,n3\nn1,0,20ms,1.5s\nn2, 300us ,-,\nn3,1min,\"5ms\",-\n", &lab).unwrap();
    let [n1, n2, n3] = [0, 1, 2].map(NodeId);
    assert_eq!((&with.senders, &with.receivers), (&vec![n1, n2, n3], &vec![n1, n2, n3]));
    let of_n1 = [None, ms(20.0), ms(1500.0)];
    let of_n2 = [ms(0.3), None, None];
    let of_n3 = [Some(Seconds(60.0)), ms(5.0), None];
    assert_eq!(with.delays, [of_n1, of_n2, of_n3].concat());
    let plain = matrix::parse("\u{feff}ms,n3,n1\r\nn2,75.5,20s\r\n\r\n", &lab).unwrap();
    assert_eq!(
        plain,
        Matrix { senders: vec![n2], receivers: vec![n3, n1], delays: vec![ms(75.5), Some(Seconds(20.0))] }
    );
}

#[test]
fn what_is_wrong_has_its_place_and_the_next_step() {
    let lab = lab("nodes: {n: {count: 3}}");
    let texts = [
        "",
        ",",
        "ms",
        "delay,n1,n2\nn1,1,2",
        ",n1,n4\nn1,1ms,2ms",
        ",n1,n2,n1\nn1,,,",
        ",n1,n2\nn1,,1ms\nn1,,1ms",
        ",n1,n2\nn1,,20",
        ",n1,n2\nn1,,20 parsecs",
        ",n1,n2\nn1,,-5ms",
        ",n1,n2\nn1,,2h",
        ",n1,n2\nn1",
        ",n1,n2\nn1,,1ms,1ms",
        ",n1,n2\nn1,1ms,1ms",
        "ms;n1;n2\nn1;;1",
        ".5ms,n1,n2\nn1,,1",
    ];
    let said: Vec<String> = texts
        .iter()
        .map(|text| format!("{text:?}\n  {}", matrix::parse(text, &lab).expect_err("a wrong matrix was accepted")))
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

/// The names of the receivers, what holds for them, and at which addresses.
fn rules(lab: &Lab, matrices: &[Matrix], (sender, slot): (usize, usize)) -> Vec<(String, String, Vec<String>)> {
    let (_, rules) = lab.egress_rules(matrices, (NodeId(sender), slot));
    let addresses = |rule: &slipway_lab::PeerRule| rule.addresses.iter().map(ToString::to_string).collect();
    rules.iter().map(|rule| (lab.nodes[rule.node].name.clone(), rule.conditions.to_string(), addresses(rule))).collect()
}

fn rule(name: &str, conditions: &str, addresses: &[&str]) -> (String, String, Vec<String>) {
    (name.to_owned(), conditions.to_owned(), addresses.iter().map(|address| (*address).to_owned()).collect())
}

#[test]
fn rules_over_matrices_and_later_ones_over_earlier_ones() {
    let lab = lab("
networks: {net: {ipv4: 10.0.0.0/24, ipv6: false, conditions: {loss: 1%, delay: 1ms}}}
nodes: {a: {count: 3}, b: }
links:
  - {matrix: m.csv}
  - {between: [a, b], rate: 10mbit, delay: 7ms}
  - {from: a1, to: b, rate: 20mbit}
");
    let matrix = matrix::parse(",a2,a3,b\na1,2ms,-,3ms\nb,4ms,,", &lab).unwrap();
    assert_eq!(
        rules(&lab, std::slice::from_ref(&matrix), (0, 0)),
        [rule("a2", "delay=2ms", &["10.0.0.2"]), rule("b", "delay=7ms rate=20mbit", &["10.0.0.4"])]
    );
    assert_eq!(rules(&lab, std::slice::from_ref(&matrix), (1, 0)), [rule("b", "delay=7ms rate=10mbit", &["10.0.0.4"])]);
    assert_eq!(lab.egress_rules(&[], (NodeId(2), 0)).0, &words("loss=1% delay=1ms"));
    assert_eq!(rules(&lab, &[], (3, 0)).len(), 3);
}

#[test]
fn only_peers_on_the_senders_network() {
    let lab = lab("
networks: {left: bridge, right: bridge}
nodes: {a: {networks: [left]}, gate: {gateway: true, networks: [left, right]}, b: {networks: [right]}}
links: [{between: ['*', gate], delay: 5ms}, {between: ['*', '*'], network: right, loss: 1%}]
");
    let gate_left = ["10.64.0.2", "fd53:6c69:7000::2"];
    let gate_right = ["10.65.0.1", "fd53:6c69:7001::1"];
    assert_eq!(rules(&lab, &[], (0, 0)), [rule("gate", "delay=5ms", &gate_left)]);
    assert_eq!(rules(&lab, &[], (2, 0)), [rule("gate", "delay=5ms loss=1%", &gate_right)]);
    assert_eq!(rules(&lab, &[], (1, 0)), [rule("a", "delay=5ms", &["10.64.0.1", "fd53:6c69:7000::1"])]);
}

/// A lab's size in practice: 500 nodes, each of which has a delay to each other.
#[test]
fn five_hundred_nodes() {
    let mut lab = lab("nodes: {n: {count: 500}}");
    lab.matrices.push(MatrixFile { path: "/m.csv".into(), network: None });
    let mut text = "ms".to_owned();
    (1..=500).for_each(|i| write!(text, ",n{i}").unwrap());
    for i in 1..=500 {
        write!(text, "\nn{i}").unwrap();
        (1..=500).for_each(|j| write!(text, ",{}", if i == j { 0 } else { i + j }).unwrap());
    }
    let matrix = matrix::parse(&text, &lab).unwrap();
    assert_eq!(matrix.delays.len(), 250_000);
    for node in [0, 250, 499] {
        let (_, rules) = lab.egress_rules(std::slice::from_ref(&matrix), (NodeId(node), 0));
        assert_eq!(rules.len(), 499);
        assert!(
            rules
                .iter()
                .all(|rule| rule.conditions.delay.unwrap().0 * 1e3 - (rule.node.index() + node + 2) as f64 == 0.0)
        );
    }
}

fn some_rules() -> impl Strategy<Value = Vec<(BTreeSet<usize>, BTreeSet<usize>, String)>> {
    let nodes = || proptest::collection::btree_set(0usize..6, 1..4);
    let what = prop::sample::select(vec!["delay=1ms", "delay=2ms loss=1%", "rate=1mbit", "loss=2% corrupt=1%"]);
    proptest::collection::vec((nodes(), nodes(), what.prop_map(str::to_owned)), 0..6)
}

fn cells() -> impl Strategy<Value = Vec<Option<u16>>> {
    proptest::collection::vec(proptest::option::of(1u16..), 36)
}

proptest! {
    #[test]
    fn what_is_written_reads_back(cells in cells(), order in Just((0usize..6).collect::<Vec<_>>()).prop_shuffle()) {
        let lab = lab("nodes: {n: {count: 6}}");
        let mut text = "us".to_owned();
        for node in &order {
            write!(text, ",n{}", node + 1).unwrap();
        }
        for sender in 0..6 {
            write!(text, "\nn{}", sender + 1).unwrap();
            for receiver in &order {
                let cell = cells[sender * 6 + receiver].filter(|_| sender != *receiver);
                write!(text, ",{}", cell.map_or_else(String::new, |cell| cell.to_string())).unwrap();
            }
        }
        let matrix = matrix::parse(&text, &lab).unwrap();
        prop_assert!(matrix.receivers.iter().map(|receiver| receiver.index()).eq(order.iter().copied()));
        for sender in 0..6 {
            for (column, receiver) in order.iter().enumerate() {
                let cell = cells[sender * 6 + receiver].filter(|_| sender != *receiver);
                let expected = cell.map(|cell| Seconds(f64::from(cell) / 1e6));
                prop_assert_eq!(matrix.delays[sender * 6 + column], expected);
            }
        }
    }

    #[test]
    fn any_text_is_a_matrix_or_an_error(text in "([,n1-3ms.\" -]|\n){0,60}") {
        let lab = lab("nodes: {n: {count: 3}}");
        match matrix::parse(&text, &lab) {
            Ok(matrix) => prop_assert_eq!(matrix.delays.len(), matrix.senders.len() * matrix.receivers.len()),
            Err(error) => prop_assert!(error.line <= text.lines().count().max(1) && !error.help.is_empty()),
        }
    }

    /// Pair by pair and key by key, as it is said.
    #[test]
    fn rules_hold_key_by_key(cells in cells(), written in some_rules(), sender in 0usize..6) {
        let mut lab = lab("nodes: {n: {count: 6}}");
        let seconds = |cell: &Option<u16>| cell.map(|cell| Seconds(f64::from(cell) / 1e6));
        let delays = cells.iter().enumerate().map(|(i, cell)| seconds(cell).filter(|_| i / 6 != i % 6)).collect();
        let matrix = Matrix { senders: lab.nodes.ids().collect(), receivers: lab.nodes.ids().collect(), delays };
        lab.matrices.push(MatrixFile { path: "/m.csv".into(), network: None });
        for (from, to, conditions) in written {
            let [from, to] = [from, to].map(|nodes| nodes.into_iter().map(NodeId).collect());
            lab.links.push(LinkRule { from, to, network: None, conditions: words(&conditions) });
        }
        let (all, rules) = lab.egress_rules(std::slice::from_ref(&matrix), (NodeId(sender), 0));
        prop_assert_eq!(all, &LinkConditions::default());
        prop_assert!(rules.is_sorted_by_key(|rule| rule.node));
        for peer in 0..6 {
            let start = LinkConditions { delay: matrix.delays[sender * 6 + peer], ..LinkConditions::default() };
            let about = lab.links.iter().filter(|rule| rule.from.contains(&NodeId(sender)) && rule.to.contains(&NodeId(peer)));
            let expected = about.fold(start, |held, rule| rule.conditions.over(&held));
            let found = rules.iter().find(|rule| rule.node == NodeId(peer)).map(|rule| rule.conditions.clone());
            let something = peer != sender && !expected.words().is_empty();
            prop_assert_eq!(found, something.then_some(expected));
        }
    }
}

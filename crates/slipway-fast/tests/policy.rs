//! Decisions are those of the rules as they are written, first to last.

use std::path::Path;

use proptest::prelude::*;
use slipway_document::units::Rate;
use slipway_fast::policy::{Decision, Policy, Rates, Terms};
use slipway_lab::id::NodeId;
use slipway_lab::policy::{Rule, Verdict};

/// The rules of the guide, each with every kind of end and port.
fn policy(rules: &str) -> (Policy, slipway_lab::model::Lab) {
    let text =
        format!("networks: {{net: fast}}\nnodes: {{web: {{count: 3}}, db: {{count: 2}}, batch: }}\npolicy:\n{rules}");
    let lab = slipway_lab::parse("lab.yaml", &text, Path::new("/")).unwrap_or_else(|wrong| panic!("{}", wrong.plain()));
    (Policy::new(&lab.policy, lab.nodes.len()), lab)
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn without_a_rule_everybody_talks_to_everybody() {
    assert_eq!(Policy::default().decide(NodeId(5), NodeId(0), 22), Decision::Allow(Terms::default()));
}

#[test]
fn what_is_allowed_then_nothing_else() {
    let (policy, lab) =
        policy("  - {from: web, to: db, ports: [5432, 6000-6010]}\n  - {name: closed, to: db, verdict: deny}\n");
    let [web1, db1, db2, batch] = ["web1", "db1", "db2", "batch"].map(|name| lab.node(name).unwrap().0);
    for port in [5432, 6000, 6005, 6010] {
        let Decision::Allow(terms) = policy.decide(web1, db1, port) else { panic!("port {port} is denied") };
        assert_eq!(terms, Terms { rule: Some(0), ..Terms::default() });
        assert!(terms.is_free());
    }
    for (client, server, port) in [(web1, db1, 5431), (web1, db2, 6011), (batch, db1, 5432), (db1, db2, 5432)] {
        assert_eq!(policy.decide(client, server, port), Decision::Deny(1));
    }
    // A rule is about who connects, not about answers.
    assert_eq!(policy.decide(db1, web1, 80), Decision::Allow(Terms::default()));
}

#[test]
fn the_first_that_fits_decides_everything() {
    let (policy, _) =
        policy("  - {from: web1, rate: 1gbit}\n  - {from: web, rate: 2gbit, priority: 6, connections: 7}\n");
    let one =
        Terms { rule: Some(0), rates: Rates { flow: Some(rate("1gbit")), ..Rates::default() }, ..Terms::default() };
    assert_eq!(policy.decide(NodeId(0), NodeId(3), 80), Decision::Allow(one));
    let rates = Rates { flow: Some(rate("2gbit")), ..Rates::default() };
    let two = Terms { rule: Some(1), rates, priority: Some(6), connections: Some(7) };
    assert_eq!(policy.decide(NodeId(1), NodeId(3), 80), Decision::Allow(two));
    assert!(!one.is_free() && !two.is_free());
}

#[test]
fn many_connections_share_what_they_have_together() {
    let rates = Rates { flow: Some(rate("100mbit")), pair: Some(rate("200mbit")), node: Some(rate("1gbit")) };
    assert_eq!(rates.share(1, 1), Some(rate("100mbit")));
    assert_eq!(rates.share(4, 4), Some(rate("50mbit")));
    assert_eq!(rates.share(1, 20), Some(rate("50mbit")));
    assert_eq!(rates.share(0, 0), Some(rate("100mbit")));
    assert_eq!(Rates::default().share(1, 1), None);
}

const NODES: usize = 130;

fn rule() -> impl Strategy<Value = Rule> {
    let nodes = || {
        prop::option::of(
            prop::collection::btree_set(0..NODES, 0..80).prop_map(|set| set.into_iter().map(NodeId).collect()),
        )
    };
    let ports = prop::collection::vec((any::<u16>(), any::<u16>()).prop_map(|(a, b)| a.min(b)..=a.max(b)), 0..3);
    (nodes(), nodes(), ports, any::<bool>(), any::<Option<u32>>()).prop_map(|(from, to, ports, allow, connections)| {
        Rule {
            name: String::new(),
            from,
            to,
            ports,
            verdict: if allow { Verdict::Allow } else { Verdict::Deny },
            rates: Rates::default(),
            priority: None,
            connections: connections.filter(|_| allow),
        }
    })
}

proptest! {
    #[test]
    fn as_a_reader_of_the_rules_would_say(
        rules in prop::collection::vec(rule(), 0..6),
        asked in prop::collection::vec((0..NODES, 0..NODES, any::<u16>()), 1..40),
    ) {
        let policy = Policy::new(&rules, NODES);
        for (client, server, port) in asked {
            let [client, server] = [client, server].map(NodeId);
            let is_in = |nodes: &Option<Vec<NodeId>>, node| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
            let fits = |rule: &Rule| {
                let at = rule.ports.is_empty() || rule.ports.iter().any(|ports| (*ports.start()..=*ports.end()).contains(&port));
                is_in(&rule.from, client) && is_in(&rule.to, server) && at
            };
            let first = rules.iter().position(fits);
            match policy.decide(client, server, port) {
                Decision::Deny(number) => {
                    prop_assert_eq!(first, Some(number));
                    prop_assert_eq!(rules[number].verdict, Verdict::Deny);
                }
                Decision::Allow(terms) => {
                    prop_assert_eq!(first, terms.rule);
                    match first.map(|number| &rules[number]) {
                        None => prop_assert_eq!(terms, Terms::default()),
                        Some(rule) => {
                            prop_assert_eq!((rule.verdict, rule.connections), (Verdict::Allow, terms.connections));
                        }
                    }
                }
            }
        }
    }
}

//! Properties of every platform file and every lab, tried with random ones.

use std::collections::HashSet;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::Lab;

#[path = "../../slipway-lab/tests/random/mod.rs"]
mod random;

use random::{apply, edit, files_below, right_lab, some_conditions};

fn parse(text: &str) -> Result<Lab, slipway_document::errors::DocumentErrors> {
    slipway_lab::parse("random.yaml", text, Path::new("/labs"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a platform file holds, the answer is a lab or an error that can be shown.
    #[test]
    fn a_platform_with_some_edits_has_an_answer(
        file in prop::sample::select(files_below(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/platform"))),
        edits in vec(edit(), 0..6),
    ) {
        let text = edits.iter().fold(file, |text, edit| apply(&text, edit));
        match slipway_platform::import("p", &text, "d.csv") {
            Ok(platform) => prop_assert!(parse(&platform.text).is_ok()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    /// Whatever was changed in a lab, its export reads back equal.
    #[test]
    fn an_export_reads_back_equal(
        file in right_lab(),
        changes in vec((any::<prop::sample::Index>(), some_conditions(), any::<[u8; 4]>()), 0..6),
        macs in any::<bool>(),
    ) {
        let mut lab = parse(&file.to_string()).unwrap();
        let (nodes, hosts) = (lab.nodes.len(), lab.hosts.len());
        let [first, last] = [0, nodes - 1].map(NodeId);
        for (at, mut conditions, [host, limits, mac, slot]) in changes {
            conditions.retain(|_, value| value != "none");
            if conditions.contains_key("rate") && limits % 2 == 0 {
                conditions.insert("queue".to_owned(), json!(limits + 1));
            }
            let conditions = serde_json::from_value(Value::Object(conditions)).unwrap();
            let node = &mut lab.nodes[NodeId(at.index(nodes))];
            node.host = HostId(usize::from(host) % hosts);
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
            if lab.nodes[first].interfaces[0].network == lab.nodes[last].interfaces[0].network && last > first {
                let mut rule = slipway_lab::condition::LinkRule {
                    from: vec![first],
                    to: vec![last],
                    network: None,
                    conditions: slipway_lab::condition::LinkConditions::default(),
                };
                rule.conditions.delay = Some(slipway_document::units::Seconds(f64::from(mac) / 1000.0));
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
        let text = slipway_platform::to_slipway(&lab, &[]).unwrap_or_else(|error| panic!("{error}\n{lab:#?}"));
        prop_assert_eq!(parse(&text).unwrap(), lab);
    }
}

//! Nodes and conditions as the lab file names them.

use std::collections::HashMap;

use crate::yaml::{Map, Yaml};
use slipway_lab::change::Keys;
use slipway_lab::condition::{Conditions, LinkConditions};
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{Lab, Limits};

/// A lab's nodes and groups by name.
pub(super) struct Names<'l> {
    pub(super) lab: &'l Lab,
    /// Each group's nodes.
    groups: HashMap<&'l str, Vec<NodeId>>,
}

impl<'l> Names<'l> {
    pub(super) fn of(lab: &'l Lab) -> Self {
        let mut groups: HashMap<&str, Vec<NodeId>> = HashMap::new();
        for (index, node) in lab.nodes.enumerate() {
            groups.entry(&node.group).or_default().push(index);
        }
        Self { lab, groups }
    }

    /// The fewest words that choose these nodes in this order, without a search.
    pub(super) fn words(&self, nodes: &[NodeId]) -> Vec<String> {
        let mut words = Vec::new();
        let mut rest = nodes;
        while let Some(&first) = rest.first() {
            let node = &self.lab.nodes[first];
            let group = &self.groups[node.group.as_str()];
            if rest.starts_with(group) {
                words.push(node.group.clone());
                rest = &rest[group.len()..];
            } else {
                words.push(node.name.clone());
                rest = &rest[1..];
            }
        }
        let is_all = nodes.iter().copied().eq(self.lab.nodes.ids());
        if is_all && words.len() > 1 { vec!["*".to_owned()] } else { words }
    }

    /// As a key takes them that takes one word or several.
    pub(super) fn members(&self, nodes: &[NodeId]) -> Yaml {
        word_or_words(self.words(nodes))
    }

    pub(super) fn network(&self, network: NetworkId) -> &'l str {
        &self.lab.networks[network].name
    }
}

pub(super) fn word_or_words(mut words: Vec<String>) -> Yaml {
    match words.len() {
        1 => Yaml::Text(words.remove(0)),
        _ => Yaml::texts(words),
    }
}

/// Every key that has a value.
pub(crate) fn put_conditions(conditions: &LinkConditions, map: &mut Map) {
    for (key, value) in conditions.words() {
        map.bare(key, value);
    }
}

/// The keys to write over `under` so that `now` holds.
pub(super) fn conditions_over(now: &Conditions, under: &Conditions) -> Map {
    let mut map = over(&now.egress, &under.egress);
    map.map("ingress", over(&now.ingress, &under.ingress));
    map
}

fn over(now: &LinkConditions, under: &LinkConditions) -> Map {
    let (now, under) = (now.words(), under.words());
    let mut map = Map::default();
    for (key, value) in now.iter().filter(|word| !under.contains(word)) {
        map.bare(key, value);
    }
    for (key, _) in under.iter().filter(|(key, _)| !now.iter().any(|(held, _)| held == key)) {
        map.bare(key, slipway_lab::change::NONE);
    }
    map
}

/// Limits of a node, except its processors.
pub(super) fn put_limits(limits: &Limits, map: &mut Map) {
    let mut disk = Map::default();
    for (key, value) in limits.words() {
        match key.strip_prefix("disk.") {
            Some(key) => disk.bare(key, value),
            None => map.bare(key, value),
        }
    }
    map.map("disk", disk);
}

//! Interfaces and pairs of nodes, as people write them: `n1:eth0`, `n*/ingress`, `site1->site2`.

use slipway_engine::condition::Place;
use slipway_engine::lab::Running;
use slipway_engine::state::StateRoot;
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_lab::scenario::{Direction, Pair};

use crate::failure::Failure;
use crate::labs;

/// The target of a change of conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// One direction of a node's interfaces: all of them, or the one of this name.
    Interfaces { nodes: Vec<NodeId>, interface: Option<String>, direction: Option<Direction> },
    /// Packets that some nodes send to others.
    Pair { from: Vec<NodeId>, to: Vec<NodeId> },
}

/// A running lab, and the words after its name. The first word is the lab where one of that name runs, or where it is a
/// file. Otherwise all words are about the only lab.
pub(crate) fn lab_and_words<'a>(root: &StateRoot, words: &'a [String]) -> Result<(Running, &'a [String]), Failure> {
    match words.split_first() {
        Some((first, rest)) if is_lab(root, first) => Ok((labs::running(root, Some(first))?, rest)),
        _ => Ok((labs::running(root, None)?, words)),
    }
}

fn is_lab(root: &StateRoot, word: &str) -> bool {
    let is_target = word.contains([':', '=']) || word.contains("->") || direction_of(word).1.is_some();
    !is_target && (labs::is_file(word) || root.lab(word).exists())
}

/// `n1:eth0/ingress` without its end, and what that says.
fn direction_of(word: &str) -> (&str, Option<Direction>) {
    let ends = [("/egress", Direction::Egress), ("/ingress", Direction::Ingress)];
    let found = ends.into_iter().find_map(|(end, direction)| Some((word.strip_suffix(end)?, Some(direction))));
    found.unwrap_or((word, None))
}

/// Reads one target.
pub(crate) fn target(lab: &Lab, word: &str) -> Result<Target, Failure> {
    if let Some((from, to)) = word.split_once("->") {
        return Ok(Target::Pair { from: lab.select(&[from.trim()])?, to: lab.select(&[to.trim()])? });
    }
    let (word, direction) = direction_of(word);
    let (nodes, interface) = match word.split_once(':') {
        Some((nodes, interface)) => (nodes, Some(interface.to_owned())),
        None => (word, None),
    };
    Ok(Target::Interfaces { nodes: lab.select(&[nodes])?, interface, direction })
}

/// The interfaces of nodes: all, or those of one name, or on one network.
pub(crate) fn interfaces(
    lab: &Lab,
    nodes: &[NodeId],
    name: Option<&str>,
    network: Option<NetworkId>,
) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    for &node in nodes {
        let of = &lab.nodes[node];
        if of.interfaces.iter().any(|interface| lab.networks[interface.network].driver == DriverKind::Host) {
            return Err(Failure::usage(format!(
                "choose interfaces: {} is on driver host, where it has none of its own\nHint: conditions take another driver, such as bridge",
                of.name
            )));
        }
        let fits = |slot: &usize| {
            let interface = &of.interfaces[*slot];
            name.is_none_or(|name| interface.name == name) && network.is_none_or(|only| interface.network == only)
        };
        let before = places.len();
        places.extend((0..of.interfaces.len()).filter(fits).map(|slot| (node, slot)));
        if let Some(name) = name.filter(|_| places.len() == before) {
            let known: Vec<&str> = of.interfaces.iter().map(|interface| interface.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "choose interfaces: {} has no {name}\nHint: it has {}",
                of.name,
                known.join(", ")
            )));
        }
    }
    if places.is_empty() {
        return Err(Failure::usage(
            "choose interfaces: these nodes have none there\nHint: `slipway inspect` shows them",
        ));
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// The network of this name.
pub(crate) fn network(lab: &Lab, name: Option<&str>) -> Result<Option<NetworkId>, Failure> {
    let Some(name) = name else { return Ok(None) };
    let found = lab.networks.position(|network| network.name == name);
    let known: Vec<&str> = lab.networks.iter().map(|network| network.name.as_str()).collect();
    found.map(Some).ok_or_else(|| {
        Failure::usage(format!("choose a network: there is no `{name}`\nHint: there are {}", known.join(", ")))
    })
}

/// `n1,n2->n3`, as [`target`] reads it.
pub(crate) fn pair_named(lab: &Lab, pair: &Pair) -> String {
    format!("{}->{}", labs::names(lab, &pair.from).join(","), labs::names(lab, &pair.to).join(","))
}

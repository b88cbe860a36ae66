//! Changes of links: found possible, then made, or taken back where the kernel refuses.

use std::collections::BTreeSet;

use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Direction, LinkAction};

use super::error::LinkError;
use super::gate::{GROUPS, Side};
use super::links::{Around, Links};
use super::live::{Live, Place};
use super::plan::{Lanes, Plan, addresses, arrange, has_interfaces, side};
use super::report::WireState;

/// What a change comes to, before any of it is so.
struct Asked {
    live: Live,
    lanes: Lanes,
    /// Nodes whose groups in partitions change.
    moved: Vec<(NodeId, Side)>,
    /// Interfaces that it may concern, as they are to be.
    plans: Vec<(Place, Plan)>,
}

impl Links {
    /// Whether everything that the lab file asks of links can be had here. Changes nothing.
    pub(crate) fn check(&self, lab: &Lab) -> Result<(), LinkError> {
        self.plans(lab, every_place(lab, lab.nodes.ids())).map(drop)
    }

    /// Makes the links of nodes as they are asked to be.
    pub(crate) fn establish(&mut self, around: &Around<'_>, nodes: &[NodeId]) -> Result<(), LinkError> {
        let plans = self.plans(around.lab, every_place(around.lab, nodes.iter().copied()))?;
        self.refresh(around, plans)
    }

    /// Changes links, until something changes them again or, as overlay `number`, until that is lifted. What cannot be
    /// is refused, and nothing is changed.
    pub(crate) fn change(
        &mut self,
        around: &Around<'_>,
        number: Option<usize>,
        action: LinkAction,
    ) -> Result<(), LinkError> {
        let places = about(around.lab, &action);
        self.check_action(around.lab, &action, &places)?;
        let asked = self.asked(around.lab, places, |live| match number {
            Some(number) => live.lay(number, action),
            None => live.change(action),
        })?;
        self.enact(around, asked)
    }

    /// Has interfaces of nodes pass nothing, silently, and without a change of what is asked of them; or ends that. Nodes on
    /// driver `host` have none of their own.
    pub(crate) fn still(&mut self, around: &Around<'_>, nodes: &[NodeId], still: bool) -> Result<(), LinkError> {
        let asked = self.asked_still(around.lab, nodes, still)?;
        self.enact(around, asked)
    }

    /// Puts in place what [`still`](Self::still) will need of these nodes. Until then packets pass as they do now, and
    /// fast connections stay. It stays until [`settle`](Self::settle).
    pub(crate) fn prepare_still(&mut self, around: &Around<'_>, nodes: &[NodeId]) -> Result<(), LinkError> {
        let asked = self.asked_still(around.lab, nodes, true)?;
        self.all_ready(around, asked)
    }

    fn asked_still(&self, lab: &Lab, nodes: &[NodeId], still: bool) -> Result<Asked, LinkError> {
        self.asked(lab, every_place(lab, nodes.iter().copied()), |live| {
            for &node in nodes {
                let _ = if still { live.still.insert(node) } else { live.still.remove(&node) };
            }
        })
    }

    /// Notes that a node's interfaces have been made again, with nothing on them.
    pub(crate) fn renew(&mut self, node: NodeId) {
        let its = self.interfaces.iter_mut().filter(|(place, _)| place.0 == node);
        its.for_each(|(_, interface)| interface.renew());
    }

    /// Has dead nodes answer and pass nothing any more, where what they sent before may still wait in their links: that goes on
    /// to its peers. Gives these nodes; the others' links may be taken away at once.
    pub(crate) fn bury(&mut self, around: &Around<'_>, nodes: &[NodeId]) -> Result<BTreeSet<NodeId>, LinkError> {
        if self.wire_state == WireState::Dead {
            // Nothing waits, and a death is no reason to start another wire.
            return Ok(BTreeSet::new());
        }
        let mut holding = BTreeSet::new();
        for place in every_place(around.lab, nodes.iter().copied()) {
            if self.plan_now(around.lab, place)?.holds() {
                holding.insert(place.0);
            }
        }
        // Where no gate can be had, links of dead nodes are silenced in another way, and what waits is lost.
        if self.means.get().is_none_or(|means| means.gate.is_err()) {
            holding.clear();
        }
        if !holding.is_empty() {
            let asked = self.asked(around.lab, every_place(around.lab, holding.iter().copied()), |live| {
                live.dead.extend(&holding);
            })?;
            self.enact(around, asked)?;
        }
        Ok(holding)
    }

    /// Notes that nodes start anew, and are frozen or dead no longer.
    pub(crate) fn wake(&mut self, nodes: &[NodeId]) {
        self.live.still.retain(|node| !nodes.contains(node));
        self.live.dead.retain(|node| !nodes.contains(node));
    }

    /// Puts in place what an action will need, so that little is left to do when its time comes. Until then it lets pass
    /// what passes now, but its nodes count as altered already. It stays until [`settle`](Self::settle).
    pub(crate) fn prepare(&mut self, around: &Around<'_>, action: LinkAction) -> Result<(), LinkError> {
        let places = about(around.lab, &action);
        self.check_action(around.lab, &action, &places)?;
        let shapes = matches!(action, LinkAction::Link { .. } | LinkAction::Pair(_));
        let asked = self.asked(around.lab, places, |live| live.change(action))?;
        for ((node, _), _) in &asked.plans {
            *self.coming.entry(*node).or_default() |= shapes;
        }
        self.all_ready(around, asked)
    }

    fn all_ready(&mut self, around: &Around<'_>, asked: Asked) -> Result<(), LinkError> {
        if self.wire_state == WireState::Dead {
            // The next change sees to that.
            return Ok(());
        }
        asked.plans.into_iter().try_for_each(|(place, plan)| {
            let prepared = self.make_ready(around, place, &plan);
            prepared.map_err(LinkError::at("prepare", around.lab, place))
        })
    }

    /// Takes away what was prepared and is not needed.
    pub(crate) fn settle(&mut self, around: &Around<'_>) -> Result<(), LinkError> {
        self.coming.clear();
        let places = std::mem::take(&mut self.ready);
        let plans = self.plans(around.lab, places)?;
        self.refresh(around, plans)
    }

    /// Whether an action is about what there is, and its conditions can hold together with those that hold already.
    fn check_action(&self, lab: &Lab, action: &LinkAction, places: &BTreeSet<Place>) -> Result<(), LinkError> {
        let exists = |&(node, slot): &Place| lab.nodes.get(node).is_some_and(|node| slot < node.interfaces.len());
        let nodes = action.nodes();
        if nodes.iter().any(|&node| lab.nodes.get(node).is_none()) || !places.iter().all(exists) {
            return Err(LinkError::UnknownInterface);
        }
        if let Some(&node) = nodes.iter().find(|&&node| !has_interfaces(lab, node)) {
            return Err(LinkError::HostDriver(lab.nodes[node].name.clone()));
        }
        if let LinkAction::Partition { groups } = action {
            if groups.len() > GROUPS {
                return Err(LinkError::TooManyGroups(groups.len()));
            }
            let mut seen = BTreeSet::new();
            if let Some(&twice) = groups.iter().flatten().find(|&node| !seen.insert(node)) {
                return Err(LinkError::InTwoGroups(lab.nodes[twice].name.clone()));
            }
        }
        let (direction, change) = match action {
            LinkAction::Link { direction, change, .. } => (*direction, change),
            LinkAction::Pair(pair) => (Direction::Egress, &pair.change),
            _ => return Ok(()),
        };
        for &place in places {
            let base = &lab.nodes[place.0].interfaces[place.1].conditions;
            let base = if direction == Direction::Egress { &base.egress } else { &base.ingress };
            let now = self.live.conditions(base, place, direction);
            let checked = change.checked(&now);
            checked.map_err(|source| LinkError::Contradiction { interface: lab.port_name(place), source })?;
        }
        Ok(())
    }

    /// Ends an overlay. One that there is not is fine.
    pub(crate) fn lift(&mut self, around: &Around<'_>, number: usize) -> Result<(), LinkError> {
        let Some(action) = self.live.overlay(number) else { return Ok(()) };
        let places = about(around.lab, action);
        let asked = self.asked(around.lab, places, |live| live.lift(number))?;
        self.enact(around, asked)
    }

    /// Makes all links what the lab file says.
    pub(crate) fn restore(&mut self, around: &Around<'_>) -> Result<(), LinkError> {
        self.ready.clear();
        self.coming.clear();
        let places = self.interfaces.keys().copied().collect();
        let asked = self.asked(around.lab, places, |live| *live = live.anew())?;
        self.enact(around, asked)
    }

    /// What there is to do at `places`, and wherever partitions change, once `change` is made. What cannot be is refused.
    fn asked(
        &self,
        lab: &Lab,
        mut places: BTreeSet<Place>,
        change: impl FnOnce(&mut Live),
    ) -> Result<Asked, LinkError> {
        let mut live = self.live.clone();
        change(&mut live);
        let lanes = arrange(&self.lanes, live.partitions());
        let lanes = lanes.ok_or_else(|| LinkError::TooManyPartitions(self.lanes.len()))?;
        // Most changes are of no partition.
        let may_move = lanes != self.lanes;
        let moved: Vec<(NodeId, Side)> = lab
            .nodes
            .ids()
            .filter(|_| may_move)
            .map(|node| (node, side(&lanes, node)))
            .filter(|&(node, now)| now != side(&self.lanes, node))
            .collect();
        places.extend(every_place(lab, moved.iter().map(|&(node, _)| node)));
        let planned = |place| Ok((place, self.plan(lab, &live, &lanes, place)?));
        let plans = places.into_iter().map(planned).collect::<Result<_, LinkError>>()?;
        Ok(Asked { live, lanes, moved, plans })
    }

    /// Makes it so, or leaves all as it was: what is believed of links is what the kernel took.
    fn enact(&mut self, around: &Around<'_>, asked: Asked) -> Result<(), LinkError> {
        let Asked { live, lanes, moved, plans } = asked;
        let places: Vec<Place> = plans.iter().map(|&(place, _)| place).collect();
        let before = (std::mem::replace(&mut self.live, live), std::mem::replace(&mut self.lanes, lanes));
        let Err(failure) = self.put(around, &moved, plans) else { return Ok(()) };
        (self.live, self.lanes) = before;
        let moved: Vec<(NodeId, Side)> = moved.iter().map(|&(node, _)| (node, side(&self.lanes, node))).collect();
        let undone = self.plans(around.lab, places).and_then(|plans| self.put(around, &moved, plans));
        Err(match undone {
            Ok(()) => failure,
            Err(undo) => LinkError::Undo { failure: Box::new(failure), undo: Box::new(undo) },
        })
    }

    /// Brings the kernel in step with these groups of nodes and these plans. All are tried; the first failure is told.
    fn put(
        &mut self,
        around: &Around<'_>,
        sides: &[(NodeId, Side)],
        plans: Vec<(Place, Plan)>,
    ) -> Result<(), LinkError> {
        let mut outcome = Ok(());
        for &(node, side) in sides {
            let networks = around.lab.nodes[node].interfaces.iter().map(|interface| interface.network);
            for address in networks.flat_map(|network| addresses(around.lab, node, network)) {
                let set = self.gates(around.lab)?.set_side(address, side);
                outcome = outcome.and(set.map_err(LinkError::system("part the nodes")));
            }
            // One that may take any address is known by what its port keeps it to.
            let of = &around.lab.nodes[node];
            for interface in of.interfaces.iter().filter(|_| of.rules_its_network()) {
                let set = self.gates(around.lab)?.set_side_behind(interface.mac, side);
                outcome = outcome.and(set.map_err(LinkError::system("part the nodes")));
            }
        }
        outcome.and(self.refresh(around, plans))
    }

    /// Brings the kernel in step with these plans. All are tried; the first failure is told.
    fn refresh(&mut self, around: &Around<'_>, mut plans: Vec<(Place, Plan)>) -> Result<(), LinkError> {
        if self.wire_state == WireState::Dead {
            // A new wire knows nothing of the ports of the old one.
            let silent = self.interfaces.iter().filter(|(_, interface)| interface.plan.takes_wire());
            let silent =
                silent.map(|(&place, _)| place).filter(|place| plans.iter().all(|(planned, _)| planned != place));
            plans.extend(self.plans(around.lab, silent)?);
        }
        let mut outcome = Ok(());
        for (place, plan) in plans {
            let made = self.make(around, place, plan);
            outcome = outcome.and(made.map_err(LinkError::at("set conditions of", around.lab, place)));
        }
        outcome
    }
}

/// All interfaces of nodes that have any of their own.
fn every_place(lab: &Lab, nodes: impl Iterator<Item = NodeId>) -> BTreeSet<Place> {
    let with_interfaces = nodes.filter(|&node| has_interfaces(lab, node));
    with_interfaces.flat_map(|node| (0..lab.nodes[node].interfaces.len()).map(move |slot| (node, slot))).collect()
}

/// The interfaces whose packets an action is about, partitions aside.
fn about(lab: &Lab, action: &LinkAction) -> BTreeSet<Place> {
    match action {
        LinkAction::Pair(pair) => {
            let senders = every_place(lab, pair.from.iter().copied()).into_iter();
            senders.filter(|&(node, slot)| pair.is_from(node, lab.nodes[node].interfaces[slot].network)).collect()
        }
        other => other.interfaces().iter().copied().collect(),
    }
}

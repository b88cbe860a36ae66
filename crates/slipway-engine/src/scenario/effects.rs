//! What events have changed and nobody has taken back yet; and what an event still has to do, given that.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use slipway_lab::id::{List, NodeId};
use slipway_lab::scenario::{Action, Event, Kill, Order, Schedule};

use super::platform::Act;
use super::replaced;

/// Changes that hold, and nodes as the scenario has them.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    /// By the event that made them.
    holding: BTreeMap<usize, Holding<'a>>,
    nodes: List<NodeId, Node>,
    /// Events of which something else takes back what they changed.
    passing: BTreeSet<usize>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    alive: bool,
    /// Kills that are under way.
    ending: u32,
    /// Starts that are under way.
    starting: u32,
}

/// What an event did and nobody has taken back.
#[expect(clippy::large_enum_variant, reason = "nearly every one is an order")]
#[derive(Debug, Clone, PartialEq)]
enum Holding<'a> {
    /// An order, with the nodes that it really was about.
    Order(Cow<'a, Order>),
    /// Its programs run.
    Runs,
}

/// What becomes of an event.
#[expect(clippy::large_enum_variant, reason = "nearly every one is an order")]
#[derive(Debug, PartialEq)]
pub(super) enum Decision<'a> {
    /// It acts; the note says where not wholly.
    Act(Act<'a>, Option<String>),
    /// There is nothing for it to do. Why.
    Skip(String),
    /// A node of it is on its way up or down; not before that is over.
    Hold,
}

impl<'a> Effects<'a> {
    pub(super) fn new(schedule: &Schedule, alive: List<NodeId, bool>) -> Self {
        let nodes = alive.into_iter().map(|alive| Node { alive, ..Node::default() }).collect();
        let restored = |event: &Event| if let Action::Restore { event } = event.action { Some(event) } else { None };
        Self { holding: BTreeMap::new(), nodes, passing: schedule.events.iter().filter_map(restored).collect() }
    }

    /// Forgets the changes that the order of event `number` hides for good, since both last until the end; says which.
    fn forget_hidden(&mut self, number: usize, order: &Order) -> Vec<usize> {
        if self.passing.contains(&number) {
            return Vec::new();
        }
        let lasts = |event: usize| !self.passing.contains(&event);
        let hidden = |(&event, holding): (&usize, &Holding<'a>)| match holding {
            Holding::Order(earlier) => (lasts(event) && replaced::hides(order, earlier)).then_some(event),
            Holding::Runs => None,
        };
        // A player that goes on after a crash may make the same change again.
        let hidden: Vec<usize> = self.holding.iter().filter_map(hidden).filter(|&event| event != number).collect();
        for event in &hidden {
            self.holding.remove(event);
        }
        hidden
    }

    /// Notes that the programs of an event have ended.
    pub(super) fn programs_ended(&mut self, number: usize) {
        self.holding.remove(&number);
    }

    /// True while a kill or start of the node is under way.
    pub(super) fn is_busy(&self, node: NodeId) -> bool {
        self.nodes[node].ending > 0 || self.nodes[node].starting > 0
    }

    /// Notes that nodes run.
    pub(super) fn come(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            self.nodes[node].alive = true;
        }
    }

    /// Notes that nodes have ended. One that is gone is frozen no longer, and comes back thawed.
    pub(super) fn go(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            self.nodes[node].alive = false;
        }
        self.forget_frozen(nodes);
    }

    fn forget_frozen(&mut self, nodes: &[NodeId]) {
        for holding in self.holding.values_mut() {
            if let Holding::Order(order) = holding
                && let Order::Freeze { nodes: frozen } = &**order
                && frozen.iter().any(|node| nodes.contains(node))
            {
                let frozen = frozen.iter().copied().filter(|node| !nodes.contains(node)).collect();
                *holding = Holding::Order(Cow::Owned(Order::Freeze { nodes: frozen }));
            }
        }
    }

    /// What `action` has to do now. `name` tells a node's name.
    pub(super) fn decide(&self, action: &'a Action, name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        let busy = |nodes: &[NodeId]| nodes.iter().any(|&node| self.is_busy(node));
        match action {
            Action::Restore { event } => self.take_back(*event, name),
            Action::Run { nodes, .. } if busy(nodes) => Decision::Hold,
            Action::Run { nodes, command } => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Run(nodes, command))
            }
            Action::Order(order @ (Order::Links(_) | Order::Node { .. })) => {
                Decision::Act(Act::Order(Cow::Borrowed(order)), None)
            }
            // Held back by no other kill: a hard one may well end a graceful one that takes its time.
            Action::Order(Order::Kill { nodes, .. }) if nodes.iter().any(|&node| self.nodes[node].starting > 0) => {
                Decision::Hold
            }
            Action::Order(Order::Kill { nodes, how }) => self.kill(nodes, *how, name),
            Action::Order(order) if busy(order.nodes()) => Decision::Hold,
            Action::Order(Order::Start { nodes }) => self.start(nodes, name),
            Action::Order(Order::Freeze { nodes }) => self.freeze(nodes, name),
            Action::Order(Order::Thaw { nodes }) => self.thaw(nodes, name),
        }
    }

    fn kill(&self, nodes: &[NodeId], how: Kill, name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        self.of_those(nodes, true, name, "not running", |nodes| owned(Order::Kill { nodes, how }))
    }

    fn start(&self, nodes: &[NodeId], name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        self.of_those(nodes, false, name, "running already", |nodes| owned(Order::Start { nodes }))
    }

    fn freeze(&self, nodes: &[NodeId], name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        self.of_those(nodes, true, name, "not running", |nodes| owned(Order::Freeze { nodes }))
    }

    fn thaw(&self, nodes: &[NodeId], name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        self.of_those(nodes, true, name, "not running", |nodes| owned(Order::Thaw { nodes }))
    }

    /// How to undo what event `number` did, as far as it still holds.
    fn take_back(&self, number: usize, name: &dyn Fn(NodeId) -> String) -> Decision<'a> {
        let order = match self.holding.get(&number) {
            None => return Decision::Skip(format!("event {number} has changed nothing that still holds")),
            Some(Holding::Runs) => return Decision::Act(Act::EndPrograms(number), None),
            Some(Holding::Order(order)) => &**order,
        };
        match order {
            Order::Links(_) | Order::Node { .. } => Decision::Act(Act::Undo(number), None),
            order if order.nodes().iter().any(|&node| self.is_busy(node)) => Decision::Hold,
            Order::Kill { nodes, .. } => self.start(nodes, name),
            Order::Start { nodes } => self.kill(nodes, Kill::Soft, name),
            Order::Freeze { nodes } => {
                // Another event's freeze may still be to last.
                let (held, free): (Vec<NodeId>, Vec<NodeId>) =
                    nodes.iter().partition(|node| self.frozen_by_others(number, **node));
                match self.thaw(&free, name) {
                    Decision::Act(act, None) if !held.is_empty() => {
                        Decision::Act(act, Some(list(&held, name, "frozen by another event too")))
                    }
                    Decision::Skip(_) if !held.is_empty() => {
                        Decision::Skip(list(nodes, name, "frozen by another event too, or not running"))
                    }
                    other => other,
                }
            }
            Order::Thaw { nodes } => self.freeze(nodes, name),
        }
    }

    fn frozen_by_others(&self, number: usize, node: NodeId) -> bool {
        self.holding.iter().any(|(&other, holding)| {
            let Holding::Order(order) = holding else { return false };
            other != number && matches!(&**order, Order::Freeze { nodes } if nodes.contains(&node))
        })
    }

    /// The act for those of `nodes` that are alive, or dead, as `wanted`.
    fn of_those(
        &self,
        nodes: &[NodeId],
        wanted: bool,
        name: &dyn Fn(NodeId) -> String,
        otherwise: &str,
        act: impl FnOnce(Vec<NodeId>) -> Act<'a>,
    ) -> Decision<'a> {
        let (fit, unfit): (Vec<NodeId>, Vec<NodeId>) =
            nodes.iter().partition(|node| self.nodes[**node].alive == wanted);
        let note = (!unfit.is_empty()).then(|| list(&unfit, name, otherwise));
        if fit.is_empty() {
            return Decision::Skip(note.unwrap_or_else(|| "it is about no node".to_owned()));
        }
        Decision::Act(act(fit), note)
    }

    /// Notes that `act` has begun for event `number`, of which `action` is what the schedule says.
    pub(super) fn begin(&mut self, number: usize, action: &'a Action, act: &Act<'a>) {
        match of_act(act) {
            Some(Order::Kill { nodes, .. }) => {
                for &node in nodes {
                    self.nodes[node].ending += 1;
                }
            }
            Some(Order::Start { nodes }) => {
                for &node in nodes {
                    self.nodes[node].starting += 1;
                }
            }
            Some(Order::Thaw { nodes }) => self.forget_frozen(nodes),
            _ => {}
        }
        let restores =
            if let Action::Restore { event } = action { self.holding.remove(event).is_some() } else { false };
        let holding = match act {
            // What takes a thaw back is to be taken back itself; any other end of a change is the end of it.
            Act::Order(order)
                if restores && matches!(**order, Order::Kill { .. } | Order::Start { .. } | Order::Thaw { .. }) =>
            {
                return;
            }
            Act::Order(order) => Holding::Order(order.clone()),
            Act::Run(..) => Holding::Runs,
            Act::Undo(_) | Act::EndPrograms(_) => return,
        };
        self.holding.insert(number, holding);
    }

    /// Notes that event `number` took effect while an earlier player played.
    pub(super) fn remember(&mut self, number: usize, action: &'a Action) {
        let holding = match action {
            Action::Order(order) => {
                if let Order::Thaw { nodes } = order {
                    self.forget_frozen(nodes);
                }
                self.forget_hidden(number, order);
                Holding::Order(Cow::Borrowed(order))
            }
            Action::Run { .. } => Holding::Runs,
            // As in `begin`: what takes a thaw back is to be taken back itself.
            Action::Restore { event } => {
                let Some(Holding::Order(order)) = self.holding.remove(event) else { return };
                let Order::Thaw { nodes } = order.into_owned() else { return };
                Holding::Order(Cow::Owned(Order::Freeze { nodes }))
            }
        };
        self.holding.insert(number, holding);
    }

    /// Notes that `act` of event `number` is over, and says which changes of others it hides for good.
    pub(super) fn finish(&mut self, number: usize, act: &Act<'a>, went_well: bool) -> Vec<usize> {
        let order = of_act(act);
        match order {
            Some(Order::Kill { nodes, .. }) => {
                for &node in nodes {
                    self.nodes[node].ending -= 1;
                }
                if went_well {
                    self.go(nodes);
                }
            }
            Some(Order::Start { nodes }) => {
                for &node in nodes {
                    self.nodes[node].starting -= 1;
                }
                if went_well {
                    self.come(nodes);
                }
            }
            _ => {}
        }
        if !went_well {
            self.holding.remove(&number);
            return Vec::new();
        }
        order.map(|order| self.forget_hidden(number, order)).unwrap_or_default()
    }

    /// What is to be undone when the playing is over, the latest first. Nodes stay as they are, up or down.
    pub(super) fn leftovers(&self) -> Vec<(usize, Act<'a>)> {
        let undo = |(&number, holding): (&usize, &Holding<'a>)| {
            let order = match holding {
                Holding::Runs => return Some((number, Act::EndPrograms(number))),
                Holding::Order(order) => &**order,
            };
            match order {
                Order::Links(_) | Order::Node { .. } => Some((number, Act::Undo(number))),
                Order::Freeze { nodes } => {
                    let nodes: Vec<NodeId> = nodes.iter().copied().filter(|&node| self.nodes[node].alive).collect();
                    (!nodes.is_empty()).then(|| (number, owned(Order::Thaw { nodes })))
                }
                Order::Kill { .. } | Order::Start { .. } | Order::Thaw { .. } => None,
            }
        };
        self.holding.iter().rev().filter_map(undo).collect()
    }
}

fn owned<'a>(order: Order) -> Act<'a> {
    Act::Order(Cow::Owned(order))
}

fn of_act<'o>(act: &'o Act<'_>) -> Option<&'o Order> {
    if let Act::Order(order) = act { Some(order) } else { None }
}

fn list(nodes: &[NodeId], name: &dyn Fn(NodeId) -> String, what: &str) -> String {
    let names: Vec<String> = nodes.iter().map(|&node| name(node)).collect();
    format!("{what}: {}", names.join(", "))
}

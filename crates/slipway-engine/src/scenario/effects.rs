//! What events have changed and nobody has taken back yet; and what an event still has to do, given that.

use std::collections::{BTreeMap, BTreeSet};

use slipway_lab::scenario::{Action, Event, Kill as How, Schedule};

use super::platform::Act;
use super::replaced;
use crate::protocol::{Freeze, Kill, Start, Thaw};

/// Changes that hold, and nodes as the scenario has them.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    /// By the event that made them.
    holding: BTreeMap<usize, Holding<'a>>,
    nodes: Vec<Node>,
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

/// A change, with the nodes that it really was about.
#[derive(Debug, Clone, PartialEq)]
enum Holding<'a> {
    Change(&'a Action),
    Killed(Vec<usize>),
    Started(Vec<usize>),
    Frozen(Vec<usize>),
    Thawed(Vec<usize>),
    Runs,
}

/// What becomes of an event.
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
    pub(super) fn new(schedule: &Schedule, alive: Vec<bool>) -> Self {
        let nodes = alive.into_iter().map(|alive| Node { alive, ..Node::default() }).collect();
        let restored = |event: &Event| if let Action::Restore { event } = event.action { Some(event) } else { None };
        Self { holding: BTreeMap::new(), nodes, passing: schedule.events.iter().filter_map(restored).collect() }
    }

    /// Forgets the changes that `action` of event `number` hides for good, since both last until the end; says which.
    fn forget_hidden(&mut self, number: usize, action: &Action) -> Vec<usize> {
        if self.passing.contains(&number) {
            return Vec::new();
        }
        let lasts = |event: usize| !self.passing.contains(&event);
        let hidden = |(&event, holding): (&usize, &Holding<'a>)| match holding {
            Holding::Change(earlier) => (lasts(event) && replaced::hides(action, earlier)).then_some(event),
            _ => None,
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
    pub(super) fn is_busy(&self, node: usize) -> bool {
        self.nodes[node].ending > 0 || self.nodes[node].starting > 0
    }

    /// Notes that nodes run.
    pub(super) fn come(&mut self, nodes: &[usize]) {
        for &node in nodes {
            self.nodes[node].alive = true;
        }
    }

    /// Notes that nodes have ended. One that is gone is frozen no longer, and comes back thawed.
    pub(super) fn go(&mut self, nodes: &[usize]) {
        for &node in nodes {
            self.nodes[node].alive = false;
        }
        self.forget_frozen(nodes);
    }

    fn forget_frozen(&mut self, nodes: &[usize]) {
        for holding in self.holding.values_mut() {
            if let Holding::Frozen(frozen) = holding {
                frozen.retain(|node| !nodes.contains(node));
            }
        }
    }

    /// What `action` has to do now. `name` tells a node's name.
    pub(super) fn decide(&self, action: &'a Action, name: &dyn Fn(usize) -> String) -> Decision<'a> {
        let busy = |nodes: &[usize]| nodes.iter().any(|&node| self.is_busy(node));
        match action {
            Action::Links(_) | Action::Node { .. } => Decision::Act(Act::Change(action), None),
            // Held back by no other kill: a hard one may well end a graceful one that takes its time.
            Action::Kill { nodes, .. } if nodes.iter().any(|&node| self.nodes[node].starting > 0) => Decision::Hold,
            Action::Kill { nodes, how } => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Kill(Kill { nodes, how: *how }))
            }
            Action::Start { nodes } | Action::Freeze { nodes } | Action::Thaw { nodes } | Action::Run { nodes, .. }
                if busy(nodes) =>
            {
                Decision::Hold
            }
            Action::Start { nodes } => {
                self.of_those(nodes, false, name, "running already", |nodes| Act::Start(Start { nodes }))
            }
            Action::Freeze { nodes } => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Freeze(Freeze { nodes }))
            }
            Action::Thaw { nodes } => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Thaw(Thaw { nodes }))
            }
            Action::Run { nodes, command } => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Run(nodes, command))
            }
            Action::Restore { event } => self.take_back(*event, name),
        }
    }

    /// How to undo what event `number` did, as far as it still holds.
    fn take_back(&self, number: usize, name: &dyn Fn(usize) -> String) -> Decision<'a> {
        let Some(holding) = self.holding.get(&number) else {
            return Decision::Skip(format!("event {number} has changed nothing that still holds"));
        };
        if let Holding::Killed(nodes) | Holding::Started(nodes) | Holding::Frozen(nodes) | Holding::Thawed(nodes) =
            holding
            && nodes.iter().any(|&node| self.is_busy(node))
        {
            return Decision::Hold;
        }
        match holding {
            Holding::Change(_) => Decision::Act(Act::Undo(number), None),
            Holding::Killed(nodes) => {
                self.of_those(nodes, false, name, "running already", |nodes| Act::Start(Start { nodes }))
            }
            Holding::Started(nodes) => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Kill(Kill { nodes, how: How::Soft }))
            }
            Holding::Frozen(nodes) => {
                // Another event's freeze may still be to last.
                let (held, free): (Vec<usize>, Vec<usize>) =
                    nodes.iter().partition(|node| self.frozen_by_others(number, **node));
                match self.of_those(&free, true, name, "not running", |nodes| Act::Thaw(Thaw { nodes })) {
                    Decision::Act(act, None) if !held.is_empty() => {
                        Decision::Act(act, Some(list(&held, name, "frozen by another event too")))
                    }
                    Decision::Skip(_) if !held.is_empty() => {
                        Decision::Skip(list(nodes, name, "frozen by another event too, or not running"))
                    }
                    other => other,
                }
            }
            Holding::Thawed(nodes) => {
                self.of_those(nodes, true, name, "not running", |nodes| Act::Freeze(Freeze { nodes }))
            }
            Holding::Runs => Decision::Act(Act::EndPrograms(number), None),
        }
    }

    fn frozen_by_others(&self, number: usize, node: usize) -> bool {
        self.holding.iter().any(|(&other, holding)| {
            other != number && matches!(holding, Holding::Frozen(nodes) if nodes.contains(&node))
        })
    }

    /// The act for those of `nodes` that are alive, or dead, as `wanted`.
    fn of_those(
        &self,
        nodes: &[usize],
        wanted: bool,
        name: &dyn Fn(usize) -> String,
        otherwise: &str,
        act: impl FnOnce(Vec<usize>) -> Act<'a>,
    ) -> Decision<'a> {
        let (fit, unfit): (Vec<usize>, Vec<usize>) = nodes.iter().partition(|node| self.nodes[**node].alive == wanted);
        let note = (!unfit.is_empty()).then(|| list(&unfit, name, otherwise));
        if fit.is_empty() {
            return Decision::Skip(note.unwrap_or_else(|| "it is about no node".to_owned()));
        }
        Decision::Act(act(fit), note)
    }

    /// Notes that `act` has begun for event `number`, of which `action` is what the schedule says.
    pub(super) fn begin(&mut self, number: usize, action: &'a Action, act: &Act<'a>) {
        match act {
            Act::Kill(Kill { nodes, .. }) => {
                for &node in nodes {
                    self.nodes[node].ending += 1;
                }
            }
            Act::Start(Start { nodes }) => {
                for &node in nodes {
                    self.nodes[node].starting += 1;
                }
            }
            Act::Thaw(Thaw { nodes }) => self.forget_frozen(nodes),
            _ => {}
        }
        let restores =
            if let Action::Restore { event } = action { self.holding.remove(event).is_some() } else { false };
        let holding = match act {
            // What takes a thaw back is to be taken back itself; any other end of a change is the end of it.
            Act::Kill(..) | Act::Start(_) | Act::Thaw(_) if restores => return,
            Act::Change(action) => Holding::Change(action),
            Act::Kill(Kill { nodes, .. }) => Holding::Killed(nodes.clone()),
            Act::Start(Start { nodes }) => Holding::Started(nodes.clone()),
            Act::Freeze(Freeze { nodes }) => Holding::Frozen(nodes.clone()),
            Act::Thaw(Thaw { nodes }) => Holding::Thawed(nodes.clone()),
            Act::Run(..) => Holding::Runs,
            Act::Undo(_) | Act::EndPrograms(_) => return,
        };
        self.holding.insert(number, holding);
    }

    /// Notes that event `number` took effect while an earlier player played.
    pub(super) fn remember(&mut self, number: usize, action: &'a Action) {
        let holding = match action {
            Action::Kill { nodes, .. } => Holding::Killed(nodes.clone()),
            Action::Start { nodes } => Holding::Started(nodes.clone()),
            Action::Freeze { nodes } => Holding::Frozen(nodes.clone()),
            Action::Thaw { nodes } => {
                self.forget_frozen(nodes);
                Holding::Thawed(nodes.clone())
            }
            Action::Run { .. } => Holding::Runs,
            // As in `begin`: what takes a thaw back is to be taken back itself.
            Action::Restore { event } => match self.holding.remove(event) {
                Some(Holding::Thawed(nodes)) => Holding::Frozen(nodes),
                _ => return,
            },
            change => {
                self.forget_hidden(number, change);
                Holding::Change(change)
            }
        };
        self.holding.insert(number, holding);
    }

    /// Notes that `act` of event `number` is over, and says which changes of others it hides for good.
    pub(super) fn finish(&mut self, number: usize, act: &Act<'a>, went_well: bool) -> Vec<usize> {
        match act {
            Act::Kill(Kill { nodes, .. }) => {
                for &node in nodes {
                    self.nodes[node].ending -= 1;
                }
                if went_well {
                    self.go(nodes);
                }
            }
            Act::Start(Start { nodes }) => {
                for &node in nodes {
                    self.nodes[node].starting -= 1;
                }
                if went_well {
                    self.come(nodes);
                }
            }
            _ => {}
        }
        match act {
            _ if !went_well => self.holding.remove(&number),
            Act::Change(action) => return self.forget_hidden(number, action),
            _ => None,
        };
        Vec::new()
    }

    /// What is to be undone when the playing is over, the latest first. Nodes stay as they are, up or down.
    pub(super) fn leftovers(&self) -> Vec<(usize, Act<'a>)> {
        let undo = |(&number, holding): (&usize, &Holding<'a>)| match holding {
            Holding::Change(_) => Some((number, Act::Undo(number))),
            Holding::Frozen(nodes) => {
                let nodes: Vec<usize> = nodes.iter().copied().filter(|&node| self.nodes[node].alive).collect();
                (!nodes.is_empty()).then_some((number, Act::Thaw(Thaw { nodes })))
            }
            Holding::Runs => Some((number, Act::EndPrograms(number))),
            Holding::Killed(_) | Holding::Started(_) | Holding::Thawed(_) => None,
        };
        self.holding.iter().rev().filter_map(undo).collect()
    }
}

fn list(nodes: &[usize], name: &dyn Fn(usize) -> String, what: &str) -> String {
    let names: Vec<String> = nodes.iter().map(|&node| name(node)).collect();
    format!("{what}: {}", names.join(", "))
}

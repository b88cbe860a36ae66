//! The action of each kind of entry.

use std::collections::HashSet;

use super::{PlanError, Subject, Turn, text};
use crate::change::{Change, Keys};
use crate::id::NodeId;
use crate::model::{DriverKind, Lab};
use crate::scenario::{
    Action, Choose, Effect, Generator, Kill, LinkAct, LinkAction, NodeAct, Order, Pair, PairAct, Pairs, Port,
    Recording, Selection, Setting, Source, Stream, TraceError, TraceFile, nanoseconds,
};

impl<'a> Turn<'_, 'a> {
    pub(super) fn plan(&mut self) -> Result<(), PlanError> {
        match &self.entry.effect {
            Effect::Nodes { on, act } => self.nodes(on, act),
            Effect::Links { on, act } => self.links(on, act),
            Effect::Pairs { pairs, act } => self.pairs(pairs, act),
            Effect::Partition { sides, rest } => self.partition(sides, *rest),
            Effect::Join => self.repeat(&Subject::ALL, || vec![LinkAction::Join.into()]),
        }
    }

    fn nodes(&mut self, on: &'a Selection<NodeId>, act: &'a NodeAct) -> Result<(), PlanError> {
        let lab = self.planner.lab;
        let name = |node: &NodeId| lab.nodes[*node].name.clone();
        if let NodeAct::Trace { trace, how } = act {
            let nodes = self.picker(on, &Subject::ALL, name).pick();
            return self.replay(trace, |value| match (trace.of.as_str(), value) {
                ("state", "up") => Ok(vec![Order::Start { nodes: nodes.clone() }.into()]),
                ("state", "down") => Ok(vec![Order::Kill { nodes: nodes.clone(), how: *how }.into()]),
                ("state", "freeze") => Ok(vec![Order::Freeze { nodes: nodes.clone() }.into()]),
                ("state", "unfreeze") => Ok(vec![Order::Thaw { nodes: nodes.clone() }.into()]),
                ("state", _) => Err(format!("`{value}` is no state; write up, down, freeze or unfreeze")),
                (key, _) => Ok(vec![Order::Node { nodes: nodes.clone(), change: changed(key, value)? }.into()]),
            });
        }
        if let NodeAct::Churn { how, availability, unavailability } = act {
            return self.come_and_go(on, name, [availability, unavailability], |nodes| {
                [Order::Kill { nodes: nodes.clone(), how: *how }.into(), Order::Start { nodes }.into()]
            });
        }
        for subject in self.subjects(on, name) {
            let mut picker = self.picker(on, &subject, name);
            let mut values = match act {
                NodeAct::Set(setting) => self.values(setting, &subject),
                _ => Vec::new(),
            };
            self.repeat(&subject, || {
                let nodes = picker.pick();
                if nodes.is_empty() {
                    return Vec::new();
                }
                match act {
                    NodeAct::Set(setting) => {
                        vec![Order::Node { nodes, change: drawn(setting, &mut values) }.into()]
                    }
                    NodeAct::Kill(how) => vec![Order::Kill { nodes, how: *how }.into()],
                    NodeAct::Start => vec![Order::Start { nodes }.into()],
                    NodeAct::Restart { grace } => {
                        let how = Kill::Graceful { grace: *grace };
                        vec![Order::Kill { nodes: nodes.clone(), how }.into(), Order::Start { nodes }.into()]
                    }
                    NodeAct::Freeze => vec![Order::Freeze { nodes }.into()],
                    NodeAct::Thaw => vec![Order::Thaw { nodes }.into()],
                    NodeAct::Run { command } => vec![Action::Run { nodes, command: command.clone() }],
                    NodeAct::Churn { .. } | NodeAct::Trace { .. } => Vec::new(),
                }
            })?;
        }
        Ok(())
    }

    fn links(&mut self, on: &'a Selection<Port>, act: &'a LinkAct) -> Result<(), PlanError> {
        let lab = self.planner.lab;
        let name = |port: &Port| lab.port_name(*port);
        if let LinkAct::Trace { direction, trace } = act {
            let interfaces = self.picker(on, &Subject::ALL, name).pick();
            return self.replay(trace, |value| {
                let change = changed(&trace.of, value)?;
                Ok(vec![LinkAction::Link { interfaces: interfaces.clone(), direction: *direction, change }.into()])
            });
        }
        if let LinkAct::Flap { up, down } = act {
            return self.come_and_go(on, name, [up, down], |interfaces| {
                [LinkAction::Cut { interfaces: interfaces.clone() }.into(), LinkAction::Heal { interfaces }.into()]
            });
        }
        for subject in self.subjects(on, name) {
            let mut picker = self.picker(on, &subject, name);
            let mut values = match act {
                LinkAct::Set { setting, .. } => self.values(setting, &subject),
                _ => Vec::new(),
            };
            self.repeat(&subject, || {
                let interfaces = picker.pick();
                match act {
                    _ if interfaces.is_empty() => Vec::new(),
                    LinkAct::Set { direction, setting } => {
                        let change = drawn(setting, &mut values);
                        vec![LinkAction::Link { interfaces, direction: *direction, change }.into()]
                    }
                    LinkAct::Cut => vec![LinkAction::Cut { interfaces }.into()],
                    LinkAct::Heal => vec![LinkAction::Heal { interfaces }.into()],
                    LinkAct::Flap { .. } | LinkAct::Trace { .. } => Vec::new(),
                }
            })?;
        }
        Ok(())
    }

    fn pairs(&mut self, pairs: &'a Pairs, act: &'a PairAct) -> Result<(), PlanError> {
        let both = |change: Change<_>| {
            let Pairs { from, to, network, both } = pairs;
            let ends = [(from, to), (to, from)];
            let ends = ends.into_iter().take(if *both { 2 } else { 1 });
            let action = |(from, to): (&Vec<NodeId>, &Vec<NodeId>)| {
                let (from, to, network, change) = (from.clone(), to.clone(), *network, change.clone());
                LinkAction::Pair(Pair { from, to, network, change }).into()
            };
            ends.map(action).collect()
        };
        match act {
            PairAct::Trace(trace) => self.replay(trace, |value| Ok(both(changed(&trace.of, value)?))),
            PairAct::Set(setting) => {
                let mut values = self.values(setting, &Subject::ALL);
                self.repeat(&Subject::ALL, || both(drawn(setting, &mut values)))
            }
        }
    }

    fn partition(&mut self, sides: &'a [Selection<NodeId>], rest: bool) -> Result<(), PlanError> {
        let lab = self.planner.lab;
        let name = |node: &NodeId| lab.nodes[*node].name.clone();
        let mut pickers: Vec<_> = sides.iter().map(|side| self.picker(side, &Subject::ALL, name)).collect();
        self.repeat(&Subject::ALL, || {
            let mut groups: Vec<Vec<NodeId>> = pickers.iter_mut().map(Picker::pick).collect();
            if rest {
                let taken: HashSet<NodeId> = groups.iter().flatten().copied().collect();
                let left = lab.nodes.ids().filter(|node| !taken.contains(node) && has_link(lab, *node));
                groups.push(left.collect());
            }
            vec![LinkAction::Partition { groups }.into()]
        })
    }

    /// Targets come and go, each for itself where that is drawn.
    fn come_and_go<T: Copy>(
        &mut self,
        on: &'a Selection<T>,
        name: impl Fn(&T) -> String,
        durations: [&'a Generator; 2],
        actions: impl Fn(Vec<T>) -> [Action; 2],
    ) -> Result<(), PlanError> {
        // Subjects are drawn once: the same ones come and go.
        let among = self.picker(on, &Subject::ALL, &name).pick();
        let chosen = Selection { among, choose: None };
        for subject in self.subjects(&chosen, &name) {
            let targets = subject.only.map_or_else(|| chosen.among.clone(), |only| vec![chosen.among[only]]);
            let [going, coming] = actions(targets);
            self.alternate(&subject, durations, [&going, &coming])?;
        }
        Ok(())
    }

    /// Plans what a file says.
    fn replay(
        &mut self,
        file: &'a TraceFile,
        actions: impl Fn(&str) -> Result<Vec<Action>, String>,
    ) -> Result<(), PlanError> {
        let wrong = |error| PlanError::Trace { path: file.path.clone(), error };
        let Recording { points, period } =
            Recording::read(file, text(self.planner.traces, &file.path)?).map_err(wrong)?;
        let mut steps = Vec::new();
        for point in points {
            let what = actions(&point.value).map_err(|message| wrong(TraceError { line: point.line, message }))?;
            steps.push((point.at, what));
        }
        let at = self.entry.when.at.as_ref().map(|at| self.source(at, "at", "").next());
        let Some(begin) = at.map_or(Some(0), nanoseconds) else { return Ok(()) };
        // Without an end of its own, once is enough.
        let last = self.last();
        let period = period.filter(|_| last < u64::MAX);
        let mut round = Some(begin);
        while let Some(from) = round.filter(|from| *from <= last) {
            for (offset, actions) in &steps {
                self.step(1)?;
                let Some(due) = from.checked_add(*offset).filter(|due| *due <= last) else { break };
                for action in actions {
                    self.event(due, action.clone())?;
                }
            }
            round = period.and_then(|period| from.checked_add(period));
        }
        Ok(())
    }

    fn picker<T: Copy>(&self, on: &Selection<T>, subject: &Subject, name: impl Fn(&T) -> String) -> Picker<T> {
        let among: Vec<T> = subject.only.map_or_else(|| on.among.clone(), |only| vec![on.among[only]]);
        let Some(choose) = on.choose else { return Picker { among, draw: None } };
        let streams = among.iter().map(|target| self.stream("choose", &name(target))).collect();
        let count = match choose {
            Choose::Count(count) => count,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
            Choose::Share(share) => (share.0 * among.len() as f64).round() as usize,
        };
        Picker { among, draw: Some((count, streams)) }
    }

    fn values<T: Default>(&self, setting: &'a Setting<T>, subject: &Subject) -> Vec<Source<'a>> {
        setting.drawn.iter().map(|drawn| self.source(&drawn.generator, &drawn.key, &subject.name)).collect()
    }
}

/// Draws some of many. Each has a stream of its own, and those whose numbers are the smallest are it: so one more to draw
/// from takes at most one other's place.
struct Picker<T> {
    among: Vec<T>,
    /// How many, and everybody's stream. `None`: all.
    draw: Option<(usize, Vec<Stream>)>,
}

impl<T: Copy> Picker<T> {
    fn pick(&mut self) -> Vec<T> {
        let Some((count, streams)) = &mut self.draw else { return self.among.clone() };
        let mut lots: Vec<(u64, usize)> = streams.iter_mut().zip(0..).map(|(stream, i)| (stream.word(), i)).collect();
        lots.sort_unstable();
        let mut drawn: Vec<usize> = lots.into_iter().take(*count).map(|(_, i)| i).collect();
        drawn.sort_unstable();
        drawn.into_iter().map(|i| self.among[i]).collect()
    }
}

/// A change with its drawn values.
fn drawn<T: Keys>(setting: &Setting<T>, values: &mut [Source]) -> Change<T> {
    let mut change = setting.change.clone();
    for (drawn, value) in setting.drawn.iter().zip(values) {
        if let Some(value) = value.next() {
            // A key reads each value that its quantity writes.
            let _ = change.put(&drawn.key, &drawn.quantity.write(value));
        }
    }
    change
}

/// A change of one key.
fn changed<T: Keys>(key: &str, value: &str) -> Result<Change<T>, String> {
    let mut change = Change::<T>::default();
    change.put(key, value).map_err(|error| error.to_string())?;
    match change.set.problems().into_iter().find(|problem| problem.needs.is_none()) {
        Some(problem) => Err(problem.to_string()),
        None => Ok(change),
    }
}

/// Whether a node has an interface of its own, which those of driver host have not.
fn has_link(lab: &Lab, node: NodeId) -> bool {
    let mut interfaces = lab.nodes[node].interfaces.iter();
    interfaces.any(|interface| lab.networks[interface.network].driver != DriverKind::Host)
}

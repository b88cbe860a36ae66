//! One log of the logs of all machines, in the same format.

use std::collections::{BTreeMap, BTreeSet};

use slipway_engine::scenario::{nodes, what};
use slipway_lab::id::MachineId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Schedule;
use slipway_measure::play::{Event, Line, Load, OnMachine, Outcome, Restored};

use super::split::concerned;

/// Events of which not every machine has reported.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    lab: &'a Lab,
    schedule: &'a Schedule,
    /// The machines that carry each event out.
    concerned: Vec<BTreeSet<MachineId>>,
    reports: BTreeMap<usize, BTreeMap<MachineId, Event>>,
    begun: BTreeSet<usize>,
    finished: BTreeSet<usize>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(lab: &'a Lab, schedule: &'a Schedule) -> Self {
        let concerned = schedule.events.iter().map(|event| concerned(schedule, lab, &event.action)).collect();
        Self { lab, schedule, concerned, reports: BTreeMap::new(), begun: BTreeSet::new(), finished: BTreeSet::new() }
    }

    fn name(&self, machine: MachineId) -> String {
        self.lab.machines[machine].name.clone()
    }

    fn is_concerned(&self, number: usize, machine: MachineId) -> bool {
        self.concerned.get(number).is_some_and(|concerned| concerned.contains(&machine))
    }

    /// The line of the common log that comes of a machine's line, where one does now.
    pub(super) fn take(&mut self, machine: MachineId, line: Line) -> Option<Line> {
        match line {
            Line::Begun(begun) => (self.is_concerned(begun.number, machine) && self.begun.insert(begun.number))
                .then_some(Line::Begun(begun)),
            Line::Event(event) => {
                let number = event.number;
                if !self.is_concerned(number, machine) || self.finished.contains(&number) {
                    return None;
                }
                let reports = self.reports.entry(number).or_default();
                reports.insert(machine, event);
                (reports.len() == self.concerned[number].len()).then(|| self.finish(number)).flatten()
            }
            Line::Load(load) => Some(Line::Load(Load { machine: Some(self.name(machine)), ..load })),
            Line::Restored(restored) => self
                .is_concerned(restored.number, machine)
                .then(|| Line::Restored(Restored { machine: Some(self.name(machine)), ..restored })),
            // The common log has its own.
            Line::Begin(_) | Line::End(_) | Line::Clocks(_) | Line::Unknown => None,
            line @ (Line::Node(_) | Line::Program(_) | Line::Clock(_)) => Some(line),
        }
    }

    /// The events of which some machine never reported. The log says which.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        let waiting: Vec<usize> = self.reports.keys().copied().collect();
        waiting.into_iter().filter_map(|number| self.finish(number)).collect()
    }

    fn finish(&mut self, number: usize) -> Option<Line> {
        let reports = self.reports.remove(&number)?;
        self.finished.insert(number);
        let first = reports.values().next()?.clone();
        let machines: Vec<OnMachine> = reports
            .iter()
            .map(|(&machine, event)| OnMachine {
                machine: self.name(machine),
                begun: event.begun,
                done: event.done,
                late: event.late,
            })
            .collect();
        let silent: Vec<String> = self.concerned[number]
            .iter()
            .filter(|machine| !reports.contains_key(machine))
            .map(|&machine| self.name(machine))
            .collect();
        let action = &self.schedule.events.get(number)?.action;
        let least = machines.iter().filter_map(|one| one.begun).min();
        Some(Line::Event(Event {
            begun: least,
            done: machines.iter().filter_map(|one| one.done).max(),
            late: machines.iter().filter_map(|one| one.late).max(),
            // A part's words name its own nodes alone.
            what: what(self.lab, self.schedule, action),
            nodes: nodes(self.schedule, action),
            outcome: self.outcome(&reports, &silent),
            machines,
            ..first
        }))
    }

    /// It failed if it did anywhere; and it is done if it is anywhere, with what others say as a note.
    fn outcome(&self, reports: &BTreeMap<MachineId, Event>, silent: &[String]) -> Outcome {
        let told = |pick: fn(&Outcome) -> Option<&String>| -> Vec<String> {
            let told = reports.iter().filter_map(|(&machine, event)| Some((machine, pick(&event.outcome)?)));
            told.map(|(machine, words)| format!("machine {}: {words}", self.name(machine))).collect()
        };
        let failed = told(|outcome| if let Outcome::Failed { reason } = outcome { Some(reason) } else { None });
        if !failed.is_empty() {
            return Outcome::Failed { reason: failed.join("; ") };
        }
        let skipped = told(|outcome| if let Outcome::Skipped { reason } = outcome { Some(reason) } else { None });
        let unplayed = told(|outcome| if let Outcome::Unplayed { reason } = outcome { Some(reason) } else { None });
        if reports.values().any(|event| matches!(event.outcome, Outcome::Done { .. })) {
            let said = told(|outcome| if let Outcome::Done { note } = outcome { note.as_ref() } else { None });
            let lost = silent.iter().map(|name| format!("machine {name}: never reported"));
            let notes: Vec<String> = said.into_iter().chain(skipped).chain(unplayed).chain(lost).collect();
            return Outcome::Done { note: (!notes.is_empty()).then(|| notes.join("; ")) };
        }
        if unplayed.is_empty() {
            return Outcome::Skipped { reason: skipped.join("; ") };
        }
        Outcome::Unplayed { reason: unplayed.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use slipway_lab::id::NodeId;
    use slipway_lab::scenario::{self, Due, Kill, Order};
    use slipway_measure::play::Begun;

    use super::*;

    const FILE: &str = "machines: {a: 192.0.2.1, b: 192.0.2.2, c: 192.0.2.3}\nnodes: {n: {count: 3}}\n";

    fn report(late: u64, outcome: Outcome) -> Line {
        Line::Event(Event {
            number: 0,
            due: 5,
            begun: Some(5 + late / 2),
            done: Some(5 + late),
            late: Some(late),
            what: "kill n1, n2".to_owned(),
            nodes: vec![NodeId(0), NodeId(1)],
            kind: "kill".to_owned(),
            restores: None,
            machines: Vec::new(),
            outcome,
        })
    }

    fn schedule() -> Schedule {
        let kill = Order::Kill { nodes: vec![NodeId(0), NodeId(1)], how: Kill::Soft };
        let event = scenario::Event { number: 0, due: Due(5), entry: 0, action: kill.into() };
        Schedule { seed: 1, length: Due(9), events: vec![event] }
    }

    #[test]
    fn an_event_is_over_when_each_of_its_machines_says_so() {
        let lab = slipway_lab::parse("lab.yaml", FILE, std::path::Path::new("/")).unwrap();
        let (a, b, c) = (MachineId(0), MachineId(1), MachineId(2));
        let schedule = schedule();
        let mut merge = Merge::new(&lab, &schedule);
        let begun = Line::Begun(Begun { number: 0, at: 5 });
        assert_eq!(merge.take(c, begun.clone()), None, "it has none of the nodes");
        assert_eq!(merge.take(b, begun.clone()), Some(begun.clone()));
        assert_eq!(merge.take(a, begun), None, "once");
        assert_eq!(merge.take(c, report(9, Outcome::Skipped { reason: "it is about no node".to_owned() })), None);
        assert_eq!(merge.take(b, report(4, Outcome::Done { note: None })), None);
        let Some(Line::Event(event)) = merge.take(a, report(2, Outcome::Done { note: None })) else { panic!() };
        assert_eq!((event.begun, event.done, event.late), (Some(6), Some(9), Some(4)));
        assert_eq!(event.outcome, Outcome::Done { note: None });
        let names: Vec<&str> = event.machines.iter().map(|one| one.machine.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(merge.take(a, report(2, Outcome::Done { note: None })), None, "not again");
        assert!(merge.rest().is_empty());
    }

    #[test]
    fn a_machine_that_failed_or_is_silent_is_named() {
        let lab = slipway_lab::parse("lab.yaml", FILE, std::path::Path::new("/")).unwrap();
        let (a, b) = (MachineId(0), MachineId(1));
        let schedule = schedule();
        let mut failed = Merge::new(&lab, &schedule);
        failed.take(a, report(2, Outcome::Done { note: None }));
        let line = failed.take(b, report(2, Outcome::Failed { reason: "no".to_owned() }));
        let Some(Line::Event(event)) = line else { panic!("{line:?}") };
        assert_eq!(event.outcome, Outcome::Failed { reason: "machine b: no".to_owned() });
        let mut silent = Merge::new(&lab, &schedule);
        silent.take(a, report(2, Outcome::Done { note: None }));
        let rest = silent.rest();
        let [Line::Event(event)] = rest.as_slice() else { panic!("{rest:?}") };
        assert_eq!(event.outcome, Outcome::Done { note: Some("machine b: never reported".to_owned()) });
    }
}

//! From a scenario and a seed to its schedule. Pure, and the same to the last bit on every machine.

mod act;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::table::Table;
use crate::model::Lab;
use crate::scenario::{
    Action, Due, Entry, Event, Generator, LinkAction, MOST_EVENTS, Order, Scenario, Schedule, Selection, Source,
    Stream, TraceError, Traces, after, durations, nanoseconds,
};

/// The most nodes and interfaces of all events together: what a schedule may fill memory with.
const MOST_TARGETS: usize = 10_000_000;

/// The reason why there is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An entry's events have no end, or are too many.
    #[error(
        "entry {entry} brings the scenario to more than {MOST_EVENTS} events, or {MOST_TARGETS} nodes and interfaces in \
         them; make its `every` longer, or give it `times` or `until`"
    )]
    TooMany {
        /// The entry's name, or its number from 1.
        entry: String,
    },
    /// A trace file was not given.
    #[error("the text of {} is missing; read the files that the scenario names", .0.display())]
    NoTrace(PathBuf),
    /// A trace file says something else.
    #[error("{}:{error}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        error: TraceError,
    },
}

impl Scenario {
    /// Every event that follows from the scenario.
    ///
    /// `seed` holds over the scenario's own, and that over the lab's. `traces` are the texts of [`files`](Self::files).
    ///
    /// # Errors
    /// Too many events, or a trace file that is missing or wrong.
    pub fn plan(&self, lab: &Lab, seed: Option<u64>, traces: &Traces) -> Result<Schedule, PlanError> {
        let seed = seed.or(self.seed).unwrap_or(lab.seed);
        let recorded = self.recorded(traces)?;
        let mut planner = Planner {
            lab,
            seed,
            traces,
            recorded: &recorded,
            end: self.length.map_or(u64::MAX, |length| length.0),
            planned: Vec::new(),
            targets: 0,
            steps: 0,
        };
        for (number, entry) in self.entries.iter().enumerate() {
            Turn { planner: &mut planner, number, entry }.plan()?;
        }
        Ok(planner.finish(self.length))
    }

    /// The numbers of the files that generators read.
    fn recorded<'a>(&'a self, traces: &Traces) -> Result<BTreeMap<&'a Path, Vec<f64>>, PlanError> {
        let files = self.entries.iter().flat_map(Entry::generators).filter_map(Generator::file);
        let read = |path: &'a Path| {
            let durations = durations(text(traces, path)?);
            Ok((path, durations.map_err(|error| PlanError::Trace { path: path.to_owned(), error })?))
        };
        files.map(read).collect()
    }
}

fn text<'a>(traces: &'a Traces, path: &Path) -> Result<&'a str, PlanError> {
    traces.get(path).map(String::as_str).ok_or_else(|| PlanError::NoTrace(path.to_owned()))
}

/// An event before it has its place among the others.
struct Planned {
    due: u64,
    entry: usize,
    action: Action,
}

struct Planner<'a> {
    lab: &'a Lab,
    traces: &'a Traces,
    recorded: &'a BTreeMap<&'a Path, Vec<f64>>,
    seed: u64,
    /// Nanoseconds; nothing is due later.
    end: u64,
    /// In `Restore`, numbers of events are places in here until all have their place.
    planned: Vec<Planned>,
    targets: usize,
    /// How often it was an entry's turn, whether something came of it or not.
    steps: usize,
}

impl Planner<'_> {
    fn finish(mut self, length: Option<Due>) -> Schedule {
        let mut order: Vec<usize> = (0..self.planned.len()).collect();
        // Stable: those due together stay in file order.
        order.sort_by_key(|place| self.planned[*place].due);
        let mut numbers = vec![0; order.len()];
        for (number, place) in order.iter().enumerate() {
            numbers[*place] = number;
        }
        let place = |(number, place): (usize, usize)| {
            let Planned { due, entry, action } = &mut self.planned[place];
            let action = match std::mem::replace(action, LinkAction::Join.into()) {
                Action::Restore { event } => Action::Restore { event: numbers[event] },
                action => action,
            };
            Event { number, due: Due(*due), entry: *entry, action }
        };
        let events: Vec<Event> = order.into_iter().enumerate().map(place).collect();
        let last = events.last().map_or(Due(0), |event| event.due);
        Schedule { seed: self.seed, length: length.unwrap_or(last), events }
    }
}

/// The owner of a random stream: one of an entry's nodes or interfaces, or all of them together.
struct Subject {
    /// Its name; empty for all of them together.
    name: String,
    /// Its place among the targets. `None`: all.
    only: Option<usize>,
    /// How many are looked at each time.
    weight: usize,
}

impl Subject {
    const ALL: Self = Self { name: String::new(), only: None, weight: 1 };
}

/// An entry whose events are being planned.
struct Turn<'p, 'a> {
    planner: &'p mut Planner<'a>,
    number: usize,
    entry: &'a Entry,
}

impl<'a> Turn<'_, 'a> {
    /// The owners of streams: each target where a value is random, or all together where the targets themselves are
    /// random.
    fn subjects<T>(&self, on: &Selection<T>, name: impl Fn(&T) -> String) -> Vec<Subject> {
        let drawn = self.entry.generators().any(Generator::is_random);
        if !drawn || self.entry.together || on.choose.is_some() {
            return vec![Subject { weight: on.among.len().max(1), ..Subject::ALL }];
        }
        let one = |(i, target): (usize, &T)| Subject { name: name(target), only: Some(i), weight: 1 };
        on.among.iter().enumerate().map(one).collect()
    }

    fn stream(&self, purpose: &str, subject: &str) -> Stream {
        Stream::new(self.planner.seed, &["scenario", &self.entry.name, purpose, subject])
    }

    fn source(&self, generator: &'a Generator, purpose: &str, subject: &str) -> Source<'a> {
        let recorded = generator.file().and_then(|path| self.planner.recorded.get(path));
        Source::new(generator, self.stream(purpose, subject), recorded.map(Vec::as_slice).unwrap_or_default())
    }

    /// Plans `actions` for every time that the entry is due for the subject, and what takes them back.
    fn repeat(&mut self, subject: &Subject, mut actions: impl FnMut() -> Vec<Action>) -> Result<(), PlanError> {
        let when = &self.entry.when;
        let source = |generator: &'a Option<Generator>, purpose| {
            generator.as_ref().map(|generator| self.source(generator, purpose, &subject.name))
        };
        let (mut at, mut every) = (source(&when.at, "at"), source(&when.every, "every"));
        let mut hold = source(&self.entry.hold, "for");
        let mut next = match at.as_mut().or(every.as_mut()) {
            Some(first) => nanoseconds(first.next()),
            None => Some(0),
        };
        let last = self.last();
        let mut times = when.times.unwrap_or(u64::MAX);
        while let Some(now) = next.filter(|now| *now <= last && times > 0) {
            self.step(subject.weight)?;
            let over = hold.as_mut().and_then(|hold| after(now, hold.next())).map(|over| over.min(self.planner.end));
            for action in actions() {
                let undone = over.map(|over| (over, undo(&action, self.planner.planned.len())));
                self.event(now, action)?;
                if let Some((over, Some(undone))) = undone {
                    self.event(over, undone)?;
                }
            }
            next = every.as_mut().and_then(|every| after(now, every.next()));
            times -= 1;
        }
        Ok(())
    }

    /// Plans a subject's coming and going: it is there for a while, then goes, and comes back at the latest when the
    /// entry ends.
    fn alternate(
        &mut self,
        subject: &Subject,
        [there, gone]: [&'a Generator; 2],
        [going, coming]: [&Action; 2],
    ) -> Result<(), PlanError> {
        let when = &self.entry.when;
        let at = when.at.as_ref().map(|at| self.source(at, "at", &subject.name).next());
        let mut there = self.source(there, "up", &subject.name);
        let mut gone = self.source(gone, "down", &subject.name);
        let mut now = at.map_or(Some(0), nanoseconds);
        let last = self.last();
        for _ in 0..when.times.unwrap_or(u64::MAX) {
            now = now.and_then(|now| after(now, there.next())).filter(|now| *now <= last);
            let Some(goes) = now else { break };
            self.event(goes, going.clone())?;
            let Some(back) = after(goes, gone.next()) else { break };
            self.event(back.min(last), coming.clone())?;
            now = Some(back);
        }
        Ok(())
    }

    /// When the entry's last event may be due.
    fn last(&self) -> u64 {
        self.entry.when.until.map_or(self.planner.end, |until| until.0.min(self.planner.end))
    }

    /// Counts what is considered, so that planning ends.
    fn step(&mut self, targets: usize) -> Result<(), PlanError> {
        self.planner.steps += targets;
        if self.planner.steps > MOST_TARGETS { Err(self.too_many()) } else { Ok(()) }
    }

    fn event(&mut self, due: u64, action: Action) -> Result<(), PlanError> {
        self.planner.targets += action.targets();
        if self.planner.planned.len() >= MOST_EVENTS || self.planner.targets > MOST_TARGETS {
            return Err(self.too_many());
        }
        self.planner.planned.push(Planned { due, entry: self.number, action });
        Ok(())
    }

    fn too_many(&self) -> PlanError {
        PlanError::TooMany { entry: self.entry.name.clone() }
    }
}

/// The action that takes an action back; `place` is the action's own. `None`: it is over with its beginning.
fn undo(action: &Action, place: usize) -> Option<Action> {
    let Action::Order(order) = action else { return None };
    Some(match order {
        Order::Links(LinkAction::Link { .. } | LinkAction::Pair(_)) | Order::Node { .. } => {
            Action::Restore { event: place }
        }
        Order::Links(LinkAction::Cut { interfaces }) => LinkAction::Heal { interfaces: interfaces.clone() }.into(),
        Order::Links(LinkAction::Partition { .. }) => LinkAction::Join.into(),
        Order::Kill { nodes, .. } => Order::Start { nodes: nodes.clone() }.into(),
        Order::Freeze { nodes } => Order::Thaw { nodes: nodes.clone() }.into(),
        _ => return None,
    })
}

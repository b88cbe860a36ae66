//! The order of things: what is due begins, what is under way is waited for, and everything is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::SystemTime;

use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Event, Kill, Order, Schedule};
use slipway_measure::play::{self, Begun as BegunLine, Clock, End, Line, Load, NodeNews, Program, Restored, Summary};

use super::effects::{Decision, Effects};
use super::error::ActError;
use super::platform::{Act, Begun, Happening, Platform};
use super::words;

/// What is to be played, on which lab.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The lab that the schedule's indices mean.
    pub lab: &'a Lab,
    /// What is due when.
    pub schedule: &'a Schedule,
    /// When it is over.
    pub ends: Ends,
    /// Changes stay when it is over.
    pub keep: bool,
}

/// When a playing is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// With the scenario.
    WithScenario,
    /// With the job beside it; until then, what the scenario changed holds.
    WithJob,
    /// With the later of the two.
    WithBoth,
}

impl Ends {
    /// The reason of an end that comes as it was asked for.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::WithScenario => "the scenario is over",
            Self::WithJob => "the job has ended",
            Self::WithBoth => "the scenario is over and the job has ended",
        }
    }
}

/// How a playing ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why.
    pub why: String,
    /// True: somebody asked for it, before its time.
    pub stopped: bool,
    /// How it went.
    pub summary: Summary,
}

/// Plays a schedule.
pub struct Player<'a, 'p, P> {
    part: Part<'a>,
    platform: &'p mut P,
    log: &'p mut dyn FnMut(&Line) -> io::Result<()>,
    lines: Vec<Line>,
    effects: Effects<'a>,
    /// The scenario's time zero on the platform's clock, moved on by every pause.
    origin: u64,
    /// Since when, on the scenario's clock, it stands still.
    paused: Option<u64>,
    /// The first event that has not been due yet.
    next: usize,
    /// Events that are due and wait for a node.
    held: Vec<usize>,
    under_way: BTreeMap<usize, UnderWay<'a>>,
    /// Events that are in the log of an earlier player.
    settled: BTreeSet<usize>,
    job_ended: bool,
    stop: Option<String>,
}

#[derive(Debug)]
struct UnderWay<'a> {
    act: Act<'a>,
    begun: u64,
    note: Option<String>,
}

impl<'a, 'p, P: Platform> Player<'a, 'p, P> {
    /// A player at the beginning of its part. `alive` says which nodes run; every line of the log goes to `log`.
    pub fn new(
        part: Part<'a>,
        platform: &'p mut P,
        alive: List<NodeId, bool>,
        log: &'p mut dyn FnMut(&Line) -> io::Result<()>,
    ) -> Self {
        let origin = platform.now();
        Self {
            part,
            platform,
            log,
            lines: Vec::new(),
            effects: Effects::new(part.schedule, alive),
            origin,
            paused: None,
            next: 0,
            held: Vec::new(),
            under_way: BTreeMap::new(),
            settled: BTreeSet::new(),
            job_ended: false,
            stop: None,
        }
    }

    /// The same, beginning at a time of the platform's clock.
    #[must_use]
    pub fn beginning_at(self, origin: u64) -> Self {
        Self { origin, ..self }
    }

    /// Plays to the end.
    ///
    /// # Errors
    /// When the log cannot be written, or the machine refuses to wait. What was changed is taken back all the same.
    pub fn play(mut self) -> io::Result<Outcome> {
        while self.stop.is_none() && self.platform.now() < self.origin {
            for happening in self.platform.wait(Some(self.origin))? {
                self.note(happening)?;
            }
        }
        self.whole_play(&[])
    }

    /// Goes on where the log of a player that was killed ends. Its clock goes on from the log's last line,
    /// or never stopped, where it began at `origin` of the platform's clock. Events that
    /// were under way then are done again, which for all but programs is the same as once.
    ///
    /// # Errors
    /// As [`play`](Self::play).
    pub fn play_on(mut self, log: &[Line], origin: Option<u64>) -> io::Result<Outcome> {
        let played: Vec<&play::Event> =
            log.iter().filter_map(|line| if let Line::Event(event) = line { Some(event) } else { None }).collect();
        self.settled = played.iter().map(|event| event.number).collect();
        for event in played.iter().filter(|event| matches!(event.outcome, play::Outcome::Done { .. })) {
            if let Some(Event { action, .. }) = self.part.schedule.events.get(event.number) {
                self.effects.remember(event.number, action);
            }
        }
        let begun = log.iter().filter_map(|line| if let Line::Begun(begun) = line { Some(begun.number) } else { None });
        let unfinished: Vec<usize> = begun.filter(|number| !self.settled.contains(number)).collect();
        let from_log = || self.platform.now().wrapping_sub(log.iter().filter_map(Line::at).max().unwrap_or(0));
        self.origin = origin.unwrap_or_else(from_log);
        self.lines = log.to_vec();
        self.write(Self::clock(self.at(), true, "it goes on after its player was killed"))?;
        self.whole_play(&unfinished)
    }

    fn whole_play(&mut self, unfinished: &[usize]) -> io::Result<Outcome> {
        let played = self.act_out(unfinished);
        let alarms = self.platform.alarms();
        let restored = if self.part.keep { Ok(()) } else { self.restore() };
        let why = played?;
        restored?;
        let summary = Summary::of(self.lines.iter(), alarms);
        let stopped = self.stop.is_some();
        self.write(Line::End(End { at: self.at(), finished: wall(), why: why.clone(), summary: summary.clone() }))?;
        Ok(Outcome { why, stopped, summary })
    }

    fn act_out(&mut self, unfinished: &[usize]) -> io::Result<String> {
        for &number in unfinished {
            if let Some(event) = self.part.schedule.events.get(number) {
                self.again(event)?;
            }
        }
        let why = loop {
            self.begin_due()?;
            if let Some(why) = self.over() {
                break why;
            }
            for happening in self.platform.wait(self.until())? {
                self.note(happening)?;
            }
        };
        self.leave_out_rest(&why)?;
        let insisted = self.stop.take();
        while !self.under_way.is_empty() && self.stop.is_none() {
            for happening in self.platform.wait(None)? {
                self.note(happening)?;
            }
        }
        self.stop = self.stop.take().or(insisted);
        for (number, UnderWay { begun, .. }) in std::mem::take(&mut self.under_way) {
            let reason = "the playing was ended before it had taken effect".to_owned();
            self.write_event(number, Some(begun), None, play::Outcome::Failed { reason })?;
        }
        Ok(why)
    }

    /// An event that was under way when its player was killed.
    fn again(&mut self, event: &'a Event) -> io::Result<()> {
        let number = event.number;
        if matches!(event.action, Action::Run { .. }) {
            let reason = "the player was killed while it began; it is not run twice".to_owned();
            self.write_event(number, None, None, play::Outcome::Failed { reason })?;
        } else if !self.begin(event)? {
            self.held.push(number);
        }
        // Not once more when it is due.
        self.settled.insert(number);
        Ok(())
    }

    /// The scenario's time; zero before it begins.
    fn at(&self) -> u64 {
        self.paused
            .unwrap_or_else(|| self.platform.now().wrapping_sub(self.origin).cast_signed().max(0).cast_unsigned())
    }

    /// Until when there is nothing to do by oneself, on the platform's clock.
    fn until(&self) -> Option<u64> {
        if self.paused.is_some() {
            return None;
        }
        let next = self.part.schedule.events.get(self.next).map(|event| event.due.0);
        let end = self.part.schedule.length.0;
        let until = next.or_else(|| (self.at() < end).then_some(end))?;
        Some(self.origin.wrapping_add(until))
    }

    fn over(&self) -> Option<String> {
        if let Some(why) = &self.stop {
            return Some(why.clone());
        }
        let schedule = self.part.schedule;
        let played = self.paused.is_none()
            && self.next == schedule.events.len()
            && self.held.is_empty()
            && self.under_way.is_empty()
            && self.at() >= schedule.length.0;
        let over = match self.part.ends {
            Ends::WithScenario => played,
            Ends::WithJob => self.job_ended,
            Ends::WithBoth => played && self.job_ended,
        };
        over.then(|| self.part.ends.why().to_owned())
    }

    fn begin_due(&mut self) -> io::Result<()> {
        if self.paused.is_some() {
            return Ok(());
        }
        let events = &self.part.schedule.events;
        for number in std::mem::take(&mut self.held) {
            if !self.begin(&events[number])? {
                self.held.push(number);
            }
        }
        while let Some(event) = events.get(self.next).filter(|event| event.due.0 <= self.at()) {
            self.next += 1;
            if !self.settled.contains(&event.number) && !self.begin(event)? {
                self.held.push(event.number);
            }
        }
        Ok(())
    }

    /// False where it has to wait for a node.
    fn begin(&mut self, event: &'a Event) -> io::Result<bool> {
        let lab = self.part.lab;
        let number = event.number;
        let (act, note) = match self.effects.decide(&event.action, &|node| lab.nodes[node].name.clone()) {
            Decision::Hold => return Ok(false),
            Decision::Skip(reason) => {
                self.write_event(number, None, None, play::Outcome::Skipped { reason })?;
                return Ok(true);
            }
            Decision::Act(act, note) => (act, note),
        };
        let begun = self.at();
        tracing::info!(number, due_ns = event.due.0, begun_ns = begun, "event begins");
        tracing::debug!(number, ?act);
        self.write(Line::Begun(BegunLine { number, at: begun }))?;
        self.effects.begin(number, &event.action, &act);
        let state = self.platform.begin(number, &act);
        self.under_way.insert(number, UnderWay { act, begun, note });
        match state {
            Begun::UnderWay => {}
            Begun::Done => self.finish(number, Ok(()))?,
            Begun::Failed(error) => self.finish(number, Err(error))?,
        }
        Ok(true)
    }

    fn finish(&mut self, number: usize, result: Result<(), ActError>) -> io::Result<()> {
        let Some(UnderWay { act, begun, note }) = self.under_way.remove(&number) else { return Ok(()) };
        let done = self.at();
        let hidden = self.effects.finish(number, &act, result.is_ok());
        self.platform.forget(&hidden);
        let outcome = match result {
            Ok(()) => play::Outcome::Done { note },
            Err(error) => play::Outcome::Failed { reason: error.to_string() },
        };
        let effect = if takes_its_time(&act) { begun } else { done };
        tracing::info!(number, took_ns = done.saturating_sub(begun), ?outcome, "event ends");
        self.write_event(number, Some(begun), Some((done, effect)), outcome)
    }

    fn note(&mut self, happening: Happening) -> io::Result<()> {
        let at = self.at();
        match happening {
            Happening::Finished(number, result) => self.finish(number, result),
            Happening::Waited(number, why) => {
                if let Some(UnderWay { note, .. }) = self.under_way.get_mut(&number) {
                    *note = Some(note.take().map_or(why.clone(), |note| format!("{note}; {why}")));
                }
                Ok(())
            }
            Happening::ProgramsEnded(number, programs) => {
                self.effects.programs_ended(number);
                programs.into_iter().try_for_each(|(node, code)| {
                    let node = self.part.lab.nodes[node].name.clone();
                    self.write(Line::Program(Program { at, number, node, code }))
                })
            }
            // The end of a node that the player itself is ending is no news.
            Happening::NodeEnded(node, _) if self.effects.is_busy(node) => Ok(()),
            Happening::NodeEnded(node, change) => {
                self.effects.go(&[node]);
                let name = self.part.lab.nodes[node].name.clone();
                self.write(Line::Node(NodeNews { at, node, name, change }))
            }
            Happening::NodeStarted(node) => {
                self.effects.come(&[node]);
                Ok(())
            }
            Happening::Pause if self.paused.is_none() => {
                self.paused = Some(at);
                self.write(Self::clock(at, false, "paused"))
            }
            Happening::Resume if self.paused.is_some() => {
                self.paused = None;
                self.origin = self.platform.now().wrapping_sub(at);
                self.write(Self::clock(at, true, "resumed"))
            }
            Happening::Pause | Happening::Resume => Ok(()),
            Happening::JobEnded => {
                self.job_ended = true;
                Ok(())
            }
            Happening::Alone => {
                self.part.ends = Ends::WithScenario;
                Ok(())
            }
            Happening::Stop(why) => {
                self.stop = Some(why);
                Ok(())
            }
            Happening::Load(busy) => self.write(Line::Load(Load { at, busy, machine: None })),
        }
    }

    /// Every event of the schedule is in the log, played or not.
    fn leave_out_rest(&mut self, why: &str) -> io::Result<()> {
        let rest = self.next..self.part.schedule.events.len();
        self.next = rest.end;
        let rest: Vec<usize> = rest.filter(|number| !self.settled.contains(number)).collect();
        for number in std::mem::take(&mut self.held).into_iter().chain(rest) {
            let reason = format!("the playing had ended: {why}");
            self.write_event(number, None, None, play::Outcome::Unplayed { reason })?;
        }
        Ok(())
    }

    /// Takes back whatever still holds. What fails is written down, and the rest goes on.
    fn restore(&mut self) -> io::Result<()> {
        let mut waiting = Vec::new();
        for (number, act) in self.effects.leftovers() {
            match self.platform.begin(number, &act) {
                Begun::Done => self.restored(number, Ok(()))?,
                Begun::Failed(error) => self.restored(number, Err(error))?,
                Begun::UnderWay => waiting.push(number),
            }
        }
        while !waiting.is_empty() {
            for happening in self.platform.wait(None)? {
                match happening {
                    Happening::Finished(number, result) if waiting.contains(&number) => {
                        waiting.retain(|&one| one != number);
                        self.restored(number, result)?;
                    }
                    // Asked to end while it is about to.
                    Happening::Stop(_) | Happening::Pause | Happening::Resume => {}
                    other => self.note(other)?,
                }
            }
        }
        Ok(())
    }

    fn restored(&mut self, number: usize, result: Result<(), ActError>) -> io::Result<()> {
        let failed = result.err().map(|error| error.to_string());
        self.write(Line::Restored(Restored { at: self.at(), number, failed, machine: None }))
    }

    fn clock(at: u64, goes: bool, why: &str) -> Line {
        Line::Clock(Clock { at, wall: wall(), goes, why: why.to_owned() })
    }

    /// `times`: when it had acted, and when it took effect.
    fn write_event(
        &mut self,
        number: usize,
        begun: Option<u64>,
        times: Option<(u64, u64)>,
        outcome: play::Outcome,
    ) -> io::Result<()> {
        let Event { due, action, .. } = &self.part.schedule.events[number];
        let what = words::what(self.part.lab, self.part.schedule, action);
        self.write(Line::Event(play::Event {
            number,
            due: due.0,
            begun,
            done: times.map(|(done, _)| done),
            late: times.map(|(_, effect)| effect.saturating_sub(due.0)),
            what,
            nodes: words::nodes(self.part.schedule, action),
            kind: words::kind(action).to_owned(),
            restores: if let Action::Restore { event } = action { Some(*event) } else { None },
            machines: Vec::new(),
            outcome,
        }))
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        (self.log)(&line)?;
        self.lines.push(line);
        Ok(())
    }
}

/// What is not over when it has begun, by its nature.
fn takes_its_time(act: &Act<'_>) -> bool {
    match act {
        Act::Order(order) => matches!(**order, Order::Kill { how: Kill::Graceful { .. }, .. } | Order::Start { .. }),
        Act::Run(..) => true,
        Act::Undo(_) | Act::EndPrograms(_) => false,
    }
}

/// Now, RFC 3339 with nanoseconds, UTC.
fn wall() -> String {
    super::words::wall(SystemTime::now())
}

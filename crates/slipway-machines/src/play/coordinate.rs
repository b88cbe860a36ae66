//! The coordinator of a scenario: it has all machines begin together, and listens.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipway_engine::rsh::Rsh;
use slipway_engine::scenario::Outcome;
use slipway_lab::id::MachineId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Schedule;
use slipway_measure::play::{Begin, Clocks, End, Line, Summary};
use slipway_sys::signals::Taken;

use super::clock::{PROMISE, now};
use super::merge::Merge;
use super::seat::{Seat, Stand};
use crate::ask::{each, open};
use crate::channel::{Channel, Words};
use crate::error::MachineError;
use crate::message::{Answer, Order, receive};

const DOING: &str = "play the scenario";
/// From the order to begin until the beginning: it has to reach every machine. Nanoseconds.
const LEAD: u64 = 250_000_000;
/// Round trips before the beginning.
const TRIPS: u32 = 16;
/// Between two comparisons of the clocks, nanoseconds, and the round trips of each.
const COMPARE: (u64, u32) = (1_000_000_000, 4);
/// Comparisons from one line of the log to the next.
const NOTED: u64 = 10;
/// A machine that has owed an answer for so long is lost, nanoseconds.
const SILENCE: u64 = 5_000_000_000;

/// A scenario, and the lab over several machines that it is for.
#[derive(Debug)]
pub struct Score<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The events, of all machines.
    pub schedule: &'a Schedule,
    /// The first line of the log, but for its time.
    pub begin: Begin,
    /// True: changes stay when it is over.
    pub keep: bool,
    /// The folder of the log.
    pub folder: &'a Path,
}

/// An answer of a machine, and when it was here. `None`: there will be no more.
type Heard = (MachineId, u64, Option<Answer>);

/// Plays a scenario on all machines of a lab that is up. Each line of the common log goes to `show` too. `SIGINT`, `SIGTERM`
/// and `SIGHUP` end it early, on all machines; the second value is the signal's number. The caller must have one thread.
///
/// # Errors
/// When a machine cannot begin. Then none has.
pub fn play(rsh: &Rsh, score: Score<'_>, show: &mut dyn FnMut(&Line)) -> Result<(Outcome, Option<u8>), MachineError> {
    let here = |doing| move |source| MachineError::Here { doing, source };
    let signals = Taken::new(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).map_err(here("take signals"))?;
    let log = File::create(score.folder.join("events.jsonl")).map_err(here("make the scenario's log"))?;
    let seats: Vec<Seat> = open(rsh, score.lab)?.into_iter().map(Seat::new).collect();
    let (wake, woken) = io::pipe().map(|(woken, wake)| (wake, woken)).map_err(here("make a pipe"))?;
    let (tell, heard) = channel();
    let merge = Merge::new(score.lab, score.schedule);
    let mut desk =
        Desk { score, seats, merge, signals, woken, heard, log, show, lines: Vec::new(), signal: None, why: None };
    std::thread::scope(|scope| {
        for (number, seat) in desk.seats.iter_mut().enumerate() {
            if let Some(words) = seat.channel.words() {
                let (tell, wake) = (tell.clone(), &wake);
                scope.spawn(move || listen(MachineId(number), words, &tell, wake));
            }
        }
        drop(tell);
        let played = desk.play(rsh);
        // So that the listeners end.
        desk.seats.clear();
        played.map(|outcome| (outcome, desk.signal))
    })
}

/// Passes a machine's answers on, each with the time when it was here.
fn listen(machine: MachineId, mut words: Words, tell: &Sender<Heard>, mut wake: &PipeWriter) {
    loop {
        let answer = receive::<Answer>(&mut words).ok().flatten();
        let over = answer.is_none();
        // Where nobody listens any more, the playing is over.
        let passed = tell.send((machine, now(), answer)).is_ok() && wake.write_all(&[0]).is_ok();
        if over || !passed {
            return;
        }
    }
}

struct Desk<'a, 's> {
    score: Score<'a>,
    seats: Vec<Seat>,
    merge: Merge<'a>,
    signals: Taken,
    woken: PipeReader,
    heard: Receiver<Heard>,
    log: File,
    show: &'s mut dyn FnMut(&Line),
    lines: Vec<Line>,
    /// The signal that ended it, by number.
    signal: Option<u8>,
    /// The reason of its early end.
    why: Option<String>,
}

impl Desk<'_, '_> {
    fn play(&mut self, rsh: &Rsh) -> Result<Outcome, MachineError> {
        let failed = |source| MachineError::Here { doing: DOING, source };
        self.prepare()?;
        let start = now() + LEAD;
        let started = humantime::format_rfc3339_nanos(SystemTime::now() + Duration::from_nanos(LEAD)).to_string();
        for seat in &mut self.seats {
            let at = seat.begin_at(start);
            seat.channel.give(&Order::Begin { at })?;
        }
        let begin = Begin { started, ..self.score.begin.clone() };
        self.write(Line::Begin(begin)).map_err(failed)?;
        let mut alarms = self.listen_on(start).map_err(failed)?;
        alarms.extend(self.late_logs(rsh, start).map_err(failed)?);
        for line in self.merge.rest() {
            self.write(line).map_err(failed)?;
        }
        alarms.extend(self.seats.iter().filter(|seat| seat.worst > PROMISE).map(|seat| {
            format!(
                "the clock of machine {} was up to {:.1} ms from the others', or is not known better: its events may have been so far from theirs",
                seat.channel.machine,
                seat.worst as f64 / 1e6
            )
        }));
        let summary = Summary { alarms, ..Summary::of(self.lines.iter(), Vec::new()) };
        let (stopped, why) = (self.why.is_some(), self.why.take());
        let why = why.unwrap_or_else(|| "the scenario is over".to_owned());
        let finished = humantime::format_rfc3339_nanos(SystemTime::now()).to_string();
        let end = End { at: now().saturating_sub(start), finished, why: why.clone(), summary: summary.clone() };
        self.write(Line::End(end)).map_err(failed)?;
        Ok(Outcome { why, stopped, summary })
    }

    /// Has every machine prepare, and compares the clocks meanwhile.
    fn prepare(&mut self) -> Result<(), MachineError> {
        let begin = &self.score.begin;
        for seat in &mut self.seats {
            let lab = self.score.lab.name.clone();
            let (schedule, begin) = (Box::new(self.score.schedule.clone()), Box::new(begin.clone()));
            seat.channel.give(&Order::Play { lab, schedule, begin, keep: self.score.keep })?;
        }
        let is_ready = |seat: &Seat| seat.stand == Stand::Playing && seat.trips >= TRIPS;
        while !self.seats.iter().all(is_ready) {
            let soon = now() + COMPARE.0;
            let heard = self.wait(soon).map_err(|source| MachineError::Here { doing: DOING, source })?;
            if self.signal.is_some() {
                return Err(MachineError::Here { doing: DOING, source: io::ErrorKind::Interrupted.into() });
            }
            let mut failures = Vec::new();
            for (MachineId(number), at, answer) in heard {
                let seat = &mut self.seats[number];
                match answer {
                    // Its processors are free again.
                    Some(Answer::Prepared) => {
                        seat.stand = Stand::Playing;
                        seat.compare(TRIPS);
                    }
                    Some(Answer::Clock { now }) => seat.answered(now, at),
                    Some(Answer::Failed { message }) => failures.push(MachineError::Refused {
                        doing: DOING,
                        machine: seat.channel.machine.clone(),
                        message,
                    }),
                    _ => failures.push(seat.channel.lost("the connection ended".to_owned())),
                }
            }
            let lost = self.seats.iter_mut().filter(|seat| seat.silent_for(now()) > SILENCE);
            failures.extend(lost.map(|seat| {
                seat.channel.abandon();
                seat.channel.lost("it does not answer".to_owned())
            }));
            MachineError::of(failures)?;
        }
        Ok(())
    }

    /// Listens until every machine is over or lost, and gives the alarms of what it heard.
    fn listen_on(&mut self, start: u64) -> io::Result<Vec<String>> {
        let (mut alarms, mut next, mut round) = (Vec::new(), start, 0);
        while self.seats.iter().any(Seat::is_heard) {
            let before = self.signal;
            let heard = self.wait(next)?;
            if self.signal != before || (self.signal.is_some() && self.why.is_none()) {
                let name = self.signal.and_then(|number| Signal::try_from(i32::from(number)).ok());
                self.stop(&format!("interrupted by {}", name.map_or("a signal", Signal::as_str)));
            }
            for (machine, at, answer) in heard {
                alarms.extend(self.note(machine, at, answer)?);
            }
            let time = now();
            for seat in self.seats.iter_mut().filter(|seat| seat.is_heard() && seat.silent_for(time) > SILENCE) {
                seat.stand = Stand::Lost;
                seat.channel.abandon();
            }
            if time >= next {
                next = time + COMPARE.0;
                self.compare(time.saturating_sub(start), round % NOTED == 0)?;
                round += 1;
            }
        }
        self.compare(now().saturating_sub(start), true)?;
        Ok(alarms)
    }

    /// Notes how the clocks stand, in the log too where `noted`, and asks them again.
    fn compare(&mut self, at: u64, noted: bool) -> io::Result<()> {
        let time = now();
        let mut lines = Vec::new();
        for seat in &mut self.seats {
            let heard = seat.is_heard();
            // Of a machine that is over or lost, the last word.
            if let Some(moved) = seat.moved(time).filter(|_| heard) {
                let machine = seat.channel.machine.clone();
                lines.push(Clocks { at, machine, offset: moved.offset, uncertainty: moved.uncertainty });
            }
            if heard {
                seat.compare(COMPARE.1);
            }
        }
        if noted { lines.into_iter().try_for_each(|line| self.write(Line::Clocks(line))) } else { Ok(()) }
    }

    fn note(&mut self, machine: MachineId, at: u64, answer: Option<Answer>) -> io::Result<Vec<String>> {
        let seat = &mut self.seats[machine.0];
        match answer {
            Some(Answer::Clock { now }) => seat.answered(now, at),
            Some(Answer::Played { line }) => {
                seat.lines += 1;
                return self.take(machine, *line);
            }
            Some(Answer::Failed { message }) => {
                seat.stand = Stand::Over;
                let why = format!("machine {} failed to {message}", seat.channel.machine);
                self.stop(&why);
                return Ok(vec![why]);
            }
            Some(Answer::Done { .. }) => seat.stand = Stand::Over,
            None if seat.is_heard() => seat.stand = Stand::Lost,
            Some(_) | None => {}
        }
        Ok(Vec::new())
    }

    /// Takes a line of a machine's log, and gives the alarms in it.
    fn take(&mut self, machine: MachineId, line: Line) -> io::Result<Vec<String>> {
        if let Line::End(end) = line {
            let name = &self.score.lab.machines[machine].name;
            let alarms = end.summary.alarms.iter().map(|alarm| format!("machine {name}: {alarm}")).collect();
            // The others of those that are asked to stop are asked once.
            if self.why.is_none() && end.why != "the scenario is over" {
                self.stop(&format!("machine {name}: {}", end.why));
            }
            return Ok(alarms);
        }
        match self.merge.take(machine, line) {
            Some(line) => self.write(line).map(|()| Vec::new()),
            None => Ok(Vec::new()),
        }
    }

    /// Ends the playing on all machines before its time.
    fn stop(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        for seat in self.seats.iter_mut().filter(|seat| seat.is_heard()) {
            // One that is gone plays on to its end.
            let _ = seat.channel.give(&Order::Stop);
        }
    }

    /// Fetches the logs of machines whose connection was lost, once their parts are over by this machine's clock.
    fn late_logs(&mut self, rsh: &Rsh, start: u64) -> io::Result<Vec<String>> {
        let lost: Vec<MachineId> =
            (0..self.seats.len()).filter(|&seat| self.seats[seat].stand == Stand::Lost).map(MachineId).collect();
        let mut alarms = Vec::new();
        if lost.is_empty() {
            return Ok(alarms);
        }
        let end = start + self.score.schedule.length.0 + LEAD;
        while self.why.is_none() && now() < end {
            self.wait(end)?;
            if self.signal.is_some() {
                self.stop("interrupted while a machine could not be reached");
            }
        }
        let lab = self.score.lab;
        let fetched = each(lost, |machine| {
            let channel = Channel::open(rsh, &lab.machines[machine]);
            (machine, channel.and_then(|mut channel| channel.log(&lab.name)))
        });
        for (machine, fetched) in fetched {
            let name = &lab.machines[machine].name;
            let lines = match fetched {
                Ok(lines) => lines,
                Err(error) => {
                    alarms.push(format!(
                        "the connection to machine {name} was lost, and its log is not here: it plays its part to the end by itself (failed to {})",
                        error.to_string().lines().next().unwrap_or_default()
                    ));
                    continue;
                }
            };
            if !matches!(lines.last(), Some(Line::End(_))) {
                alarms.push(format!(
                    "the connection to machine {name} was lost, and its log is not whole: it plays its part to the end by itself"
                ));
            }
            // The log's first line did not come by itself.
            let known = self.seats[machine.0].lines + 1;
            for line in lines.into_iter().skip(known) {
                alarms.extend(self.take(machine, line)?);
            }
        }
        Ok(alarms)
    }

    /// Waits for words, a signal or a time of this machine's clock. A signal stands in `signal` then.
    fn wait(&mut self, until: u64) -> io::Result<Vec<Heard>> {
        let left = Duration::from_nanos(until.saturating_sub(now()));
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut on = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        match poll(&mut on, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let woken = !on[1].revents().is_empty();
        if let Some(signal) = self.signals.take()? {
            self.signal = u8::try_from(signal as i32).ok();
        }
        if woken {
            // As many as have come; there is a word for each.
            let _ = self.woken.read(&mut [0; 4096])?;
        }
        Ok(self.heard.try_iter().collect())
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        (self.show)(&line);
        line.write(&self.log)?;
        self.lines.push(line);
        Ok(())
    }
}

//! The coordinator of a scenario: it has all machines begin together, and listens.

use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_engine::job;
use slipway_engine::lab::Running;
use slipway_engine::rsh::Rsh;
use slipway_engine::scenario::{Awaiting, Beside, Ends, Outcome, Performance};
use slipway_engine::state::StateRoot;
use slipway_lab::id::MachineId;
use slipway_measure::play::{Begin, Clocks, End, Line, Summary};
use slipway_sys::signals::{ENDING, Taken};

use super::clock::{PROMISE, now};
use super::listen::{Heard, listen};
use super::merge::Merge;
use super::seat::{Seat, Stand};
use super::whole::{Score, Whole};
use crate::ask::open;
use crate::error::MachineError;
use crate::message::{Answer, Order};

const DOING: &str = "play the scenario";
/// From the order to begin until the beginning: it has to reach every machine. Nanoseconds.
pub(super) const LEAD: u64 = 250_000_000;
/// Round trips before the beginning.
const TRIPS: u32 = 16;
/// Between two comparisons of the clocks, nanoseconds, and the round trips of each.
const COMPARE: (u64, u32) = (1_000_000_000, 4);
/// Comparisons from one line of the log to the next.
const NOTED: u64 = 10;
/// A machine that has owed an answer for so long is lost, nanoseconds.
const SILENCE: u64 = 5_000_000_000;

/// Plays a scenario on all machines of a lab that is up, with a job of this machine beside it. Each line of the common log
/// goes to `show` too. `SIGINT`, `SIGTERM` and `SIGHUP` end it early, on all machines. The caller must have one thread.
///
/// # Errors
/// When a machine cannot begin. Then none has.
pub fn play<T: Serialize + DeserializeOwned>(
    rsh: &Rsh,
    labs: &StateRoot,
    score: Score<'_>,
    beside: Option<Beside<'_, T>>,
    show: &mut dyn FnMut(&Line),
) -> Result<Performance<T>, MachineError> {
    let signals = take_signals()?;
    // Before there are threads.
    let job = beside.map(|job| Awaiting::prepare(labs, &score.lab.name, job)).transpose()?;
    let whole = Whole::of(&labs.lab(&score.lab.name), &score);
    conduct(rsh, score, signals, job, show, |desk| desk.play(rsh, whole))
}

/// Waits for the end of a scenario whose coordinator was killed, has parts go on whose players were, and gathers the logs.
/// Gives the folder too. The machine must be the one where the scenario was begun. Signals are as for [`play`].
///
/// # Errors
/// When there is no such scenario, or a machine cannot be reached.
pub fn resume(
    rsh: &Rsh,
    running: &Running,
    show: &mut dyn FnMut(&Line),
) -> Result<(PathBuf, Performance<job::Outcome>), MachineError> {
    let whole = Whole::read(running.dir())?;
    let signals = take_signals()?;
    let score = whole.score(&running.lab);
    let performance = conduct(rsh, score, signals, None, show, |desk| desk.follow(rsh, &whole))?;
    Ok((whole.folder, performance))
}

fn take_signals() -> Result<Taken, MachineError> {
    let taken = Taken::new(&ENDING);
    taken.map_err(|source| MachineError::Here { doing: "take signals", source })
}

/// Has `act` act on the machines, with their words and a job.
fn conduct<T: DeserializeOwned>(
    rsh: &Rsh,
    score: Score<'_>,
    signals: Taken,
    job: Option<Awaiting>,
    show: &mut dyn FnMut(&Line),
    act: impl FnOnce(&mut Desk<'_, '_>) -> Result<Outcome, MachineError>,
) -> Result<Performance<T>, MachineError> {
    let here = |doing| move |source| MachineError::Here { doing, source };
    let seats: Vec<Seat> = open(rsh, score.lab)?.into_iter().map(Seat::new).collect();
    let log = File::create(score.folder.join("events.jsonl")).map_err(here("make the scenario's log"))?;
    let (wake, woken) = io::pipe().map(|(woken, wake)| (wake, woken)).map_err(here("make a pipe"))?;
    let (tell, heard) = channel();
    let merge = Merge::new(score.lab, score.schedule);
    let lines = Vec::new();
    let mut desk = Desk {
        score,
        seats,
        merge,
        signals,
        woken,
        heard,
        job,
        log,
        show,
        lines,
        signal: None,
        why: None,
        missing: false,
    };
    std::thread::scope(|scope| {
        for (number, seat) in desk.seats.iter_mut().enumerate() {
            if let Some(words) = seat.channel.words() {
                let (tell, wake) = (tell.clone(), &wake);
                scope.spawn(move || listen(MachineId(number), words, &tell, wake));
            }
        }
        drop(tell);
        let played = act(&mut desk);
        // So that the listeners end.
        desk.seats.clear();
        let played = played?;
        let job = desk.job.take().map(Awaiting::end).transpose()?;
        Ok(Performance { played, job, signal: desk.signal })
    })
}

pub(super) struct Desk<'a, 's> {
    pub(super) score: Score<'a>,
    pub(super) seats: Vec<Seat>,
    merge: Merge<'a>,
    signals: Taken,
    woken: PipeReader,
    heard: Receiver<Heard>,
    job: Option<Awaiting>,
    log: File,
    show: &'s mut dyn FnMut(&Line),
    lines: Vec<Line>,
    /// The signal that ended it, by number.
    pub(super) signal: Option<u8>,
    /// The reason of its early end, or of a log that is not whole.
    pub(super) why: Option<String>,
    /// The log of some machine is not here, or not whole.
    pub(super) missing: bool,
}

impl Desk<'_, '_> {
    fn play(&mut self, rsh: &Rsh, mut whole: Whole) -> Result<Outcome, MachineError> {
        let failed = |source| MachineError::Here { doing: DOING, source };
        self.prepare()?;
        // Its parts are this one's now.
        whole.forget().map_err(failed)?;
        let start = now() + LEAD;
        let started = humantime::format_rfc3339_nanos(SystemTime::now() + Duration::from_nanos(LEAD)).to_string();
        for seat in &mut self.seats {
            let at = seat.begin_at(start);
            seat.channel.give(&Order::Begin { at })?;
        }
        self.job.iter_mut().try_for_each(|job| job.begin_at(start)).map_err(failed)?;
        let begin = Begin { started, ..self.score.begin.clone() };
        let zeros = self.seats.iter().map(Seat::zero).collect();
        whole.note((start, zeros), &begin).map_err(failed)?;
        self.write(Line::Begin(begin)).map_err(failed)?;
        self.finish(rsh, start, &whole).map_err(failed)
    }

    /// Has machines tell of what was begun at `whole.start`.
    fn follow(&mut self, rsh: &Rsh, whole: &Whole) -> Result<Outcome, MachineError> {
        let failed = |source| MachineError::Here { doing: DOING, source };
        let zeros = whole.zeros.iter().copied().chain(std::iter::repeat(0));
        for (seat, zero) in self.seats.iter_mut().zip(zeros) {
            let (lab, schedule) = (self.score.lab.name.clone(), Box::new(self.score.schedule.clone()));
            seat.channel.give(&Order::Follow { lab, schedule })?;
            seat.plays_since(zero);
        }
        self.write(Line::Begin(whole.begin.clone())).map_err(failed)?;
        self.finish(rsh, whole.start, whole).map_err(failed)
    }

    /// Listens to the end, and ends the log.
    fn finish(&mut self, rsh: &Rsh, start: u64, whole: &Whole) -> io::Result<Outcome> {
        let mut alarms = self.listen_on(start)?;
        alarms.extend(self.late_logs(rsh, start)?);
        for line in self.merge.rest() {
            self.write(line)?;
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
        let why = why.unwrap_or_else(|| self.score.ends.why().to_owned());
        let finished = humantime::format_rfc3339_nanos(SystemTime::now()).to_string();
        let end = End { at: now().saturating_sub(start), finished, why: why.clone(), summary: summary.clone() };
        self.write(Line::End(end))?;
        if !self.missing {
            whole.forget()?;
        }
        Ok(Outcome { why, stopped, summary })
    }

    /// Has every machine prepare, and compares the clocks meanwhile.
    fn prepare(&mut self) -> Result<(), MachineError> {
        let begin = &self.score.begin;
        for seat in &mut self.seats {
            let lab = self.score.lab.name.clone();
            let (schedule, begin) = (Box::new(self.score.schedule.clone()), Box::new(begin.clone()));
            let (ends, keep) = (self.score.ends, self.score.keep);
            seat.channel.give(&Order::Play { lab, schedule, begin, ends, keep })?;
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
        let mut beside = self.job.is_some();
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
            if beside && self.job.as_ref().is_none_or(|job| job.waits_for().is_none()) {
                beside = false;
                self.tell(&Order::JobEnded);
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
    pub(super) fn take(&mut self, machine: MachineId, line: Line) -> io::Result<Vec<String>> {
        if let Line::End(end) = line {
            let name = &self.score.lab.machines[machine].name;
            let alarms = end.summary.alarms.iter().map(|alarm| format!("machine {name}: {alarm}")).collect();
            // The others of those that are asked to stop are asked once.
            let usual = [self.score.ends, Ends::WithScenario].map(Ends::why);
            if self.why.is_none() && !usual.contains(&end.why.as_str()) {
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
    pub(super) fn stop(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
        self.tell(&Order::Stop);
    }

    /// Gives an order to all machines that are heard.
    fn tell(&mut self, order: &Order) {
        for seat in self.seats.iter_mut().filter(|seat| seat.is_heard()) {
            // One that is gone plays on to its end.
            let _ = seat.channel.give(order);
        }
    }

    /// Waits for words, a signal or a time of this machine's clock. A signal stands in `signal` then.
    pub(super) fn wait(&mut self, until: u64) -> io::Result<Vec<Heard>> {
        let left = Duration::from_nanos(until.saturating_sub(now()));
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut on = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        let job = self.job.as_ref().and_then(Awaiting::waits_for);
        on.extend(job.map(|job| PollFd::from_borrowed_fd(job, PollFlags::IN)));
        match poll(&mut on, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let woken = !on[1].revents().is_empty();
        if on.get(2).is_some_and(|job| !job.revents().is_empty())
            && let Some(job) = &mut self.job
        {
            job.hear()?;
        }
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

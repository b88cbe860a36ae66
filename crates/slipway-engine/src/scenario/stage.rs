//! The platform of a running lab: what a player's acts come to there, and what happens meanwhile.

mod act;
mod hear;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal as Number;
use rustix::process::{Pid, Signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use serde::Serialize;
use serde_json::Value;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Limits;
use slipway_lab::scenario::{Action, Order};
use slipway_sys::clone::SingleThread;
use slipway_sys::signals::Taken;

use super::ask::Asked;
use super::beside::{Beside, Bond, JobFailure, Teller, do_job};
use super::door;
use super::folder::{Claim, Folder, ScenarioError};
use super::limits::Layers;
use super::load::Ticks;
use super::platform::{Act, Begun, Happening, Platform};
use super::watch::Watch;
use super::wire::WireWatch;
use crate::lab::{LabError, Running};
use crate::protocol::{Lift, PlayerRequest, Server, now as monotonic};
use crate::state::StateRoot;

/// Between two looks at how busy the machine is, nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000_000;
/// Between two looks at how late the wire is: the anchor has to ask it.
const LOOK_AT_WIRE: u64 = 5 * LOOK_AGAIN;

/// A running lab, to be played on.
#[derive(Debug)]
pub struct Stage {
    root: StateRoot,
    running: Running,
    folder: Folder,
    /// Where output of programs goes.
    output: PathBuf,
    alone: SingleThread,
    signals: Taken,
    /// The signal that ended the playing.
    signal: Option<Number>,
    timer: OwnedFd,
    anchor: Option<OwnedFd>,
    watch: Watch,
    asked: Vec<Asked>,
    beside: Vec<Helper>,
    /// Events that wait for the programs of another to end: which, and of which.
    ending: Vec<(usize, usize)>,
    job: Option<Beside>,
    outcome: Option<Result<Value, JobFailure>>,
    limits: Layers,
    ticks: Option<Ticks>,
    look: u64,
    wire: WireWatch,
    look_at_wire: u64,
    /// What a player only may hold: gone in processes beside it.
    own: Option<(Claim, Server<PlayerRequest>)>,
}

/// A process beside the player that does something for an event.
#[derive(Debug)]
struct Helper {
    event: usize,
    process: Beside,
    /// It has said how it went.
    told: bool,
}

impl Stage {
    /// Takes the lab for playing. `before` is what nodes might use before the scenario, `output` the folder for what
    /// programs print.
    ///
    /// The caller must have one thread. `SIGINT`, `SIGTERM` and `SIGHUP` end the playing from now on.
    ///
    /// # Errors
    /// When somebody else plays on the lab, or the machine refuses.
    pub fn open(
        root: &StateRoot,
        running: Running,
        claim: Claim,
        before: List<NodeId, Limits>,
        output: PathBuf,
    ) -> Result<Self, ScenarioError> {
        let folder = Folder::of(running.dir());
        let prepare = || {
            let alone = SingleThread::check()?;
            let door = door::open(&folder.join("door"))?;
            let signals = Taken::new(&[Number::SIGINT, Number::SIGTERM, Number::SIGHUP])?;
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
            let anchor = running.state.anchor.open()?;
            let mut watch = Watch::new(running.lab.nodes.len())?;
            watch.refresh(&running.state)?;
            Ok::<_, io::Error>((alone, door, signals, timer, anchor, watch))
        };
        let (alone, door, signals, timer, anchor, watch) = prepare().map_err(ScenarioError::io("prepare to play"))?;
        let wire = WireWatch::since(&running.links()?);
        // Where it may not, it plays as others run, and lateness tells.
        let _ = slipway_sys::sched::set_fifo(1);
        // The anchor does what is due: it is no use to ask in time for what is done late.
        let _ = Pid::from_raw(running.state.anchor.pid).map(|anchor| slipway_sys::sched::set_fifo_of(anchor, 1));
        Ok(Self {
            root: root.clone(),
            folder,
            output,
            alone,
            signals,
            signal: None,
            timer,
            anchor,
            watch,
            asked: Vec::new(),
            beside: Vec::new(),
            ending: Vec::new(),
            job: None,
            outcome: None,
            limits: Layers::over(before),
            ticks: Ticks::now(),
            look: monotonic() + LOOK_AGAIN,
            wire,
            look_at_wire: monotonic() + LOOK_AT_WIRE,
            own: Some((claim, door)),
            running,
        })
    }

    /// The lab.
    #[must_use]
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Notes what an earlier player did to limits.
    pub(super) fn remember(&mut self, number: usize, action: &Action) {
        match action {
            Action::Order(Order::Node { nodes, change }) => self.limits.lay(number, nodes, change),
            Action::Restore { event } => drop(self.limits.lift(*event)),
            _ => {}
        }
    }

    /// The signal that ended the playing, by number.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        // Named signals are small numbers.
        self.signal.and_then(|signal| u8::try_from(signal as i32).ok())
    }

    /// Which nodes run now.
    #[must_use]
    pub fn alive(&self) -> List<NodeId, bool> {
        self.running.lab.nodes.ids().map(|node| self.running.init(node).is_ok()).collect()
    }

    /// Starts a job beside the player, in a process of its own.
    ///
    /// # Errors
    /// When there can be no more processes. That the job itself fails is told when it has.
    pub fn start_job<T: Serialize>(
        &mut self,
        job: impl FnOnce(&Running) -> Result<T, JobFailure>,
    ) -> Result<(), ScenarioError> {
        let started = self.beside(Bond::Tied, |running, teller| do_job(running, job, teller));
        self.job = Some(started.map_err(ScenarioError::io("start the job"))?);
        Ok(())
    }

    /// Ends the job if it still runs, and says what came of it. `None` where there was none.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn end_job(&mut self) -> Result<Option<Result<Value, JobFailure>>, ScenarioError> {
        if let Some(job) = &self.job {
            job.signal(Signal::TERM);
        }
        while self.job.is_some() {
            self.hear_job().map_err(ScenarioError::io("wait for the job"))?;
        }
        Ok(self.outcome.take())
    }

    /// Has something done in a process beside this one, which opens the lab for itself.
    fn beside(&mut self, bond: Bond, work: impl FnOnce(Result<Running, LabError>, &mut Teller)) -> io::Result<Beside> {
        let alone = self.alone;
        let (root, name) = (self.root.clone(), self.running.lab.name.clone());
        let own = &mut self.own;
        Beside::start(alone, bond, |teller| {
            // This process's copies: the lock is to be free when the player has ended, and its door closed.
            *own = None;
            work(Running::open(&root, &name), teller);
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = slipway_sys::sched::set_usual();
        // One that has ended needs no other policy.
        if let (Some(_), Some(anchor)) = (&self.anchor, Pid::from_raw(self.running.state.anchor.pid)) {
            let _ = slipway_sys::sched::set_usual_of(anchor);
        }
    }
}

impl Platform for Stage {
    fn now(&self) -> u64 {
        monotonic()
    }

    fn wait(&mut self, until: Option<u64>) -> io::Result<Vec<Happening>> {
        let until = until.map_or(self.look, |until| until.min(self.look));
        // Zero would disarm the timer.
        let value = Duration::from_nanos(until.max(1));
        let value = Timespec::try_from(value).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        let mut happened = Vec::new();
        // From the end: hearing one may take it off its list.
        for token in self.poll()?.into_iter().rev() {
            happened.extend(self.hear(token)?);
        }
        Ok(happened)
    }

    fn begin(&mut self, number: usize, act: &Act<'_>) -> Begun {
        match act {
            Act::Order(order) => self.give(number, order),
            Act::Undo(change) => self.undo(number, *change),
            Act::Run(nodes, command) => self.run(number, nodes, command),
            Act::EndPrograms(of) => self.end_programs(number, *of),
        }
    }

    fn alarms(&mut self) -> Vec<String> {
        if let Ok(report) = self.running.links() {
            self.wire.look(&report);
        }
        self.wire.alarm().into_iter().collect()
    }

    fn forget(&mut self, changes: &[usize]) {
        for &change in changes {
            if self.limits.lift(change).is_none() {
                // What cannot be forgotten cannot be felt either.
                self.ask(Lift { overlay: change }, Asked::Forget);
            }
        }
    }
}

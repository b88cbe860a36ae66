//! Bringing a lab up: claim its name, fork its anchor, follow its reports.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::pidfd_send_signal;
use slipway_lab::model::Lab;
use slipway_sys::signals::{ENDING, Taken};

use super::check::{Prepared, prepare, unpacked};
use super::down::{LOOK_AGAIN, down};
use super::refused::UpError;
use super::scratch;
use super::{LabError, Running};
use crate::anchor::{self, Blueprint, Report};
use crate::guard::Guard;
use crate::machine::Machine;
use crate::protocol::{self, Code};
use crate::remains::{DownError, PATIENCE, Remains, clean};
use crate::state::{LabLock, StateError, StateRoot};
use crate::tuning::{LeftOut, Tunings};

/// How far `up` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of an image's archive read, of so many.
    Image {
        /// Read so far.
        done: u64,
        /// In all.
        total: u64,
    },
    /// Nodes ready, of so many.
    Nodes {
        /// Ready so far.
        done: usize,
        /// In all.
        total: usize,
    },
}

/// Brings a lab up. The caller must have one thread only, since the anchor is cloned from it.
///
/// `SIGINT`, `SIGTERM` and `SIGHUP` that come while the lab is made undo it; while images are unpacked, which is no part
/// of a lab yet, they do what they did before.
///
/// # Errors
/// All of [`UpError`]; then nothing of the lab is left.
pub fn up(machine: &Machine, lab: &Lab, progress: &mut dyn FnMut(Progress)) -> Result<Running, UpError> {
    up_then(machine, lab, progress, || Ok(())).map(|(running, ())| running)
}

/// A lab that a command brought up for its own use: it goes down should the command be killed.
#[derive(Debug)]
pub struct Passing {
    root: StateRoot,
    name: String,
    number: u64,
    _guard: Guard,
}

impl Passing {
    /// Takes the lab down.
    ///
    /// # Errors
    /// As [`down`].
    pub fn down(self) -> Result<(), DownError> {
        down_own(&self.root, &self.name, self.number)
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lab's anchor, which is readable once it has ended. `None`: it has.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    pub fn anchor(&self) -> io::Result<Option<OwnedFd>> {
        self.root.lab(&self.name).read_state().map_or(Ok(None), |state| state.anchor.open())
    }

    /// Stays until the lab has ended, or one of these signals comes. Then it takes down what is left.
    /// Batch systems end whatever a step leaves behind, so a lab's step is there for as long as the lab.
    ///
    /// # Errors
    /// As [`down`], and when the lab cannot be watched.
    pub fn stay(self, signals: &Taken) -> Result<(), DownError> {
        let dir = self.root.lab(&self.name);
        let Ok(state) = dir.read_state() else { return Ok(()) };
        let Some(anchor) = state.anchor.open().map_err(Remains::Anchor)? else { return self.down() };
        let mut watched = [PollFd::new(signals, PollFlags::IN), PollFd::new(&anchor, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut watched, None) {}
        // Another command may have taken it down, and somebody else brought up one of the same name.
        let is_ours = dir.read_state().is_ok_and(|now| now.anchor == state.anchor);
        if is_ours { self.down() } else { Ok(()) }
    }
}

/// As [`up`], for as long as this process lives at most.
///
/// # Errors
/// As [`up`].
pub fn up_in_passing(
    machine: &Machine,
    lab: &Lab,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Running, Passing), UpError> {
    let root = &machine.labs;
    // `slipway down --all` finds the rest, if the guard cannot remove all.
    let number = lab.part.number;
    let post = || Guard::post_bare(|| drop(down_own(root, &lab.name, number)));
    let (running, guard) = up_then(machine, lab, progress, post)?;
    Ok((running, Passing { root: root.clone(), name: lab.name.clone(), number, _guard: guard }))
}

/// Takes a lab down, unless one of another number has its name now: a part may have ended by itself long ago.
fn down_own(root: &StateRoot, name: &str, number: u64) -> Result<(), DownError> {
    if root.lab(name).read_lab().is_ok_and(|there| there.part.number != number) {
        return Ok(());
    }
    down(root, name, PATIENCE).map(drop)
}

/// Brings a lab up. `claimed` is called once its name is this process's, and before anything is made under it.
#[tracing::instrument(level = "info", name = "up", skip_all, fields(lab = %lab.name), err(level = "debug"))]
fn up_then<T>(
    machine: &Machine,
    lab: &Lab,
    progress: &mut dyn FnMut(Progress),
    claimed: impl FnOnce() -> io::Result<T>,
) -> Result<(Running, T), UpError> {
    let Machine { labs: root, images: store, agent } = machine;
    let Prepared { lab: tuned, tunings, links } = prepare(store, lab)?;
    warn_of_settings(lab, &tunings);
    let images = store.resolve(lab, &mut |done, total| progress(Progress::Image { done, total }))?;
    unpacked(lab, &images)?;
    let signals = Taken::new(&ENDING).map_err(UpError::Anchor)?;
    let lock = take(root, &lab.name)?;
    let dir = root.lab(&lab.name);
    if dir.exists() {
        // We hold the lock, so its anchor is dead: a crash.
        clean(&dir).map_err(UpError::Leftover)?;
    }
    let kept = claimed().map_err(UpError::Anchor)?;
    let scratch = dir.scratch();
    tracing::info!("the lab's anchor logs to {}", dir.join("anchor.log").display());
    let mut blueprint = Blueprint { lab: tuned, tunings, dir, images, agent: agent.clone(), scratch, links, lock };
    let outcome = make(lab, &mut blueprint, &signals, progress);
    match outcome {
        Ok(()) => match Running::open(root, &lab.name) {
            Err(LabError::State(StateError::NotRunning(name))) => Err(UpError::Ended(name)),
            opened => Ok((opened?, kept)),
        },
        Err(failure) => match clean(&blueprint.dir).and_then(|()| Ok(blueprint.lock.remove()?)) {
            Ok(()) => Err(failure),
            Err(undo) => Err(UpError::Undo { failure: Box::new(failure), undo }),
        },
    }
}

/// Takes the lock of a lab that is not up. One that crashed holds it for a moment still: until the kernel has ended its wire,
/// and the inits that its anchor had just made.
fn take(root: &StateRoot, name: &str) -> Result<LabLock, StateError> {
    let deadline = Instant::now() + PATIENCE;
    let has_crashed = || root.lab(name).read_state().is_ok_and(|state| !state.anchor.is_alive());
    loop {
        match root.try_lock(name) {
            Err(StateError::Taken(_)) if has_crashed() && Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            other => return other,
        }
    }
}

/// Advice that this kernel does not follow. The user asked for the profile, and has less than it.
fn warn_of_settings(lab: &Lab, tunings: &Tunings) {
    for (host, tuning) in tunings.enumerate() {
        let left_out = tuning.iter().flat_map(|tuning| &tuning.left_out);
        for LeftOut { name, value, rule, reason } in
            left_out.filter(|out| !lab.hosts[host].tune.contains_key(&out.name))
        {
            let host = &lab.hosts[host].name;
            tracing::warn!("host {host} goes without `{name} = {value}`, which rule {rule} advises: {reason}");
        }
    }
}

/// Makes the lab. `lab` is as its file has it, and that is written down.
fn make(
    lab: &Lab,
    blueprint: &mut Blueprint,
    signals: &Taken,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), UpError> {
    let Blueprint { dir, scratch, .. } = &*blueprint;
    dir.create()?;
    dir.write_lab(lab)?;
    scratch::make(scratch).map_err(|source| StateError::Io { doing: "make", path: scratch.clone(), source })?;
    for node in lab.nodes_here() {
        let path = scratch.join(&lab.nodes[node].name);
        std::fs::create_dir_all(&path).map_err(|source| StateError::Io { doing: "make", path, source })?;
    }
    let (pidfd, reports) = anchor::fork(blueprint).map_err(UpError::Anchor)?;
    let silence = "start the lab's anchor: it ended without a word\nHint: look in the kernel's log (dmesg)";
    let mut failure = protocol::Error::new(Code::Nodes, silence);
    let mut reports = BufReader::new(reports);
    let mut line = String::new();
    loop {
        if reports.buffer().is_empty()
            && let Some(signal) = wait(reports.get_ref(), signals).map_err(UpError::Anchor)?
        {
            // Its nodes die with it. That it has ended by itself meanwhile is as good.
            let _ = pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
            slipway_sys::process::reap(&pidfd).map_err(UpError::Anchor)?;
            return Err(UpError::Interrupted(signal));
        }
        line.clear();
        if reports.read_line(&mut line).map_err(UpError::Anchor)? == 0 {
            break;
        }
        match serde_json::from_str(&line).map_err(|error| UpError::Anchor(error.into()))? {
            Report::Nodes(done) => progress(Progress::Nodes { done, total: lab.nodes.len() }),
            Report::Up => return Ok(()),
            Report::Failed(error) => failure = error,
        }
    }
    // The pipe is closed: the anchor is ending or has ended.
    slipway_sys::process::reap(&pidfd).map_err(UpError::Anchor)?;
    Err(UpError::Failed(failure))
}

/// Waits for a report, or a signal.
fn wait(reports: &io::PipeReader, signals: &Taken) -> io::Result<Option<Signal>> {
    let mut on = [PollFd::new(reports, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    match poll(&mut on, None) {
        Ok(_) | Err(Errno::INTR) => signals.take(),
        Err(error) => Err(error.into()),
    }
}

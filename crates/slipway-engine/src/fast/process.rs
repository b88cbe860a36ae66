//! A router's process: made, and confined before it hears of anything.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_getfd, pidfd_open,
    pidfd_send_signal, waitid,
};
use rustix::thread::CapabilitySet;
use slipway_fast::control::{self, AnchorEnd, Order, Report, RouterEnd};
use slipway_fast::journal;
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::{Cloned, SingleThread, clone_beside, clone_into, close_all_but};
use slipway_sys::{caps, process, sched};

use super::setup::Shared;

/// To look into programs' memory and descriptors (`ptrace(2)`, access mode checks), to open `/proc/TID/mem` and `/proc/TID/fd` of
/// programs of other users, and to destroy connections.
const CAPABILITIES: CapabilitySet =
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::NET_ADMIN);

/// A router that runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pidfd: OwnedFd,
    /// Keeps its descriptors open; `None` until it has said so.
    keeper: Option<OwnedFd>,
    control: AnchorEnd,
}

/// What a router is made in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) alone: SingleThread,
    pub(super) lab: &'a Lab,
    pub(super) host: usize,
    /// The lab's, held by all of its processes.
    pub(super) lock: BorrowedFd<'a>,
    /// The host's network namespace.
    pub(super) net: BorrowedFd<'a>,
    /// A control group of its own.
    pub(super) group: Option<&'a Group>,
    /// Where what it says on standard error goes.
    pub(super) log: BorrowedFd<'a>,
}

impl Process {
    /// Makes a router, and waits until it runs.
    #[tracing::instrument(level = "debug", skip_all, fields(host = %ground.lab.hosts[ground.host].name), err(level = "debug"))]
    pub(super) fn start(ground: Ground<'_>, shared: &Shared) -> io::Result<Self> {
        let (ours, theirs) = control::pair()?;
        let anchor = pidfd_open(getpid(), PidfdFlags::empty())?;
        let born_in = ground.group.and_then(Group::clone_target);
        match clone_into(ground.alone, CloneFlags::empty(), born_in)? {
            Cloned::Child => {
                drop(ours);
                live(ground, shared, theirs, &anchor)
            }
            Cloned::Parent { pid, pidfd } => {
                drop(theirs);
                let control = ours.of(pidfd.try_clone()?);
                let mut started = Self { pid, pidfd, keeper: None, control };
                match started.hear_that_it_runs() {
                    Ok(Some(Report::Ready)) => Ok(started),
                    heard => {
                        let end = started.stop();
                        Err(match heard {
                            Ok(Some(Report::Failed(account))) => io::Error::other(account),
                            Ok(Some(_)) => io::Error::other("it said something else first"),
                            Ok(None) => io::Error::other(end),
                            Err(error) => error,
                        })
                    }
                }
            }
        }
    }

    fn hear_that_it_runs(&mut self) -> io::Result<Option<Report>> {
        let heard = self.control.hear()?;
        let Some(Report::Keeper { process }) = heard else { return Ok(heard) };
        let keeper = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidData)?;
        self.keeper = Some(pidfd_open(keeper, PidfdFlags::empty())?);
        self.control.hear()
    }

    /// Gives an order. One that cannot be given in time is the end of the router: it is stuck.
    pub(super) fn order<F: AsFd>(&self, order: &Order<F>) -> io::Result<()> {
        self.control.order(order).inspect_err(|_| self.kill())
    }

    /// Gives an order that changes what is admitted, and waits until it holds.
    pub(super) fn have_heeded(&self, order: &Order, aside: impl FnMut(Report)) -> io::Result<()> {
        self.control.have_heeded(order, aside).inspect_err(|_| self.kill())
    }

    /// Gives it other rules, and waits until they hold.
    pub(super) fn set_policy(&self, rules: &[Rule], aside: impl FnMut(Report)) -> io::Result<()> {
        self.control.set_policy(rules, aside).inspect_err(|_| self.kill())
    }

    /// The next report; `None` where it is gone.
    pub(super) fn hear(&self) -> io::Result<Option<Report>> {
        self.control.hear().inspect_err(|_| self.kill())
    }

    /// Asks how it is.
    pub(super) fn status(&self, aside: impl FnMut(Report)) -> io::Result<String> {
        self.control.status(aside).inspect_err(|_| self.kill())
    }

    fn kill(&self) {
        // Gone already is what is wanted.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Ends it, waits for its end, and says how that came: of one that was ending already, its own way.
    pub(super) fn stop(self) -> String {
        self.leave(None).0
    }

    /// The same; and what it had in hand, as its `journal` says, for the next.
    pub(super) fn leave(self, journal: Option<&OwnedFd>) -> (String, Vec<Order>) {
        self.kill();
        let how = self.end();
        let Some(keeper) = &self.keeper else { return (how, Vec::new()) };
        let unaccepted = journal.map_or_else(Vec::new, |journal| unaccepted(keeper, journal));
        // What else the router had open is closed with this: its peers hear of its end.
        let _ = pidfd_send_signal(keeper, Signal::KILL);
        let _ = waitid(WaitId::PidFd(keeper.as_fd()), WaitIdOptions::EXITED);
        (how, unaccepted)
    }

    fn end(&self) -> String {
        let pid = self.pid.as_raw_nonzero();
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("process {pid} ended with code {code}"),
                (_, Some(signal)) => format!("process {pid} was killed by signal {signal}"),
                _ => format!("process {pid} ended"),
            },
            // The anchor's own wait collected it.
            _ => format!("process {pid} ended"),
        }
    }
}

/// What a router left that has ended, taken from its keeper.
fn unaccepted(keeper: &OwnedFd, journal: &OwnedFd) -> Vec<Order> {
    let copy = |number| pidfd_getfd(keeper, number, PidfdGetfdFlags::empty()).ok();
    let found = journal::take(journal).unwrap_or_default().into_iter();
    let order = |(unaccepted, end, wakeup_socket): (_, _, Option<_>)| {
        let sockets = [Some(copy(end)?), wakeup_socket.and_then(copy)].into_iter().flatten().collect();
        Some(Order::Unaccepted { unaccepted, sockets })
    };
    found.filter_map(order).collect()
}

/// Readable when it has reported something.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// The life of a router. Never returns.
fn live(ground: Ground<'_>, shared: &Shared, control: RouterEnd, anchor: &OwnedFd) -> ! {
    let outcome = control
        .as_fd()
        .try_clone_to_owned()
        .and_then(|copy| Ok((shared.of_host(ground.lab, ground.host, control)?, RouterEnd::from(copy))));
    let (setup, control) = outcome.unwrap_or_else(|_| std::process::exit(1));
    let persistent = &setup.persistent;
    let needed =
        [setup.control.as_fd(), setup.key.as_fd(), persistent.metadata.storage().as_fd(), persistent.journal.as_fd()];
    let counts: Vec<BorrowedFd<'_>> = persistent.interruptions.iter().map(AsFd::as_fd).collect();
    let keep = [&needed[..], &counts, &[ground.lock, control.as_fd(), anchor.as_fd()]].concat();
    let confined = limit(ground, &keep, anchor).and_then(|()| {
        let process = keeper(ground.alone, anchor)?;
        control.report(&Report::Keeper { process })?;
        slipway_fast::confine::confine()
    });
    match confined.and_then(|()| slipway_fast::run::run(setup)) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            // Nobody there to hear it means that the anchor is gone, and so are we.
            let _ = control.report(&Report::Failed(error.to_string()));
            std::process::exit(1)
        }
    }
}

/// Makes the process that keeps open what the router has open, until it is ended.
fn keeper(alone: SingleThread, anchor: &OwnedFd) -> io::Result<i32> {
    if let Some(pid) = clone_beside(alone)? {
        return Ok(pid.as_raw_nonzero().get());
    }
    // It was made by the router, whose wish to end with the anchor it has not inherited.
    let ready =
        process::end_with(anchor).and_then(|()| rustix::thread::set_name(c"slipway-keeper").map_err(Into::into));
    if ready.and_then(|()| slipway_fast::confine::confine()).is_ok() {
        loop {
            let _ = rustix::event::poll(&mut [], None);
        }
    }
    // No destructor runs here: what it closed would be closed to the router.
    std::process::exit(1)
}

/// Enters the host, and gives up all that a router does not need, but for calls that it does not make.
fn limit(ground: Ground<'_>, keep: &[BorrowedFd<'_>], anchor: &OwnedFd) -> io::Result<()> {
    process::end_with(anchor)?;
    // Nothing in a node may trace it or open its descriptors.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::thread::set_name(c"slipway-router")?;
    ground.group.map_or(Ok(()), Group::join_others).map_err(io::Error::other)?;
    setns(ground.net, CloneFlags::CLONE_NEWNET)?;
    rustix::stdio::dup2_stderr(ground.log)?;
    let mut kept = vec![0, 1, 2];
    kept.extend(keep.iter().map(AsRawFd::as_raw_fd));
    close_all_but(&kept)?;
    rustix::process::setsid()?;
    // The anchor may be real-time while a scenario plays.
    let _ = sched::set_usual();
    caps::bound(CAPABILITIES)?;
    caps::limit(CAPABILITIES)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

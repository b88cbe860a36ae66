//! A router's process: made, and confined before it hears of anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use rustix::process::{Pid, PidfdGetfdFlags, pidfd_getfd};
use rustix::thread::CapabilitySet;
use slipway_fast::control::{self, AnchorEnd, Order, Report, RouterEnd};
use slipway_fast::{journal, records};
use slipway_lab::id::HostId;
use slipway_lab::model::Lab;
use slipway_lab::policy::Rule;
use slipway_sys::cgroup::Group;
use slipway_sys::clone::{SingleThread, clone_beside};
use slipway_sys::helper::{Birth, Helper, Newborn};
use slipway_sys::{caps, process, sched};

use super::setup::Shared;

/// To look into programs' memory and descriptors (`ptrace(2)`, access mode checks), to open `/proc/TID/mem` and `/proc/TID/fd` of
/// programs of other users, and to destroy connections.
const CAPABILITIES: CapabilitySet =
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::NET_ADMIN);

/// A router that runs.
#[derive(Debug)]
pub(super) struct Process {
    // Before its keeper: what it has open is read from that afterwards.
    pub(super) helper: Helper,
    /// Keeps its descriptors open.
    keeper: Helper,
    control: AnchorEnd,
}

/// What a router is made in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) alone: SingleThread,
    pub(super) lab: &'a Lab,
    pub(super) host: HostId,
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
        let group = ground.group.and_then(Group::clone_target);
        let birth = Birth { alone: ground.alone, name: c"slipway-router", group, log: Some(ground.log) };
        let (helper, keeper) = Helper::fork(birth, |newborn| live(ground, shared, theirs, newborn))?;
        let keeper = keeper.parse().ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let control = ours.of(helper.as_fd().try_clone_to_owned()?);
        let started = Self { helper, keeper: Helper::adopt(keeper)?, control };
        match started.control.hear()? {
            Some(Report::Ready) => Ok(started),
            Some(Report::Failed(account)) => Err(io::Error::other(account)),
            Some(_) => Err(io::Error::other("it said something else first")),
            None => Err(io::Error::other(started.stop())),
        }
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
        self.helper.kill();
    }

    /// Ends it, waits for its end, and says how that came: of one that was ending already, its own way.
    pub(super) fn stop(self) -> String {
        self.leave(None).0
    }

    /// The same; and what it had in hand, as its `journal` says, for the next.
    pub(super) fn leave(self, journal: Option<&OwnedFd>) -> (String, Vec<Order>) {
        let how = self.helper.told(self.helper.stop());
        // What else the router had open is closed with its keeper: its peers hear of its end.
        (how, journal.map_or_else(Vec::new, |journal| left(&self.keeper, journal)))
    }
}

/// The descriptors that a router left which has ended, taken from its keeper.
fn left(keeper: &Helper, journal: &OwnedFd) -> Vec<Order> {
    let copy = |number| pidfd_getfd(keeper, number, PidfdGetfdFlags::empty()).ok();
    let found = journal::take(journal).unwrap_or_default().into_iter();
    let order = |(unaccepted, end, wakeup_socket): (_, _, Option<_>)| {
        let sockets = [Some(copy(end)?), wakeup_socket.and_then(copy)].into_iter().flatten().collect();
        Some(Order::Unaccepted { unaccepted, sockets })
    };
    let recorded = records::take(journal).unwrap_or_default().into_iter();
    let recorded = recorded.filter_map(|(record, number)| Some(Order::Recorded { record, descriptor: copy(number)? }));
    found.filter_map(order).chain(recorded).collect()
}

/// Readable when it has reported something.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// The life of a router.
fn live(ground: Ground<'_>, shared: &Shared, control: RouterEnd, newborn: &mut Newborn) -> io::Result<()> {
    let copy = RouterEnd::from(control.as_fd().try_clone_to_owned()?);
    let setup = shared.of_host(ground.lab, ground.host, control)?;
    let persistent = &setup.persistent;
    let needed =
        [setup.control.as_fd(), setup.key.as_fd(), persistent.metadata.storage().as_fd(), persistent.journal.as_fd()];
    let counts: Vec<BorrowedFd<'_>> = persistent.interruptions.iter().map(AsFd::as_fd).collect();
    let listener: Vec<BorrowedFd<'_>> = setup.listener.iter().map(AsFd::as_fd).collect();
    let outside: Vec<BorrowedFd<'_>> = setup.outside.iter().map(AsFd::as_fd).collect();
    limit(
        ground,
        newborn,
        &[&needed[..], &counts, &listener, &outside, &[ground.lock, copy.as_fd(), newborn.maker().as_fd()]].concat(),
    )?;
    let keeper = keeper(ground.alone, newborn.maker())?;
    newborn.ready(&keeper.to_string())?;
    slipway_fast::confine::confine().and_then(|()| slipway_fast::run::run(setup)).inspect_err(|error| {
        // Nobody there to hear it means that the anchor is gone, and so are we.
        let _ = copy.report(&Report::Failed(error.to_string()));
    })
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
fn limit(ground: Ground<'_>, newborn: &Newborn, keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    ground.group.map_or(Ok(()), Group::join_others).map_err(io::Error::other)?;
    setns(ground.net, CloneFlags::CLONE_NEWNET)?;
    newborn.keep_only(keep)?;
    // The anchor may be real-time while a scenario plays.
    let _ = sched::set_usual();
    caps::bound(CAPABILITIES)?;
    caps::limit(CAPABILITIES)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

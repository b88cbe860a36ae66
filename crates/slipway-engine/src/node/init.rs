//! A node's PID 1: builds the node around itself, then executes the program that reaps whatever is orphaned in it.
//!
//! Until then it has the memory of a spawner, a clone of the anchor that waits meanwhile. It is alone in its PID namespace. With the exec it
//! leaves all of that before the first program of the node starts: [`slipway_sys::init`] has nothing that a program in the node could look at.

use std::convert::Infallible;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use rustix::process::Pid;
use slipway_sys::cgroup::{CgroupError, Group};
use slipway_sys::init::Program;
use slipway_sys::mount::set_sysctl;
use slipway_sys::ns::owner_below;
use slipway_sys::process::end_with;

use super::error::RootfsError;
use super::link::{InitError, Link, Step};
use super::rootfs::{Root, own_proc};
use super::user;
use crate::network::NetworkError;

/// Why executing it may be refused.
const NO_EXEC: &str = "\nHint: `sysctl vm.memfd_noexec` has to be 0 or 1";

const NO_USERS: &str = "\nHint: `sysctl user.max_user_namespaces` says how many there may be";

/// Which network namespace the node lives in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Net<'a> {
    /// A new one.
    Own,
    /// A new one, that belongs to a new user namespace of the node's own.
    Owned,
    /// One that exists: its host's, or its own from before it was stopped.
    Join(BorrowedFd<'a>),
}

impl<'a> Net<'a> {
    /// The namespace that there is already.
    pub(crate) fn joined(self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Own | Self::Owned => None,
            Self::Join(net) => Some(net),
        }
    }
}

/// Everything an init needs, borrowed from its spawner's memory.
pub(crate) struct Birth<'a> {
    /// The anchor's own pidfd.
    pub(crate) anchor: BorrowedFd<'a>,
    /// The program that it executes in the end. This says [`Step::Ready`].
    pub(crate) program: &'a Program,
    pub(crate) root: Root<'a>,
    /// Most processes and threads of the node, whatever its control group says; see [`most_processes`].
    pub(crate) processes: Option<u32>,
    /// Born in its version 2 part, if it has one.
    pub(crate) group: Option<&'a Group>,
    pub(crate) net: Net<'a>,
    /// Run in a new network namespace before it has interfaces, with the node's `/proc`.
    pub(crate) prepare: &'a dyn Fn(BorrowedFd<'_>) -> Result<(), NetworkError>,
    /// Run in the node's network namespace once its interfaces are there.
    pub(crate) configure: &'a dyn Fn() -> Result<(), NetworkError>,
    /// Run last: gives up what an init does not need.
    pub(crate) confine: &'a dyn Fn() -> io::Result<()>,
}

/// The highest number of a process: of the PID namespace that the caller is in, since Linux 6.14.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
const THREADS_MAX: &str = "/proc/sys/kernel/threads-max";

/// The processes and threads that a node may have: half of the machine's, so that no node takes all. Before Linux 6.14
/// the bound is the whole machine's, and this is `None`.
///
/// # Errors
/// When `/proc` is not mounted.
pub(crate) fn most_processes() -> io::Result<Option<u32>> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0u32));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 14) {
        return Ok(None);
    }
    let number = |path: &str| Ok::<_, io::Error>(fs::read_to_string(path)?.trim().parse().unwrap_or(u32::MAX));
    let half = number(PID_MAX)?.min(number(THREADS_MAX)?) / 2;
    // The kernel takes no less (`RESERVED_PIDS`, `kernel/pid.c`).
    Ok(Some(half.max(1024)))
}

/// The life of an init, whose number in the anchor's PID namespace is `pid`. Returns where it fails, and has told why.
pub(crate) fn live(birth: &Birth<'_>, pid: Pid, link: &Link) {
    let Err(error) = link.tell_born(pid).map_err(system("answer the anchor")).and_then(|()| be_born(birth, link));
    link.fail(&error.to_string());
}

/// Why an init could not build its node. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
enum BirthError {
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: io::Error },
    #[error("make the node's user namespace: {0}{NO_USERS}")]
    UserNamespace(io::Error),
    #[error("write {PID_MAX}: {0}")]
    Processes(io::Error),
    #[error("execute its init: {0}{NO_EXEC}")]
    Forbidden(io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Root(#[from] RootfsError),
    #[error(transparent)]
    Anchor(#[from] InitError),
}

fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> BirthError {
    move |error| BirthError::System { doing, source: error.into() }
}

fn be_born(birth: &Birth<'_>, link: &Link) -> Result<Infallible, BirthError> {
    // With the anchor goes everything. One that is orphaned already ends here, before it lets go of the lab's lock below.
    end_with(birth.anchor).map_err(system("tie the node to the lab"))?;
    prctl::set_name(c"slipway-init").map_err(system("name the init"))?;
    birth.group.map_or(Ok(()), Group::join_others)?;
    nix::unistd::setsid().map_err(system("start a session"))?;

    // Not of mounts: its root is a tree that is made in the lab's (`Root::enter`).
    let mut own = CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWCGROUP;
    let enter =
        |net: BorrowedFd<'_>| setns(net, CloneFlags::CLONE_NEWNET).map_err(system("join the network namespace"));
    // The owner of the node's network, where that is not the anchor's own user namespace.
    let mut of_its_own = None;
    match birth.net {
        Net::Own => own |= CloneFlags::CLONE_NEWNET,
        Net::Owned => {
            let made = user::make_net().map_err(BirthError::UserNamespace)?;
            enter(made.net.as_fd())?;
            of_its_own = Some(made.user);
        }
        Net::Join(net) => {
            enter(net)?;
            of_its_own = owner_below(net).map_err(system("find the node's user namespace"))?;
        }
    }
    unshare(own).map_err(system("make the node's namespaces"))?;
    let proc = own_proc()?;
    if let Some(most) = birth.processes {
        let written = set_sysctl(proc.as_fd(), "kernel/pid_max", &most.to_string());
        written.map_err(BirthError::Processes)?;
    }
    if matches!(birth.net, Net::Own | Net::Owned) {
        (birth.prepare)(proc.as_fd())?;
    }
    link.say(Step::Namespaced).map_err(system("answer the anchor"))?;

    nix::unistd::sethostname(&birth.root.node.name).map_err(system("set the host name"))?;
    birth.root.enter(proc.as_fd())?;
    link.expect(Step::Linked)?;
    (birth.configure)()?;
    if let Some(user) = of_its_own {
        // Programs find it here (`exec`), and the capabilities that they get are over no more than it owns.
        setns(user, CloneFlags::CLONE_NEWUSER).map_err(system("enter the node's user namespace"))?;
        // The kernel has forgotten it: this process's capabilities are another namespace's now (`commit_creds`, kernel/cred.c).
        end_with(birth.anchor).map_err(system("tie the node to the lab"))?;
    }
    (birth.confine)().map_err(system("confine its init"))?;
    // It keeps no other descriptor. The lab's log was among them.
    birth.program.become_it(link.as_fd()).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => BirthError::Forbidden(error),
        _ => system("execute its init")(error),
    })
}

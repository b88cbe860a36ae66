//! Starting programs.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, pidfd_open, setrlimit};
use slipway_sys::cgroup::Group;
use slipway_sys::clone::{Cloned, SingleThread, clone_into};
use slipway_sys::process::ProcessId;
use slipway_sys::seccomp::Filter;

use super::child;
use super::entry::{Entry, Supervised};
use super::error::ExecError;
use super::image::Image;
use super::message::{self, Message};
use super::program::{Program, Stdio};
use super::running::Child;
use crate::confine::Confinement;
use crate::protocol::{HearProgram, give_descriptor};

const NO_WAY_BACK: &str =
    "this user namespace does not own the PID namespace that it is in\nHint: make both: unshare -Urnmpf --mount-proc";

/// Starts programs in nodes.
#[derive(Debug)]
pub struct Launcher {
    alone: SingleThread,
    home: OwnedFd,
    confinement: Confinement,
    files: Rlimit,
}

impl Launcher {
    /// Prepares to start programs.
    ///
    /// # Errors
    /// When the process has more than one thread, or may not return to its own PID namespace from a node's.
    pub fn new() -> io::Result<Self> {
        let alone = SingleThread::check()?;
        // Not the child's to do: programs of its node see it before its first instruction.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
        let home: OwnedFd = File::open("/proc/self/ns/pid")?.into();
        // A program is born in its node's PID namespace, and then the way back must be open.
        match setns(&home, CloneFlags::CLONE_NEWPID) {
            Err(nix::errno::Errno::EPERM) => return Err(io::Error::other(NO_WAY_BACK)),
            other => other?,
        }
        // A job on a thousand nodes takes some thousand descriptors; its programs get the caller's own limit back.
        let files = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
        Ok(Self { alone, home, confinement: Confinement::compile(), files })
    }

    /// Confines this process, which is to be a node's init: no capability, and few system calls.
    pub(crate) fn confine_init(&self) -> io::Result<()> {
        self.confinement.apply_to_init()
    }

    /// Starts a program and returns once it executes. It is killed when this process ends. `within` is a group inside the
    /// node's, for programs that are to be ended together with all that they started.
    ///
    /// # Errors
    /// When the program does not come to be executed; then no process is left.
    ///
    /// # Panics
    /// When the caller's children cannot be pointed back to its own PID namespace: all later ones would be born in a node's.
    pub fn spawn(
        &self,
        entry: &Entry,
        program: &Program,
        stdio: Stdio<'_>,
        within: Option<&Group>,
    ) -> Result<Child, ExecError> {
        self.spawn_heard(entry, program, stdio, within, &mut hand_over, &mut |_| Ok(()))
    }

    /// As [`spawn`](Self::spawn), for the anchor, which cannot ask itself. `hand` takes the listener of a program in a node
    /// with bypasses. `wait` waits until the link to the child has something to say; where that fails, the child is ended.
    #[tracing::instrument(level = "debug", skip_all, fields(node = %entry.node, program = ?program.argv.first()), err(level = "debug"))]
    pub(crate) fn spawn_heard(
        &self,
        entry: &Entry,
        program: &Program,
        stdio: Stdio<'_>,
        within: Option<&Group>,
        hand: &mut dyn FnMut(&Supervised, OwnedFd) -> io::Result<()>,
        wait: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Result<Child, ExecError> {
        let fail = |doing| ExecError::start(&entry.node, doing);
        let streams = stdio.streams().map_err(fail("pass standard input and output on"))?;
        let image = Image::prepare(entry, program, streams.size.is_some())?;
        let init = entry.init.open().map_err(fail("open the init"))?;
        let init = init.ok_or_else(|| ExecError::Gone(entry.node.clone()))?;
        let frozen = entry.group.as_ref().map_or(Ok(false), Group::is_frozen);
        if frozen.map_err(|error| fail("look at the control group")(io::Error::other(error)))? {
            return Err(ExecError::Frozen(entry.node.clone()));
        }
        let own_user = is_elsewhere(entry.init).map_err(fail("look for the node's user namespace"))?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| fail("open a socket pair")(error.into()))?;
        let parent = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| fail("open itself")(error.into()))?;
        let target = within.or(entry.group.as_ref()).and_then(Group::clone_target);

        let calls = entry.supervised.as_ref().map(|supervised| &supervised.calls);
        let trap = calls.map(|calls| (Filter::trap(&calls.traps), calls.io_uring));

        setns(&init, CloneFlags::CLONE_NEWPID).map_err(|error| fail("enter the PID namespace")(error.into()))?;
        let cloned = clone_into(self.alone, CloneFlags::empty(), target);
        if let Ok(Cloned::Child) = cloned {
            let groups = [entry.group.as_ref(), within];
            child::run(&child::Birth {
                init,
                parent,
                link: theirs,
                groups,
                confinement: &self.confinement,
                own_user,
                capabilities: &entry.capabilities,
                trap,
                files: self.files,
                image: &image,
                streams,
            });
        }
        setns(&self.home, CloneFlags::CLONE_NEWPID)
            .expect("a process can point its children back to its own namespace");
        let Cloned::Parent { pid, pidfd } = cloned.map_err(fail("clone"))? else { unreachable!("handled above") };
        drop(theirs);
        let mut child = Child::new(pid, pidfd);
        loop {
            if let Err(error) = wait(ours.as_fd()) {
                // Gone already is as well.
                let _ = child.signal(Signal::KILL).and_then(|()| child.wait());
                return Err(fail("wait for its exec")(error));
            }
            match message::receive(&ours).map_err(fail("hear from the child"))? {
                // The program's exec closed the other end.
                None => return Ok(child),
                Some(Message::Terminal(terminal)) => child.terminal = Some(terminal),
                Some(Message::Listener(listener)) => {
                    let supervised = entry.supervised.as_ref();
                    let handed = supervised.map_or(Ok(()), |supervised| hand(supervised, listener));
                    if let Err(error) = handed.and_then(|()| message::let_go_on(&ours)) {
                        // With the link it sees that it may not go on.
                        drop(ours);
                        let _ = child.wait();
                        return Err(fail("have its host's router listen")(error));
                    }
                }
                Some(Message::Failed(failure)) => {
                    // It exits right after saying so.
                    let _ = child.wait();
                    return Err(failure.explain(&entry.node, &image.name));
                }
            }
        }
    }
}

/// Whether an init is in a user namespace other than this process's. One that ends meanwhile cannot be entered at all.
fn is_elsewhere(init: ProcessId) -> io::Result<bool> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user"));
    Ok(of(&init.pid.to_string())? != of("self")?)
}

/// Has a running lab's anchor pass a listener on.
pub(super) fn hand_over(to: &Supervised, listener: OwnedFd) -> io::Result<()> {
    give_descriptor(&to.control, HearProgram { node: to.node }, listener).map_err(io::Error::other)
}

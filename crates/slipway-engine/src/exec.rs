//! Programs in nodes.
//!
//! A program enters a node in one clone. The caller points its children at the node's PID namespace (`setns(2)`), clones
//! straight into the node's control group, and points itself back: it never enters the node. The child then joins the
//! node's other namespaces, gives up what a default container does not have, and executes. Until then it is shielded from
//! a hostile node. It is not dumpable from its first instruction on, so that nothing in the node may trace it, read its memory,
//! or open its descriptors. And everything that the node could have replaced (`PATH`, `/dev/ptmx`, the working directory) is looked up only once it is confined.
//!
//! The caller must be single-threaded ([`SingleThread`]), since the child of a threaded process may not allocate before it
//! executes. The alternative, executing `/proc/self/exe` again with a hidden subcommand, costs an exec per program and
//! passes everything as text; the callers here (`slipway exec`, a job's event loop) have no use for threads.

mod child;
mod foreground;
mod message;
pub(crate) mod pump;
pub(crate) mod ssh;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};
use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, getrlimit, kill_process_group,
    pidfd_open, setrlimit, waitid,
};
use rustix::termios::Winsize;
use slipway_lab::id::NodeId;
use slipway_lab::model::{Capability, Lab};
use slipway_sys::cgroup::Group;
use slipway_sys::clone::{Cloned, SingleThread, clone_into};
use slipway_sys::process::ProcessId;
use slipway_sys::seccomp::Filter;

use crate::bypass::{Calls, Needs};
use crate::bypasses;
use crate::confine::Confinement;
use crate::fast::RouterState;
use crate::protocol::{HearProgram, give_descriptor};
use crate::state::LabDir;
use message::Message;

/// Where programs are looked for when the node's environment does not say.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is needed to enter a node.
#[derive(Debug)]
pub struct Entry {
    /// The node's name.
    pub node: String,
    /// PID 1 of the node.
    pub init: ProcessId,
    /// The node's control group; `None` where this machine lets us make none.
    pub group: Option<Group>,
    /// Added to the environment of every program in the node.
    pub env: BTreeMap<String, String>,
    /// Capabilities beyond a default container's. A node with any has a user namespace of its own.
    pub capabilities: Vec<Capability>,
    /// For a node with bypasses.
    pub supervised: Option<Supervised>,
}

/// Calls of a node's programs that a supervisor answers, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervised {
    calls: Calls,
    /// The lab's anchor, which takes listeners.
    control: PathBuf,
    /// The node.
    node: NodeId,
}

impl Entry {
    /// The entry to a node with this init and control group, and with what its bypasses need. `routers` are those of the lab.
    pub(crate) fn of(
        dir: &LabDir,
        lab: &Lab,
        routers: &[RouterState],
        node: NodeId,
        init: ProcessId,
        group: Option<Group>,
    ) -> Self {
        let model = &lab.nodes[node];
        let Needs { calls, mut env, .. } = bypasses::needs(lab, routers, node);
        env.extend(model.env.clone());
        let supervised = calls.map(|calls| Supervised { calls, control: dir.control(), node });
        Self { node: model.name.clone(), init, group, env, capabilities: model.capabilities.clone(), supervised }
    }
}

/// A program to execute.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The program and its arguments. A name without a slash is looked up in the node's `PATH`, inside the node.
    pub argv: Vec<OsString>,
    /// Added to the environment, over the node's. Nothing of the caller's environment passes.
    pub env: BTreeMap<String, String>,
    /// Inside the node; `/` where `None`.
    pub workdir: Option<PathBuf>,
    /// Root where `None`.
    pub user: Option<User>,
}

/// Whom a program runs as, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group. There are no supplementary groups.
    pub gid: u32,
}

/// What a program reads from and writes to.
#[derive(Debug, Clone, Copy)]
pub enum Stdio<'a> {
    /// Standard input, output and error: pipes and sockets that the caller made for the program. The null device stands for
    /// the node's own, and nothing else may enter a node.
    Descriptors([BorrowedFd<'a>; 3]),
    /// A new terminal of the node's own, of this size.
    Terminal(Winsize),
    /// Each by itself.
    Streams(Streams<'a>),
}

/// Standard input, output and error of a program.
#[derive(Debug, Clone, Copy)]
pub struct Streams<'a> {
    each: [Stream<'a>; 3],
    /// Of the terminal, where one of them is one.
    size: Option<Winsize>,
}

#[derive(Debug, Clone, Copy)]
enum Stream<'a> {
    /// The node's own null device.
    Null,
    /// Made for the program.
    Pipe(BorrowedFd<'a>),
    /// The node's own terminal. Where the input is none, it only shows.
    Terminal,
}

impl<'a> Stdio<'a> {
    fn streams(self) -> io::Result<Streams<'a>> {
        let of = |fd: BorrowedFd<'a>| {
            let status = fstat(fd)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Fifo | FileType::Socket => Ok(Stream::Pipe(fd)),
                _ if pump::is_null(&status) => Ok(Stream::Null),
                _ => Err(io::Error::other(
                    "it is neither a pipe nor the null device, and no file of this machine may enter a node",
                )),
            }
        };
        match self {
            Self::Descriptors([input, output, error]) => {
                Ok(Streams { each: [of(input)?, of(output)?, of(error)?], size: None })
            }
            Self::Terminal(size) => Ok(Streams { each: [Stream::Terminal; 3], size: Some(size) }),
            Self::Streams(streams) => Ok(streams),
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Exit {
    /// As a shell says it: the code, or 128 and the signal's number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => number.saturating_add(128),
        }
    }
}

/// Why a program does not run in a node.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The node has ended.
    #[error("enter node `{0}`: it no longer runs\nHint: `slipway ps` shows its state")]
    Gone(String),
    /// The node is frozen, and so would the program be, before its first step.
    #[error("execute a program in node `{0}`: it is frozen\nHint: `slipway thaw` lets it go on")]
    Frozen(String),
    /// The program is not in the node.
    #[error("find program `{program}` in node `{node}`{detail}")]
    NotFound {
        /// As asked.
        program: String,
        /// Where.
        node: String,
        /// What was tried.
        detail: String,
    },
    /// The program may not or cannot be executed.
    #[error("execute `{program}` in node `{node}`: {detail}")]
    NotExecutable {
        /// As asked.
        program: String,
        /// Where.
        node: String,
        /// Why.
        detail: String,
    },
    /// Something before the exec failed.
    #[error("{doing} for a program in node `{node}`: {detail}")]
    Start {
        /// What was being done.
        doing: String,
        /// Where.
        node: String,
        /// Why.
        detail: String,
    },
}

impl ExecError {
    /// The exit code that a shell gives: 127 for a program that is not there, 126 for one that cannot be executed, and
    /// 125 (as container engines do) where no program was reached.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Gone(_) | Self::Frozen(_) | Self::Start { .. } => 125,
        }
    }

    fn start(node: &str, doing: &str) -> impl FnOnce(io::Error) -> Self {
        let (doing, node) = (doing.to_owned(), node.to_owned());
        move |error| Self::Start { doing, node, detail: error.to_string() }
    }
}

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

    /// As [`spawn`](Self::spawn), with another way for the listener of a program in a node with bypasses (the anchor cannot
    /// ask itself), and for waiting until the link to the child has something to say: where that fails, the child is ended.
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
        let mut child = Child { pid, pidfd, terminal: None };
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
fn hand_over(to: &Supervised, listener: OwnedFd) -> io::Result<()> {
    give_descriptor(&to.control, HearProgram { node: to.node }, listener).map_err(io::Error::other)
}

/// A program that runs in a node.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    /// The outside of its terminal, where it has one. Non-blocking.
    pub terminal: Option<OwnedFd>,
}

impl Child {
    /// In this process's PID namespace.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the program alone.
    ///
    /// # Errors
    /// As `pidfd_send_signal(2)`; that it has ended is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        ended_is_fine(rustix::process::pidfd_send_signal(&self.pidfd, signal))
    }

    /// Sends a signal to the program and to whatever it started in its process group, as a terminal does.
    ///
    /// # Errors
    /// As `kill(2)`; that it has ended is no error.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        // The program leads a group of its own number, and the number is taken until this process waits for it.
        ended_is_fine(kill_process_group(self.pid, signal))
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// As `waitid(2)`.
    pub fn wait(&self) -> io::Result<Exit> {
        loop {
            let options = WaitIdOptions::EXITED;
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(Some(status)) => {
                    let byte = |number: Option<i32>| number.and_then(|number| u8::try_from(number & 0xff).ok());
                    return Ok(match byte(status.exit_status()) {
                        Some(code) => Exit::Code(code),
                        None => Exit::Signal(byte(status.terminating_signal()).unwrap_or(0)),
                    });
                }
            }
        }
    }
}

/// Readable once the program has ended.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn ended_is_fine(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

/// A program in the form that the kernel takes.
struct Image {
    name: String,
    argv: Vec<CString>,
    env: Vec<CString>,
    /// Tried in order.
    paths: Vec<CString>,
    workdir: CString,
    user: Option<User>,
}

impl Image {
    fn prepare(entry: &Entry, program: &Program, terminal: bool) -> Result<Self, ExecError> {
        let bad = |doing: &str, detail: &str| ExecError::Start {
            doing: doing.to_owned(),
            node: entry.node.clone(),
            detail: detail.to_owned(),
        };
        let c = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|_| bad("pass the arguments", "one contains a zero byte, which ends a string"))
        };
        let Some(first) = program.argv.first() else { return Err(bad("read the command", "it is empty")) };
        let env = environment(entry, program, terminal);
        let name = first.clone().into_vec();
        let paths = if name.contains(&b'/') {
            vec![c(name.clone())?]
        } else {
            let path = env.get("PATH").map_or(PATH, String::as_str);
            let beside = |folder: &str| [folder.as_bytes(), b"/", &name].concat();
            path.split(':')
                .filter(|folder| !folder.is_empty())
                .map(|folder| c(beside(folder)))
                .collect::<Result<_, _>>()?
        };
        let workdir = program.workdir.clone().unwrap_or_else(|| "/".into());
        Ok(Self {
            name: first.to_string_lossy().into_owned(),
            argv: program.argv.iter().map(|word| c(word.clone().into_vec())).collect::<Result<_, _>>()?,
            env: env
                .into_iter()
                .map(|(key, value)| c(format!("{key}={value}").into_bytes()))
                .collect::<Result<_, _>>()?,
            paths,
            workdir: c(workdir.into_os_string().into_vec())?,
            user: program.user,
        })
    }
}

/// The defaults, the node's own, then the program's; never the caller's, but for the kind of terminal that it sits at.
fn environment(entry: &Entry, program: &Program, terminal: bool) -> BTreeMap<String, String> {
    let home = if program.user.is_none_or(|user| user.uid == 0) { "/root" } else { "/" };
    let mut env: BTreeMap<String, String> = [("PATH", PATH), ("HOME", home), ("HOSTNAME", &entry.node)]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    if terminal {
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        env.insert("TERM".to_owned(), kind);
    }
    env.extend(entry.env.clone());
    env.extend(program.env.clone());
    env
}

#[cfg(test)]
mod tests;

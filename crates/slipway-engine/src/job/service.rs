//! The launch service: executes in one node what a launcher in another asks for, as `sshd` would on a real cluster.
//!
//! It trusts nobody. A caller must be a process in one of the job's nodes, by the kernel's word; what it sends is bounded,
//! copied, and only then read. All it can have is a command executed in a node of the same job, under the confinement of
//! every program there, which is what a password-less cluster gives its users.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use rustix::process::Signal;

use super::JobError;
use super::local::{Local, pid_namespace};
use super::node_file::IN_NODES;
use super::nodes::{Nodes, Process};
use super::parts::{News, Parts};
use super::protocol::{Received, Reply, Request, VERSION, receive, send};
use crate::exec::{Child, Program};
use crate::protocol::Hello;

/// Tells the agent where the job's socket is, through the environment of everything that the job starts.
pub(super) const VARIABLE: &str = "SLIPWAY_LAUNCH";
const SOCKET: &str = "launch.sock";
/// Connections at once. A launcher holds one per node.
const MOST_CALLS: usize = 4096;

/// What the kernel may report something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Somebody wants to connect.
    Caller,
    /// A caller said something or is gone.
    Said(u64),
    /// A caller's command has ended.
    Done(u64),
}

#[derive(Debug)]
struct Call {
    /// `None` once the caller is gone.
    socket: Option<OwnedFd>,
    /// Whether the agent speaks this version.
    greeted: bool,
    process: Option<Process>,
    /// The exit code of a program on another machine, whose last words are on their way still.
    ended: Option<u8>,
}

/// The service of one job.
#[derive(Debug)]
pub(super) struct Service {
    folder: PathBuf,
    listener: OwnedFd,
    env: BTreeMap<String, String>,
    calls: BTreeMap<u64, Call>,
    next: u64,
}

impl Service {
    /// Opens the service in a folder of its own, which nodes see below [`IN_NODES`]. Commands get `env`.
    pub(super) fn open(folder: &Path, env: &BTreeMap<String, String>) -> Result<Self, JobError> {
        let make = || {
            fs::DirBuilder::new().mode(0o755).create(folder)?;
            let listener = listener(folder).inspect_err(|_| {
                let _ = fs::remove_dir_all(folder);
            })?;
            Ok(listener)
        };
        let listener = make().map_err(JobError::io(format!("open the launch service in {}", folder.display())))?;
        let mut service =
            Self { folder: folder.to_owned(), listener, env: env.clone(), calls: BTreeMap::new(), next: 0 };
        service.env.extend([service.variable()]);
        Ok(service)
    }

    /// The service's folder, as nodes see it.
    pub(super) fn seen_from_nodes(&self) -> PathBuf {
        Path::new(IN_NODES).join(self.folder.file_name().unwrap_or_default())
    }

    /// What the launcher's environment needs.
    pub(super) fn variable(&self) -> (String, String) {
        (VARIABLE.to_owned(), self.seen_from_nodes().join(SOCKET).to_string_lossy().into_owned())
    }

    /// Puts a file into the folder, for nodes to read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), JobError> {
        let path = self.folder.join(name);
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(JobError::io(format!("write {}", path.display())))
    }

    /// Everything to wait for.
    pub(super) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, Event)> {
        let mut all = vec![(self.listener.as_fd(), Event::Caller)];
        for (&id, call) in &self.calls {
            all.extend(call.socket.as_ref().map(|socket| (socket.as_fd(), Event::Said(id))));
            all.extend(call.here().map(|child| (child.as_fd(), Event::Done(id))));
        }
        all
    }

    /// Acts on what was waited for.
    pub(super) fn handle(&mut self, event: Event, nodes: &mut Nodes<'_>) -> io::Result<()> {
        match event {
            Event::Caller => self.accept(nodes.locals),
            Event::Said(id) => self.listen_to(id, nodes),
            Event::Done(id) => self.finish(id),
        }
    }

    fn accept(&mut self, locals: &[Local]) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            // Gone again before it was served.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if self.calls.len() < MOST_CALLS && is_from(&socket, locals) {
            self.calls.insert(self.next, Call { socket: Some(socket), greeted: false, process: None, ended: None });
            self.next += 1;
        }
        Ok(())
    }

    fn listen_to(&mut self, id: u64, nodes: &mut Nodes<'_>) -> io::Result<()> {
        let Some(call) = self.calls.get_mut(&id) else { return Ok(()) };
        let Some(socket) = &call.socket else { return Ok(()) };
        match (receive(socket)?, &call.process) {
            (Received::Nothing, _) => {}
            (Received::Message(request, stdio), None) => {
                let done = match request {
                    Request::Hello(hello) if !call.greeted => greet(&hello).map(|()| call.greeted = true),
                    Request::Launch { host, command } if call.greeted => {
                        start(&host, &command, &stdio, &self.env, nodes).map(|process| call.process = Some(process))
                    }
                    // An agent from before there were versions launches at once.
                    Request::Launch { .. } => Err(no_agent(&Hello::of(VERSION).refuse("an agent without a version"))),
                    Request::Hello(_) | Request::Signal(_) => Err(no_agent(&"take a message that is out of its turn")),
                };
                if let Err(refused) = done {
                    // A caller that is gone needs no answer.
                    let _ = send(socket.as_fd(), &refused, &[]);
                    self.calls.remove(&id);
                }
            }
            (Received::Message(Request::Signal(number), _), Some(process)) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    nodes.signal(process, signal)?;
                }
            }
            // Gone, or out of its turn, or no agent of ours: its command ends with it.
            (_, Some(process)) => {
                nodes.signal(process, Signal::KILL)?;
                call.socket = None;
            }
            (_, None) => {
                self.calls.remove(&id);
            }
        }
        Ok(())
    }

    fn finish(&mut self, id: u64) -> io::Result<()> {
        if let Some(call) = self.calls.remove(&id)
            && let Some(child) = call.here()
        {
            call.answer(&Reply::Exited(child.wait()?.code()));
        }
        Ok(())
    }

    /// Takes news of a program on another machine.
    pub(super) fn hear(&mut self, news: &News) {
        let (News::Ended(far, _) | News::NotStarted { program: far, .. }) = news;
        let of = |call: &Call| call.process.as_ref().is_some_and(|process| process.is(*far));
        let Some(id) = self.calls.iter().find(|(_, call)| of(call)).map(|(&id, _)| id) else { return };
        match news {
            News::Ended(_, exit) => {
                self.calls.entry(id).and_modify(|call| call.ended = Some(exit.code()));
            }
            News::NotStarted { code, reason, .. } => {
                if let Some(call) = self.calls.remove(&id) {
                    call.answer(&Reply::Refused { code: *code, reason: reason.clone() });
                }
            }
        }
    }

    /// Answers callers whose programs on other machines have ended, once all that these wrote is written.
    pub(super) fn settle(&mut self, parts: &Parts) {
        self.calls.retain(|_, call| match (&call.process, call.ended) {
            (Some(Process::There(far)), Some(code)) if parts.is_written(*far) => {
                call.answer(&Reply::Exited(code));
                false
            }
            _ => true,
        });
    }
}

impl Call {
    /// Its program, where that is on this machine.
    fn here(&self) -> Option<&Child> {
        match &self.process {
            Some(Process::Here(child)) => Some(child),
            _ => None,
        }
    }

    /// A caller that is gone needs no answer.
    fn answer(&self, reply: &Reply) {
        if let Some(socket) = &self.socket {
            let _ = send(socket.as_fd(), reply, &[]);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Those on other machines end with their parts.
        for child in self.calls.values().filter_map(Call::here) {
            let _ = child.signal_group(Signal::KILL);
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn listener(folder: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Socket addresses are short (108 bytes), state folders need not be.
    let folder = fs::File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    listen(&socket, 1024)?;
    Ok(socket)
}

/// Whether the process that connected is in one of the job's nodes: its PID namespace is one of theirs.
fn is_from(socket: &OwnedFd, locals: &[Local]) -> bool {
    let Ok(caller) = rustix::net::sockopt::socket_peercred(socket) else { return false };
    let Ok(caller) = pid_namespace(caller.pid.as_raw_nonzero().get()) else { return false };
    locals.iter().any(|place| place.namespace == caller)
}

/// Refuses an agent of another version.
fn greet(theirs: &Hello) -> Result<(), Reply> {
    Hello::of(VERSION).meet(theirs).map_err(|error| no_agent(&error))
}

/// Refuses a request, with ssh's exit code for a connection that is none.
fn no_agent(reason: &dyn Display) -> Reply {
    Reply::Refused { code: 255, reason: reason.to_string() }
}

#[tracing::instrument(level = "debug", skip_all)]
fn start(
    host: &str,
    command: &str,
    stdio: &[OwnedFd],
    env: &BTreeMap<String, String>,
    nodes: &mut Nodes<'_>,
) -> Result<Process, Reply> {
    let [input, output, error] = stdio else {
        return Err(no_agent(&"the agent passed no standard input and output"));
    };
    let place = nodes
        .called(host)
        .ok_or_else(|| no_agent(&format!("find node `{host}` in this job\nHint: list it in the job's nodes")))?;
    let program =
        Program { argv: ["/bin/sh", "-c", command].map(Into::into).to_vec(), env: env.clone(), ..Program::default() };
    nodes
        .start(place, &program, [input.as_fd(), output.as_fd(), error.as_fd()])
        .map_err(|error| Reply::Refused { code: error.code(), reason: error.to_string() })
}

//! Files into nodes and out of them.
//!
//! A tar stream goes through a pipe between this process and slipway's own agent, which runs in the node as any program
//! there does. The agent resolves names and symbolic links inside the node, where they lead nowhere else.
//!
//! This process does not trust a stream out of a node: a program there may have stopped the agent and write in its
//! place. Every name has to begin with the one that was asked for. Names are resolved beneath the destination without
//! following any link, and so is the destination itself. Files are made anew. Owners and set-user-id bits do not cross.
//! Only files, folders and links are made. The amount that may come is bounded, and so is the time in which nothing
//! comes.

mod pack;
mod stream;
mod unpack;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use slipway_document::text::printable;
use slipway_document::units::Bytes;
use slipway_sys::signals::{ENDING, Taken};

use stream::{Broken, Counted, Pipe, drain, quicken, wait};
use unpack::Rules;

use crate::exec::{Child, Entry, ExecError, Exit, Launcher, Program, Stdio};
use crate::protocol::{self, Code, Reply};

/// Where nodes have slipway's agent.
const AGENT: &str = "/run/slipway/agent";
/// The order to the agent.
const PACK: &str = "--pack";
const UNPACK: &str = "--unpack";
/// Greatest length of the agent's account on the way out, in bytes. A pipe holds more, so the agent never waits for a
/// reader.
const LONGEST_ACCOUNT: usize = 32 * 1024;
/// How long the agent may take to end once the stream has.
const AT_THE_END: Duration = Duration::from_secs(5);

/// The reason why files were not copied. Files that were copied before the error stay.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// The copy was refused.
    #[error("copy {}: {why}", path.display())]
    Refused {
        /// From or to.
        path: PathBuf,
        /// The reason, and the next step.
        why: &'static str,
    },
    /// A symbolic link lies on the way to the destination.
    #[error("copy to {}: a symbolic link lies on the way, and an earlier copy may have brought it\nHint: {hint}", path.display())]
    Linked {
        /// The destination.
        path: PathBuf,
        /// The next step.
        hint: String,
    },
    /// More came than may come.
    #[error("copy to {}: more than {most} came\nHint: `--max-size` allows more, as in --max-size 100GiB; without it nine tenths of what is free at the destination may be filled", path.display())]
    TooMuch {
        /// The destination.
        path: PathBuf,
        /// The bound.
        most: Bytes,
    },
    /// Nothing passes.
    #[error(
        "copy: next to nothing passed for {} s between this machine and node `{node}`: its agent is stopped, or the node is frozen or held up\nHint: `slipway ps` shows its state; `--patience 5min` waits longer", patience.as_secs()
    )]
    Stalled {
        /// The node.
        node: String,
        /// Time waited for the stream to go on.
        patience: Duration,
    },
    /// A signal ended it.
    #[error("copy: ended by {0}; what was copied before stays")]
    Interrupted(Number),
    /// The stream between node and machine broke or is not what the agent writes.
    #[error("copy: {0}")]
    Stream(String),
    /// The agent in the node said why.
    #[error("copy: in node `{node}`: {account}")]
    Inside {
        /// The node.
        node: String,
        /// The kind of failure.
        code: Code,
        /// Its account.
        account: String,
    },
    /// The node cannot be entered.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl CopyError {
    fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    fn refused(path: &Path, why: &'static str) -> Self {
        Self::Refused { path: path.to_owned(), why }
    }

    /// The kind of failure, for programs.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NoFile,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Code::NotPermitted,
            Self::Stalled { .. } => Code::Timeout,
            Self::Inside { code, .. } => *code,
            _ => Code::Copy,
        }
    }
}

/// The result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Files, folders and symbolic links.
    pub entries: u64,
    /// Bytes in files, holes aside.
    pub bytes: u64,
    /// Sockets, FIFOs and devices, which were left out.
    pub skipped: u64,
    /// Symbolic links that lead out of what was copied. A program that follows one comes to a file of this machine.
    pub outward: u64,
}

/// The way into the node of a copy.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// The node is on this machine.
    Here(&'a Launcher, &'a Entry),
    /// The node, by its name, is on another. The function gives the command that executes a program there, by its words.
    There(&'a str, &'a dyn Fn(Vec<OsString>) -> Command),
}

impl<'a> Way<'a> {
    fn node(self) -> &'a str {
        match self {
            Self::Here(_, entry) => &entry.node,
            Self::There(node, _) => node,
        }
    }

    /// Starts the agent.
    fn start(self, argv: Vec<OsString>, stdio: [BorrowedFd<'_>; 3]) -> Result<Child, CopyError> {
        match self {
            Self::Here(launcher, entry) => {
                let program = Program { argv, ..Program::default() };
                Ok(launcher.spawn(entry, &program, Stdio::Descriptors(stdio), None)?)
            }
            Self::There(_, command) => {
                let start = || -> io::Result<Child> {
                    let [input, output, error] = stdio;
                    let own = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned();
                    let mut command = command(argv);
                    // Of a terminal's Ctrl-C this process hears alone, and ends the copy in good order.
                    command.stdin(own(input)?).stdout(own(output)?).stderr(own(error)?).process_group(0);
                    Child::of(&command.spawn()?)
                };
                start().map_err(CopyError::io("start", Path::new("the remote shell")))
            }
        }
    }
}

/// Bounds of a copy: bytes out of a node, and time without progress.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes that may come out of a node; `None` for nine tenths of what is free at the destination.
    pub most: Option<Bytes>,
    /// How long next to nothing may pass.
    pub patience: Duration,
}

/// Told how far a copy is, in bytes of the stream: how many have passed, of how many if that is known.
pub type Progress<'a> = dyn FnMut(u64, Option<u64>) + 'a;

/// Copies `from` in the node to `to` on this machine, as `cp -r` would: into `to` where that is a folder, else as `to`.
/// How much there is to copy is the node's to know.
///
/// # Errors
/// All of [`CopyError`].
#[tracing::instrument(level = "info", skip_all, err(level = "debug"))]
pub fn out_of(
    way: Way<'_>,
    from: &Path,
    to: &Path,
    bounds: Bounds,
    progress: &mut Progress<'_>,
) -> Result<Copied, CopyError> {
    let unnamed =
        || CopyError::refused(from, "the node would choose its name here\nHint: name the folder or file itself");
    let name = from.file_name().ok_or_else(unnamed)?;
    let rules = Rules { name: Some(name), follow: false, bounded: true, most: bounds.most };
    let (ours, theirs) = pipe()?;
    let (nothing, end) = pipe()?;
    drop(end);
    let agent = Agent::start(way, PACK, from, nothing.as_fd(), Some(theirs.as_fd()))?;
    drop((nothing, theirs));
    let mut broken = None;
    let outcome = Pipe::new(ours, &agent.signals, bounds.patience, &mut broken)
        .and_then(|pipe| unpack::unpack(Counted::new(pipe, None, progress), to, rules));
    agent.finish(outcome, broken)
}

/// Copies `from` on this machine to `to` in the node, as [`out_of`] does the other way.
///
/// # Errors
/// All of [`CopyError`].
#[tracing::instrument(level = "info", skip_all, err(level = "debug"))]
pub fn into(
    way: Way<'_>,
    from: &Path,
    to: &Path,
    bounds: Bounds,
    progress: &mut Progress<'_>,
) -> Result<Copied, CopyError> {
    let (theirs, ours) = pipe()?;
    let agent = Agent::start(way, UNPACK, to, theirs.as_fd(), None)?;
    drop(theirs);
    let mut broken = None;
    let outcome = Pipe::new(ours, &agent.signals, bounds.patience, &mut broken).and_then(|pipe| {
        let stream = Counted::new(pipe, Some(stream::length(from)), progress);
        pack::pack(from, io::BufWriter::new(stream))
    });
    agent.finish(outcome, broken)
}

/// Makes what a stream holds, which may be any bytes, as [`out_of`] does with a node's.
///
/// # Errors
/// All of [`CopyError`].
pub fn receive(stream: impl io::Read, name: &OsStr, to: &Path, most: Option<Bytes>) -> Result<Copied, CopyError> {
    unpack::unpack(stream, to, Rules { name: Some(name), follow: false, bounded: true, most })
}

fn pipe() -> Result<(OwnedFd, OwnedFd), CopyError> {
    let (reader, writer) = io::pipe().map_err(CopyError::io("make", Path::new("a pipe")))?;
    Ok((reader.into(), writer.into()))
}

/// The half that runs in the node.
struct Agent<'a> {
    node: &'a str,
    /// Whether it is on another machine.
    is_elsewhere: bool,
    child: Child,
    says: OwnedFd,
    /// Signals that end the copy: the agent must not outlive it.
    signals: Taken,
}

impl<'a> Agent<'a> {
    /// Where it has no output of its own, what it says there is what it says.
    fn start(
        way: Way<'a>,
        what: &str,
        path: &Path,
        input: BorrowedFd<'_>,
        output: Option<BorrowedFd<'_>>,
    ) -> Result<Self, CopyError> {
        let (says, error) = pipe()?;
        quicken(&says)?;
        // Before there is an agent.
        let signals = Taken::new(&ENDING).map_err(CopyError::io("take", Path::new("signals")))?;
        let argv = vec![AGENT.into(), what.into(), path.into()];
        let child = way.start(argv, [input, output.unwrap_or(error.as_fd()), error.as_fd()])?;
        Ok(Self { node: way.node(), is_elsewhere: matches!(way, Way::There(..)), child, says, signals })
    }

    /// Waits for its end, for a moment: a program of the node may have stopped it, or hold its end of a pipe. Gives how it
    /// ended, if it did, and what it said.
    fn hear(&self) -> io::Result<(Option<Exit>, Vec<u8>)> {
        let mut account = Vec::new();
        let (begun, mut says) = (Instant::now(), true);
        let mut killed = false;
        let exit = loop {
            let mut on = vec![PollFd::new(&self.child, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            if says {
                on.push(PollFd::new(&self.says, PollFlags::IN));
            }
            let left = if killed { AT_THE_END * 2 } else { AT_THE_END }.saturating_sub(begun.elapsed());
            wait(&mut on, left)?;
            let ended = !on[0].revents().is_empty();
            says = says && drain(self.says.as_fd(), &mut account, LONGEST_ACCOUNT)?;
            if ended {
                break Some(self.child.wait()?);
            }
            if killed && left.is_zero() {
                // In a frozen group of version 1 it ends when it is thawed.
                break None;
            }
            if !killed && (left.is_zero() || self.signals.take()?.is_some()) {
                self.child.signal(Signal::KILL)?;
                killed = true;
            }
        };
        Ok((exit.filter(|_| !killed), account))
    }

    /// Of two accounts of a failure, the one that knows: where the stream broke, that of the side that broke it.
    fn finish(self, outcome: Result<Copied, CopyError>, broken: Option<Broken>) -> Result<Copied, CopyError> {
        let node = || self.node.to_owned();
        if broken.is_some() {
            // Nothing that it might say is worth waiting for.
            self.child.signal(Signal::KILL).map_err(CopyError::io("end", Path::new("the agent")))?;
        }
        let (exit, account) = self.hear().map_err(CopyError::io("hear", Path::new("the agent")))?;
        match broken {
            Some(Broken::Stalled(patience)) => return Err(CopyError::Stalled { node: node(), patience }),
            Some(Broken::Signal(signal)) => return Err(CopyError::Interrupted(signal)),
            None => {}
        }
        let inside = |exit: Exit| {
            // Any program of the node may have written it.
            let (code, account) = match protocol::parse::<Reply<Copied>>(&account).map(|reply| reply.outcome) {
                Ok(Err(error)) => (error.code, printable(&error.to_string())),
                // The way to another machine says why it is none.
                _ if !account.is_empty() && self.is_elsewhere => {
                    (Code::Copy, printable(String::from_utf8_lossy(&account).trim()))
                }
                _ => (Code::Copy, format!("the agent ended with code {}", exit.code())),
            };
            CopyError::Inside { node: node(), code, account }
        };
        match (outcome, exit) {
            (Err(CopyError::Stream(_)) | Ok(_), Some(exit)) if exit != Exit::Code(0) => Err(inside(exit)),
            // All is here, whatever holds the agent up; on the way in only it knows.
            (Ok(_), None) => Err(CopyError::Stalled { node: node(), patience: AT_THE_END }),
            (outcome, _) => outcome,
        }
    }
}

/// The agent's half: `--pack PATH` writes a tar stream to standard output, `--unpack PATH` reads one from standard input.
/// Its reply goes to standard error. `None` where the arguments (without the program's name) ask for neither; else the exit code.
pub fn agent(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let what = arguments.next()?;
    let outcome = if what == PACK {
        pack::pack(Path::new(&arguments.next()?), io::BufWriter::new(io::stdout().lock()))
    } else if what == UNPACK {
        let rules = Rules { follow: true, ..Rules::default() };
        unpack::unpack(io::stdin().lock(), Path::new(&arguments.next()?), rules)
    } else {
        return None;
    };
    let outcome = outcome.map_err(|error| protocol::Error::new(error.code(), error.to_string()));
    let code = u8::from(outcome.is_err());
    // Where nobody listens the exit code remains.
    let reply = serde_json::to_vec(&Reply { outcome, before: None }).unwrap_or_default();
    let _ = io::stderr().write_all(&reply);
    Some(code)
}

#[cfg(test)]
mod tests;

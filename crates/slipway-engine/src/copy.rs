//! Files into nodes and out of them.
//!
//! A tar stream goes through a pipe between this process and slipway's own agent, which runs in the node as any program
//! there does: what a name means in the node, its symbolic links above all, is decided inside, where it can lead nowhere
//! else. What comes out is not trusted either: names are resolved beneath the destination without following any link,
//! files are made anew, owners and set-user-id bits do not cross, and only files, folders and links are made.

mod pack;
mod stream;
mod unpack;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::Serialize;

use stream::Counted;

use crate::exec::{Entry, ExecError, Exit, Launcher, Program, Stdio};

/// Where nodes have slipway's agent.
const AGENT: &str = "/run/slipway/agent";
/// What the agent is asked for.
const PACK: &str = "--pack";
const UNPACK: &str = "--unpack";
/// What the agent may say on the way out, bytes; a pipe holds more, so it never waits to be heard.
const LONGEST_ACCOUNT: u64 = 4096;

/// Why files were not copied. What had been copied before stays.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was asked cannot be done.
    #[error("copy {}: {why}", path.display())]
    Refused {
        /// From or to.
        path: PathBuf,
        /// Why, and the next step.
        why: &'static str,
    },
    /// The stream between node and machine broke or is not what the agent writes.
    #[error("copy: {0}")]
    Stream(String),
    /// The agent in the node said why.
    #[error("copy: in node `{node}`: {account}")]
    Inside {
        /// Where.
        node: String,
        /// What it said.
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
}

/// What was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Files, folders and symbolic links.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Sockets, FIFOs and devices, which were left out.
    pub skipped: u64,
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
    launcher: &Launcher,
    entry: &Entry,
    from: &Path,
    to: &Path,
    progress: &mut Progress<'_>,
) -> Result<Copied, CopyError> {
    let null = File::open("/dev/null").map_err(CopyError::io("open", Path::new("/dev/null")))?;
    let (ours, theirs) = pipe()?;
    let agent = Agent::start(launcher, entry, PACK, from, [null.as_fd(), theirs.as_fd()])?;
    drop((null, theirs));
    let outcome = unpack::unpack(Counted::new(File::from(ours), None, progress), to);
    agent.finish(outcome)
}

/// Copies `from` on this machine to `to` in the node, as [`out_of`] does the other way.
///
/// # Errors
/// All of [`CopyError`].
#[tracing::instrument(level = "info", skip_all, err(level = "debug"))]
pub fn into(
    launcher: &Launcher,
    entry: &Entry,
    from: &Path,
    to: &Path,
    progress: &mut Progress<'_>,
) -> Result<Copied, CopyError> {
    let null = File::options().write(true).open("/dev/null").map_err(CopyError::io("open", Path::new("/dev/null")))?;
    let (theirs, ours) = pipe()?;
    let agent = Agent::start(launcher, entry, UNPACK, to, [theirs.as_fd(), null.as_fd()])?;
    drop((null, theirs));
    let stream = Counted::new(File::from(ours), Some(stream::length(from)), progress);
    let outcome = pack::pack(from, io::BufWriter::new(stream));
    agent.finish(outcome)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), CopyError> {
    let (reader, writer) = io::pipe().map_err(CopyError::io("make", Path::new("a pipe")))?;
    Ok((reader.into(), writer.into()))
}

/// The half that runs in the node.
struct Agent<'a> {
    node: &'a str,
    child: crate::exec::Child,
    says: OwnedFd,
}

impl<'a> Agent<'a> {
    fn start(
        launcher: &Launcher,
        entry: &'a Entry,
        what: &str,
        path: &Path,
        [input, output]: [BorrowedFd<'_>; 2],
    ) -> Result<Self, CopyError> {
        let (says, error) = pipe()?;
        let argv = vec![AGENT.into(), what.into(), path.into()];
        let program = Program { argv, ..Program::default() };
        let stdio = Stdio::Descriptors([input, output, error.as_fd()]);
        let child = launcher.spawn(entry, &program, stdio, None)?;
        Ok(Self { node: &entry.node, child, says })
    }

    /// Of two accounts of a failure, the one that knows: where the stream broke, that of the side that broke it.
    fn finish(self, outcome: Result<Copied, CopyError>) -> Result<Copied, CopyError> {
        let mut account = Vec::new();
        let heard = File::from(self.says).take(LONGEST_ACCOUNT).read_to_end(&mut account);
        heard.map_err(CopyError::io("hear", Path::new("the agent")))?;
        let exit = self.child.wait().map_err(CopyError::io("wait for", Path::new("the agent")))?;
        let inside = || {
            let printable = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
            let account = match String::from_utf8_lossy(&account).trim() {
                "" => format!("the agent ended with code {}", exit.code()),
                account => account.chars().map(printable).collect(),
            };
            CopyError::Inside { node: self.node.to_owned(), account }
        };
        match outcome {
            Err(error @ (CopyError::Io { .. } | CopyError::Refused { .. })) => Err(error),
            _ if exit != Exit::Code(0) => Err(inside()),
            outcome => outcome,
        }
    }
}

/// The agent's half: `--pack PATH` writes a tar stream to standard output, `--unpack PATH` reads one from standard input.
/// `None` where the arguments (without the program's name) ask for neither; else the exit code.
pub fn agent(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let what = arguments.next()?;
    let outcome = if what == PACK {
        pack::pack(Path::new(&arguments.next()?), io::BufWriter::new(io::stdout().lock()))
    } else if what == UNPACK {
        unpack::unpack(io::stdin().lock(), Path::new(&arguments.next()?))
    } else {
        return None;
    };
    let Err(error) = outcome else { return Some(0) };
    // Where nobody listens the exit code remains.
    let _ = writeln!(io::stderr(), "{error}");
    Some(1)
}

#[cfg(test)]
mod tests;

//! Helper processes: one supervisor for all that a process makes to serve it for as long as it lives.
//!
//! A helper is a copy of its maker ([`Helper::fork`]) or a program ([`Helper::execute`]). It says one word first: that it is
//! ready, or why not. Its maker waits for that word, notices its end by a descriptor ([`AsFd`]), and ends it. A helper ends with
//! its maker, however that ends.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::CloneFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
    set_dumpable_behavior, waitid,
};

use crate::clone::{Cloned, SingleThread, clone_into, close_all_but};
use crate::process::{end_with, wait_for_end};

/// The longest that a helper may take to say that it is ready.
const PATIENCE: Duration = Duration::from_mins(1);
/// First words.
const READY: &str = "ready";
const FAILED: &str = "failed";

/// The birth of a helper that is a copy of its maker.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    /// The maker has one thread.
    pub alone: SingleThread,
    /// Its name in `ps`, at most 15 bytes.
    pub name: &'a CStr,
    /// The folder of a version 2 control group that it is born in.
    pub group: Option<BorrowedFd<'a>>,
    /// A file for its standard error. `None`: the maker's.
    pub log: Option<BorrowedFd<'a>>,
}

/// A helper, seen by its maker. Dropped, it is ended.
#[derive(Debug)]
pub struct Helper {
    pid: Pid,
    pidfd: OwnedFd,
}

/// The end of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with an exit code.
    Code(i32),
    /// By a signal, by number.
    Signal(i32),
    /// Unknown: another wait of the maker collected it.
    Collected,
}

/// A helper, seen by itself, before it is ready.
#[derive(Debug)]
pub struct Newborn {
    maker: OwnedFd,
    /// Until it is ready.
    teller: Option<PipeWriter>,
}

impl Helper {
    /// Makes a copy of this process that does `work`, and waits until that says that it is ready. Gives the note that came with it.
    ///
    /// The copy ends with `work`: an error before it is ready is the error here.
    ///
    /// # Errors
    /// When the kernel refuses a process, or the helper fails or ends before it is ready, or is not in a minute.
    pub fn fork(birth: Birth<'_>, work: impl FnOnce(&mut Newborn) -> io::Result<()>) -> io::Result<(Self, String)> {
        let (heard, teller) = io::pipe()?;
        let maker = pidfd_open(getpid(), PidfdFlags::empty())?;
        match clone_into(birth.alone, CloneFlags::empty(), birth.group)? {
            Cloned::Child => {
                drop(heard);
                live(birth, &mut Newborn { maker, teller: Some(teller) }, work)
            }
            Cloned::Parent { pid, pidfd } => {
                drop(teller);
                Self { pid, pidfd }.await_word(heard)
            }
        }
    }

    /// Executes a program that prints `ready` on a line of its standard output once it serves, and gives the note after that word.
    /// The caller ties its life to this process's, by `setpriv --pdeathsig` for example.
    ///
    /// # Errors
    /// When it cannot be executed, or ends or says something else first, or says nothing in a minute. The last line of `log` is
    /// the error where there is one.
    pub fn execute(command: &mut Command, log: &Path) -> io::Result<(Self, String)> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        // A child that nobody has waited for keeps its number.
        let helper = Self::adopt(pid)?;
        let said = child.stdout.take().ok_or(io::ErrorKind::InvalidData)?;
        helper.await_word(PipeReader::from(OwnedFd::from(said))).map_err(|error| {
            let text = fs::read_to_string(log).unwrap_or_default();
            text.lines().last().map_or(error, io::Error::other)
        })
    }

    /// Takes over a child of this process that was made otherwise.
    ///
    /// # Errors
    /// `ESRCH` where there is no such process.
    pub fn adopt(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    fn await_word(self, mut heard: PipeReader) -> io::Result<(Self, String)> {
        let word = self.first_line(&mut heard)?;
        let (first, note) = word.split_once(' ').unwrap_or((&word, ""));
        match first {
            READY => Ok((self, note.to_owned())),
            FAILED => {
                let mut text = vec![0; note.parse().map_err(io::Error::other)?];
                heard.read_exact(&mut text)?;
                Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()))
            }
            "" => {
                // Its pipe is closed: it is ending, or has ended.
                let _ = wait_for_end(&self.pidfd, PATIENCE);
                let end = self.stop();
                Err(io::Error::other(format!("{} before it was ready", self.told(end))))
            }
            _ => Err(io::Error::other("it said something else first")),
        }
    }

    /// The first line that it says, without its end; empty where it ends before.
    fn first_line(&self, heard: &mut PipeReader) -> io::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            // A process that shares its descriptors may keep the pipe open.
            let mut on = [PollFd::new(heard, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut on, Some(&left)) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not get ready")),
                Ok(_) if on[0].revents().is_empty() => return Ok(String::new()),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut byte = [0];
            match heard.read(&mut byte) {
                Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
                Ok(_) => return Ok(String::from_utf8_lossy(&line).into_owned()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The process's number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The process's number, as an integer.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Kills it, and does not wait for its end.
    pub fn kill(&self) {
        // Gone already is what is wanted.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Kills it and waits for its end. One that was ending already has ended its own way.
    #[must_use = "it says how it ended"]
    pub fn stop(&self) -> End {
        self.kill();
        loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(Some(status)) => {
                    return match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => End::Code(code),
                        (_, Some(signal)) => End::Signal(signal),
                        _ => End::Collected,
                    };
                }
                Err(Errno::INTR) => {}
                _ => return End::Collected,
            }
        }
    }

    /// An end in words, with the process's number.
    #[must_use]
    pub fn told(&self, end: End) -> String {
        format!("process {} {end}", self.number())
    }
}

/// Readable once it has ended.
impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Collected => f.write_str("ended"),
        }
    }
}

impl Newborn {
    /// The maker, for processes that this one makes in turn. [`keep_only`](Self::keep_only) closes it too, unless it is kept.
    #[must_use]
    pub fn maker(&self) -> &OwnedFd {
        &self.maker
    }

    /// Leaves the maker's session, and closes all descriptors but standard input, output and error, and those in `keep`.
    ///
    /// # Errors
    /// As `close_range(2)` and `setsid(2)`.
    pub fn keep_only(&self, keep: &[BorrowedFd<'_>]) -> io::Result<()> {
        // The maker's standard streams stay open: another descriptor with such a number would get their data.
        let mut kept: Vec<RawFd> = vec![0, 1, 2];
        kept.extend(self.teller.iter().map(AsRawFd::as_raw_fd).chain(keep.iter().map(AsRawFd::as_raw_fd)));
        close_all_but(&kept)?;
        rustix::process::setsid()?;
        Ok(())
    }

    /// Says that it is ready, once. `note` is a line for the maker.
    ///
    /// # Errors
    /// `BrokenPipe` where the maker is gone.
    pub fn ready(&mut self, note: &str) -> io::Result<()> {
        let mut teller = self.teller.take().ok_or(io::ErrorKind::BrokenPipe)?;
        teller.write_all(format!("{READY} {note}\n").as_bytes())
    }
}

/// The life of a copy. Never returns.
fn live(birth: Birth<'_>, newborn: &mut Newborn, work: impl FnOnce(&mut Newborn) -> io::Result<()>) -> ! {
    let begun = end_with(&newborn.maker).and_then(|()| {
        // Nothing in a container may trace it or open its descriptors.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        rustix::thread::set_name(birth.name)?;
        birth.log.map_or(Ok(()), |log| rustix::stdio::dup2_stderr(log).map_err(Into::into))
    });
    match begun.and_then(|()| work(newborn)) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            // Nobody hears it from a helper that was ready before.
            if let Some(teller) = &mut newborn.teller {
                let text = error.to_string();
                let _ = teller.write_all(format!("{FAILED} {}\n{text}", text.len()).as_bytes());
            }
            std::process::exit(1)
        }
    }
}

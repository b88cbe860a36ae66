//! Programs that run in nodes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};
use serde::{Deserialize, Serialize};

/// The end of a program: its exit code, or the signal that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

/// A program that runs in a node.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    /// The outside of its terminal, where it has one. Non-blocking.
    pub terminal: Option<OwnedFd>,
}

impl Child {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, terminal: None }
    }

    /// A child that is no program in a node, but the way to one on another machine. It leads a process group.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    pub(crate) fn of(process: &std::process::Child) -> io::Result<Self> {
        let pid = Pid::from_child(process);
        Ok(Self::new(pid, pidfd_open(pid, PidfdFlags::empty())?))
    }

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

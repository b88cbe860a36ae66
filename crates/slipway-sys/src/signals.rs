//! Signals as a program expects to find them, and as the parent of one passes them on (`signal(7)`).

use std::io;

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Puts every signal back to its default and blocks none, for a child about to exec. Ignored signals (Rust ignores
/// `SIGPIPE`) and blocked ones would pass through the exec.
///
/// # Errors
/// As `sigprocmask(2)`.
#[allow(unsafe_code)]
pub fn reset() -> io::Result<()> {
    for each in Signal::iterator().filter(|each| !matches!(each, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default disposition runs no code of this process.
        unsafe { signal(each, SigHandler::SigDfl) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Ignores signals from now on, in this process and in all that it clones. A child about to exec puts them back ([`reset`]).
///
/// # Errors
/// As `sigaction(2)`: for `SIGKILL` and `SIGSTOP`.
#[allow(unsafe_code)]
pub fn ignore(signals: &[Signal]) -> io::Result<()> {
    for &each in signals {
        // SAFETY: to ignore a signal runs no code of this process.
        unsafe { signal(each, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// Signals by which others ask a process to end.
pub const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals taken from a descriptor instead of by a handler, from when this is made until it is dropped.
#[derive(Debug)]
pub struct Taken {
    fd: SignalFd,
    before: SigSet,
}

impl Taken {
    /// Blocks `signals` for this thread, which must be the only one, and takes them from a descriptor from now on.
    ///
    /// # Errors
    /// As `signalfd(2)`.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let mask: SigSet = signals.iter().copied().collect();
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut before))?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, before })
    }

    /// The next signal that has come, if any.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn take(&self) -> io::Result<Option<Signal>> {
        let Some(information) = self.fd.read_signal()? else { return Ok(None) };
        // Only signals from the mask arrive, all of which have names.
        Ok(i32::try_from(information.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()))
    }
}

impl std::os::fd::AsFd for Taken {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // The set came from the kernel, so it takes it back.
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }
}

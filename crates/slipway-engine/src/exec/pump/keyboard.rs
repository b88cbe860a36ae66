//! The caller's terminal as an input, which this process shares with the shell it was started from.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr, tcgetpgrp};
use slipway_sys::pty::RawMode;

/// A terminal that is read only while it is this process's to read.
///
/// In the background, reading would stop this process (`SIGTTIN`). And another program may have the keys, as a pager that
/// shows the output does. Then this process waits for the next key: by its edge, since `poll(2)` would tell of a level
/// again and again.
#[derive(Debug)]
pub(crate) struct Keyboard<'a> {
    terminal: BorrowedFd<'a>,
    edge: OwnedFd,
    /// Whether there may be more than the last edge told.
    hot: bool,
    /// Every key is the program's.
    raw: Option<RawMode>,
    wants_raw: bool,
    suspends: Option<Suspends<'a>>,
    /// The key that suspends was typed.
    pub(crate) suspended: bool,
}

/// For whom the key that suspends (Ctrl-Z) is this process's, as it is for a program that shares its caller's terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suspends<'a> {
    /// The outside of the program's terminal.
    pub(crate) terminal: BorrowedFd<'a>,
    pub(crate) program: Pid,
}

impl<'a> Keyboard<'a> {
    /// `raw`: every key goes to the program's own terminal.
    pub(crate) fn new(terminal: BorrowedFd<'a>, raw: bool, suspends: Option<Suspends<'a>>) -> io::Result<Self> {
        let edge = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let what = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&edge, terminal, epoll::EventData::new_u64(0), what)?;
        let mut keyboard = Self { terminal, edge, hot: true, raw: None, wants_raw: raw, suspends, suspended: false };
        keyboard.settle()?;
        Ok(keyboard)
    }

    /// Takes the keys, where they are to be had.
    ///
    /// # Errors
    /// As `tcsetattr(3)`.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        // First as it was before, or it would be remembered as it is.
        self.raw = None;
        if self.wants_raw && self.is_in_front() {
            self.raw = Some(RawMode::enter(self.terminal)?);
        }
        self.hot = true;
        Ok(())
    }

    /// Leaves the terminal as it was.
    pub(crate) fn release(&mut self) {
        self.raw = None;
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        if self.hot { self.terminal } else { self.edge.as_fd() }
    }

    /// Whether to read now that there is something.
    pub(super) fn may_read(&mut self) -> bool {
        if !self.hot {
            let mut told = Vec::with_capacity(1);
            // The wait takes the event off the list.
            let _ = epoll::wait(
                &self.edge,
                rustix::buffer::spare_capacity(&mut told),
                Some(&rustix::time::Timespec::default()),
            );
            // Asked for the level at the next turn, so that nothing is read that is not there.
            self.hot = true;
            return false;
        }
        self.hot = self.is_in_front() && (self.has_keys() || self.is_by_line());
        self.hot
    }

    fn has_keys(&mut self) -> bool {
        if self.wants_raw && self.raw.is_none() {
            self.raw = RawMode::enter(self.terminal).ok();
        }
        self.raw.is_some()
    }

    /// Not so, another program takes keys from it.
    fn is_by_line(&self) -> bool {
        tcgetattr(self.terminal).map_or(true, |modes| modes.local_modes.contains(LocalModes::ICANON))
    }

    /// Where it is not this process's controlling terminal, nobody is stopped for reading it.
    fn is_in_front(&self) -> bool {
        tcgetpgrp(self.terminal).map_or(true, |front| front == getpgrp())
    }

    /// Takes the key that suspends out of the keys typed. Only while the program itself is in front of its terminal, and has
    /// the terminal act on such keys.
    pub(super) fn look_at(&mut self, typed: &mut Vec<u8>) {
        let Some(Suspends { terminal, program }) = self.suspends.filter(|_| self.raw.is_some()) else { return };
        let Ok(modes) = tcgetattr(terminal) else { return };
        let key = modes.special_codes[SpecialCodeIndex::VSUSP];
        let is_its_own = tcgetpgrp(terminal).is_ok_and(|front| front == program);
        if modes.local_modes.contains(LocalModes::ISIG) && is_its_own && typed.contains(&key) {
            typed.retain(|byte| *byte != key);
            self.suspended = true;
        }
    }
}

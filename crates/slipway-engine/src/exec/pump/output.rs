//! A program's outputs.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::PollFlags;
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ioctl_fionread, read, write};
use rustix::pipe::{SpliceFlags, splice};

use super::{CHUNK, End, Waits};

/// Bytes that may be written at once to what is no file: so many find room where any room is (`pipe(7)`, `PIPE_BUF`).
const BIT: usize = 4096;
/// Bytes that are moved at once.
const MOVED: usize = 1 << 20;
/// More than a terminal holds.
const TERMINAL: u64 = 128 * 1024;

/// One output of a program, on its way to one of the caller's.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    from: Option<End<'a>>,
    to: BorrowedFd<'a>,
    /// Read and not yet written.
    pending: Vec<u8>,
    /// Whether there was something to read when last looked at.
    ready: bool,
    /// Bytes are moved within the kernel.
    moves: bool,
    bit: usize,
    on_terminal: bool,
    /// Bytes still to come of a program that has ended.
    left: Option<u64>,
    trouble: Option<io::Error>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(from: End<'a>, to: BorrowedFd<'a>) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(to)?.st_mode);
        let moves =
            matches!(from, End::Pipe(_)) && matches!(kind, FileType::Fifo | FileType::Socket | FileType::RegularFile);
        let bit = if kind == FileType::RegularFile { CHUNK } else { BIT };
        let (pending, on_terminal) = (Vec::new(), to.is_terminal());
        Ok(Self { from: Some(from), to, pending, ready: false, moves, bit, on_terminal, left: None, trouble: None })
    }

    pub(super) fn waits_for(&self) -> Waits<'_> {
        let Some(from) = &self.from else { return [None, None] };
        // Nothing more is read than can be written.
        if self.ready || !self.pending.is_empty() {
            [None, Some((self.to, PollFlags::OUT))]
        } else {
            // That nobody reads any more is told unasked.
            [Some((from.as_fd(), PollFlags::IN)), Some((self.to, PollFlags::empty()))]
        }
    }

    pub(super) fn act(&mut self, [from, to]: [PollFlags; 2]) {
        if to.intersects(PollFlags::ERR | PollFlags::HUP) && !to.contains(PollFlags::OUT) {
            self.close();
        } else if to.contains(PollFlags::OUT) {
            let carried = if self.moves { self.carry_within_kernel() } else { self.carry() };
            match carried {
                // The caller's reader is gone.
                Err(Errno::PIPE) => self.close(),
                Err(error) => {
                    self.trouble = Some(error.into());
                    self.close();
                }
                Ok(()) => {}
            }
        } else if !from.is_empty() {
            self.ready = true;
        }
    }

    fn carry_within_kernel(&mut self) -> Result<(), Errno> {
        let Some(from) = &self.from else { return Ok(()) };
        self.ready = false;
        let most = self.left.map_or(MOVED, |left| usize::try_from(left).unwrap_or(MOVED).min(MOVED));
        match splice(from, None, self.to, None, most, SpliceFlags::NONBLOCK) {
            Ok(0) => self.close(),
            Ok(moved) => self.count(moved),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A file that is appended to, or a file system that has not the call.
            Err(Errno::INVAL) => {
                self.moves = false;
                self.ready = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn carry(&mut self) -> Result<(), Errno> {
        self.ready = false;
        if self.pending.is_empty() {
            self.fill()?;
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let bit = self.pending.len().min(self.bit);
        match write(self.to, &self.pending[..bit]) {
            Ok(written) => {
                self.pending.drain(..written);
                self.count(written);
                Ok(())
            }
            // The caller's descriptor may have been made so by somebody else.
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn fill(&mut self) -> Result<(), Errno> {
        let Some(from) = &self.from else { return Ok(()) };
        let most = self.left.map_or(CHUNK, |left| usize::try_from(left).unwrap_or(CHUNK).min(CHUNK));
        let mut bytes = vec![0; most];
        match read(from, &mut bytes) {
            // The last program has closed the terminal.
            Ok(0) | Err(Errno::IO) => self.close(),
            Ok(count) => {
                bytes.truncate(count);
                self.pending = bytes;
            }
            Err(Errno::AGAIN) if self.left.is_some() => self.close(),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn count(&mut self, carried: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(carried as u64);
            self.ready = *left > 0;
            if *left == 0 && self.pending.is_empty() {
                self.close();
            }
        }
    }

    /// The program has ended: all that it wrote is in the pipe. Bytes that come now are of others.
    pub(super) fn finish(&mut self) {
        let there = match &self.from {
            Some(End::Pipe(pipe)) => ioctl_fionread(pipe).unwrap_or(0),
            Some(End::Terminal(_)) => TERMINAL,
            None => 0,
        };
        self.left = Some(there + self.pending.len() as u64);
        self.ready = there > 0;
        self.count(0);
    }

    /// The program's next write fails.
    fn close(&mut self) {
        self.from = None;
        self.pending.clear();
    }

    /// Whether the caller's terminal shows it.
    pub(super) fn shows(&self) -> bool {
        self.from.is_some() && self.on_terminal
    }

    pub(super) fn is_closed(&self) -> bool {
        self.from.is_none()
    }

    pub(super) fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

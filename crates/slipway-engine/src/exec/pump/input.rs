//! A program's input.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fstat, open, seek};
use rustix::io::{Errno, ReadWriteFlags, ioctl_fionread, preadv2, read, write};

use super::{CHUNK, End, Keyboard, Waits};

/// End of file, as it is typed (`termios(3)`, `VEOF`).
const END_OF_FILE: u8 = 4;

/// The caller's input, on its way to a program's.
///
/// At most a pipe and a chunk are read ahead of the program. Where the caller's input is a file, what the program did not
/// read is given back, so that whoever reads the file after it finds it there.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    from: Option<BorrowedFd<'a>>,
    to: Option<End<'a>>,
    /// Read and not yet written.
    pending: Vec<u8>,
    sent: u64,
    /// Can be put back to where the program stopped.
    file: Option<BorrowedFd<'a>>,
    /// The program's pipe once it is closed, to see what is left in it.
    closed: Option<OwnedFd>,
    pub(crate) keyboard: Option<Keyboard<'a>>,
    trouble: Option<io::Error>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(from: BorrowedFd<'a>, to: End<'a>, keyboard: Option<Keyboard<'a>>) -> io::Result<Self> {
        let regular = FileType::from_raw_mode(fstat(from)?.st_mode) == FileType::RegularFile;
        let file = regular.then_some(from);
        Ok(Self {
            from: Some(from),
            to: Some(to),
            pending: Vec::new(),
            sent: 0,
            file,
            closed: None,
            keyboard,
            trouble: None,
        })
    }

    pub(super) fn waits_for(&self) -> Waits<'_> {
        let Some(to) = &self.to else { return [None, None] };
        // Nothing more is read while the program has not taken what was.
        if !self.pending.is_empty() {
            return [None, Some((to.as_fd(), PollFlags::OUT))];
        }
        let from = match (&self.from, &self.keyboard) {
            (Some(_), Some(keyboard)) => Some(keyboard.as_fd()),
            (from, _) => *from,
        };
        // That nobody reads any more is told unasked. A terminal tells it by its output.
        let to = matches!(to, End::Pipe(_)).then(|| (to.as_fd(), PollFlags::empty()));
        [from.map(|from| (from, PollFlags::IN)), to]
    }

    pub(super) fn act(&mut self, [from, to]: [PollFlags; 2]) {
        if to.intersects(PollFlags::ERR | PollFlags::HUP) {
            return self.close();
        }
        if !from.is_empty() && self.keyboard.as_mut().is_none_or(Keyboard::may_read) {
            self.fill();
        }
        if !self.pending.is_empty() {
            self.pass_on();
        }
    }

    fn fill(&mut self) {
        let Some(from) = self.from else { return };
        let mut bytes = vec![0; CHUNK];
        match read_now(from, &mut bytes) {
            Ok(count @ 1..) => {
                bytes.truncate(count);
                if let Some(keyboard) = &mut self.keyboard {
                    keyboard.look_at(&mut bytes);
                }
                self.pending = bytes;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A folder, a file that is open for writing alone: nothing to read.
            Ok(_) | Err(Errno::ISDIR | Errno::BADF) => self.end(),
            // It hung up.
            Err(Errno::IO) if self.keyboard.is_some() => self.end(),
            Err(error) => {
                self.trouble = Some(error.into());
                self.end();
            }
        }
    }

    /// Tells the program that there is no more.
    fn end(&mut self) {
        self.from = None;
        match &self.to {
            Some(End::Terminal(_)) => self.pending = vec![END_OF_FILE],
            Some(End::Pipe(pipe)) => {
                self.closed = self.file.and_then(|_| open_to_read(pipe));
                self.to = None;
            }
            None => {}
        }
    }

    fn pass_on(&mut self) {
        let Some(to) = &self.to else { return self.pending.clear() };
        match write(to, &self.pending) {
            Ok(count) => {
                self.pending.drain(..count);
                self.sent += count as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The program has closed its end; nobody will read this.
            Err(Errno::PIPE | Errno::IO) => self.close(),
            Err(error) => {
                self.trouble = Some(error.into());
                self.close();
            }
        }
    }

    fn close(&mut self) {
        (self.from, self.to) = (None, None);
    }

    /// The program has ended, and reads no more.
    pub(super) fn finish(&mut self) {
        self.give_back();
        self.close();
        (self.file, self.closed) = (None, None);
        self.pending.clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.to.is_none() && self.from.is_none()
    }

    /// Puts a file back to where the program stopped reading.
    fn give_back(&self) {
        let Some(file) = self.file else { return };
        let pipe = match &self.to {
            Some(End::Pipe(pipe)) => Some(pipe),
            _ => self.closed.as_ref(),
        };
        let in_pipe = pipe.map_or(0, |pipe| ioctl_fionread(pipe).unwrap_or(0));
        // The program can write to its own pipe too, and that was never in the file.
        let unread = in_pipe.min(self.sent) + self.pending.len() as u64;
        if let Ok(back @ 1..) = i64::try_from(unread) {
            // Of no use to a caller that reads no more, and no harm.
            let _ = seek(file, SeekFrom::Current(-back));
        }
    }

    pub(super) fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

/// Another descriptor of the same pipe, which does not keep its reader waiting for more.
fn open_to_read(pipe: &OwnedFd) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Reads what is there, without waiting where another process took it first. Not everything can be read so.
fn read_now(from: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize, Errno> {
    let kind = FileType::from_raw_mode(fstat(from)?.st_mode);
    if matches!(kind, FileType::Fifo | FileType::Socket) {
        // An offset of -1 is the file's own.
        match preadv2(from, &mut [IoSliceMut::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            other => return other,
        }
    }
    read(from, bytes)
}

//! The stream between node and machine, watched as it passes.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use slipway_sys::signals::Taken;

use super::{CopyError, Progress};

/// A tar stream is made of these, bytes (`tar(5)`): a header for every entry, then its content, filled up.
const BLOCK: u64 = 512;
/// Least bytes that pass in the time that a stream may stall. A stream that drips would else go on for as long as it
/// likes.
const LEAST: u64 = 4096;
/// Our end of the pipe, at which nobody waits for ever.
pub(super) struct Pipe<'a> {
    file: File,
    signals: &'a Taken,
    /// How long it may take for [`LEAST`] bytes to pass.
    patience: Duration,
    since: Instant,
    passed: u64,
    /// Set when the stream is given up, to the reason.
    broken: &'a mut Option<Broken>,
}

/// Why a stream was given up, where that is neither side's own account.
#[derive(Debug, Clone, Copy)]
pub(super) enum Broken {
    Stalled(Duration),
    Signal(Signal),
}

impl<'a> Pipe<'a> {
    pub(super) fn new(
        end: OwnedFd,
        signals: &'a Taken,
        patience: Duration,
        broken: &'a mut Option<Broken>,
    ) -> Result<Self, CopyError> {
        quicken(&end)?;
        let file = File::from(end);
        Ok(Self { file, signals, patience, since: Instant::now(), passed: 0, broken })
    }

    /// Does `once` until it does not block, or there is no more patience.
    fn patiently(&mut self, towards: PollFlags, mut once: impl FnMut(&File) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match once(&self.file) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(bytes) => {
                    self.passed += bytes as u64;
                    if self.passed >= LEAST {
                        (self.passed, self.since) = (0, Instant::now());
                    }
                    return Ok(bytes);
                }
                failed => return failed,
            }
            let left = self.patience.saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return self.give_up(Broken::Stalled(self.patience), ErrorKind::TimedOut);
            }
            let mut on = [PollFd::new(&self.file, towards), PollFd::new(self.signals, PollFlags::IN)];
            wait(&mut on, left)?;
            if let Some(signal) = self.signals.take()? {
                return self.give_up(Broken::Signal(signal), ErrorKind::ConnectionAborted);
            }
        }
    }

    fn give_up(&mut self, why: Broken, kind: ErrorKind) -> io::Result<usize> {
        *self.broken = Some(why);
        Err(kind.into())
    }
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patiently(PollFlags::IN, |mut file| file.read(buffer))
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.patiently(PollFlags::OUT, |mut file| file.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes reads and writes answer at once: whoever has the other end may take what `poll(2)` saw.
pub(super) fn quicken(end: &OwnedFd) -> Result<(), CopyError> {
    let set = fcntl_getfl(end).and_then(|flags| fcntl_setfl(end, flags | OFlags::NONBLOCK));
    set.map_err(CopyError::io("set up", Path::new("a pipe")))
}

/// Waits for any of these, or for so long. An interruption ends the wait too: whoever waits looks again.
pub(super) fn wait(on: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    let most = Timespec::try_from(most).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
    match poll(on, Some(&most)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads what there is, up to so many bytes in all. False at its end.
pub(super) fn drain(from: BorrowedFd<'_>, into: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut buffer = [0; 1024];
    loop {
        let room = buffer.len().min(most.saturating_sub(into.len()));
        if room == 0 {
            return Ok(false);
        }
        match rustix::io::read(from.as_fd(), &mut buffer[..room]) {
            Ok(0) => return Ok(false),
            Ok(count) => into.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Passes bytes on and tells how many.
pub(super) struct Counted<'a, 'b, S> {
    stream: S,
    done: u64,
    total: Option<u64>,
    progress: &'a mut Progress<'b>,
}

impl<'a, 'b, S> Counted<'a, 'b, S> {
    pub(super) fn new(stream: S, total: Option<u64>, progress: &'a mut Progress<'b>) -> Self {
        Self { stream, done: 0, total, progress }
    }

    fn count(&mut self, bytes: usize) -> usize {
        self.done += bytes as u64;
        (self.progress)(self.done, self.total);
        bytes
    }
}

impl<S: Read> Read for Counted<'_, '_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(buffer)?;
        Ok(self.count(bytes))
    }
}

impl<S: Write> Write for Counted<'_, '_, S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.stream.write(buffer)?;
        Ok(self.count(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// About how long the stream of `path` and all below it will be, bytes. An entry that cannot be read counts nothing
/// here: packing it names the reason.
pub(super) fn length(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    // Holes do not pass.
    let data = found.len().min(found.blocks().saturating_mul(BLOCK));
    let content = if found.is_file() { data.next_multiple_of(BLOCK) } else { 0 };
    let below = found.is_dir().then(|| fs::read_dir(path).ok()).flatten();
    BLOCK + content + below.into_iter().flatten().flatten().map(|entry| length(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::pack::pack;

    #[test]
    fn the_length_is_known_beforehand_and_reached_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("sub")).expect("made");
        fs::write(folder.path().join("sub/big"), vec![7; 100_000]).expect("written");
        fs::write(folder.path().join("one"), "x").expect("written");
        std::os::unix::fs::symlink("/", folder.path().join("link")).expect("made");
        let mut last = (0, None);
        let mut progress = |done, total| {
            assert!(done > last.0, "it only grows");
            last = (done, total);
        };
        let total = length(folder.path());
        pack(folder.path(), Counted::new(io::sink(), Some(total), &mut progress)).expect("packed");
        // Two empty blocks end it.
        assert_eq!(last, (total + 2 * BLOCK, Some(total)));
    }
}

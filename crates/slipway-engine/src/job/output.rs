//! What programs print: into a file as it is, and to whoever watches, line by line.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Longer lines are handed on in pieces of this many bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Which of a program's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// `stdout` or `stderr`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A line that a program printed, without its end.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Where the program runs.
    pub node: &'a str,
    /// Which output.
    pub stream: Stream,
    /// As it came: not always text, and not to be trusted on a terminal.
    pub bytes: &'a [u8],
}

/// One output of one program.
#[derive(Debug)]
pub(super) struct Output {
    pipe: OwnedFd,
    file: File,
    pub(super) stream: Stream,
    rest: Vec<u8>,
    open: bool,
}

impl Output {
    /// Reads from `pipe` into `folder/NODE.STREAM`.
    pub(super) fn new(pipe: OwnedFd, folder: &Path, node: &str, stream: Stream) -> io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        let file = File::create(folder.join(format!("{node}.{}", stream.name())))?;
        Ok(Self { pipe, file, stream, rest: Vec::new(), open: true })
    }

    /// The pipe, until it is closed.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.open.then(|| self.pipe.as_fd())
    }

    /// Takes everything that is there.
    pub(super) fn take(&mut self, line: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut bytes = [0; 16384];
        while self.open {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => self.open = false,
                Ok(count) => {
                    self.file.write_all(&bytes[..count])?;
                    split(&mut self.rest, &bytes[..count], line);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Hands on what came after the last end of line.
    pub(super) fn finish(&mut self, line: &mut dyn FnMut(&[u8])) {
        if !self.rest.is_empty() {
            line(&std::mem::take(&mut self.rest));
        }
    }
}

fn split(rest: &mut Vec<u8>, bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
    for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
        match piece.strip_suffix(b"\n") {
            Some(end) if rest.is_empty() => line(end),
            Some(end) => {
                rest.extend_from_slice(end);
                line(rest);
                rest.clear();
            }
            None => rest.extend_from_slice(piece),
        }
        if rest.len() > LONGEST_LINE {
            line(rest);
            rest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut rest, mut lines) = (Vec::new(), Vec::new());
        for piece in pieces {
            split(&mut rest, piece, &mut |line| lines.push(line.to_vec()));
        }
        (lines, rest)
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let (whole, rest) = lines(&[b"a\nb", b"c\n\nd"]);
        assert_eq!(whole, [b"a".to_vec(), b"bc".to_vec(), b"".to_vec()]);
        assert_eq!(rest, b"d");
    }

    #[test]
    fn a_line_without_end_does_not_grow_for_ever() {
        let long = vec![b'x'; LONGEST_LINE + 1];
        let (pieces, rest) = lines(&[&long, b"y\n"]);
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [LONGEST_LINE + 1, 1]);
        assert!(rest.is_empty());
    }
}

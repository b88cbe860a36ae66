//! Bytes between the caller's standard streams and those of a program in a node.
//!
//! A descriptor is more than a stream: the program could open the file behind it anew, for writing, change its mode, or keep a
//! terminal. So nothing of the caller's passes into a node. The program has pipes of its own, or a terminal of its own,
//! and this process carries the bytes. It never changes the caller's descriptors: not their flags either, which others share.

mod input;
mod keyboard;
mod output;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, major, minor};
use rustix::io::Errno;

pub(crate) use input::Input;
pub(crate) use keyboard::{Keyboard, Suspends};
pub(crate) use output::Output;

/// Bytes carried at once.
const CHUNK: usize = 64 * 1024;

/// The end that this process has of a program's stream.
#[derive(Debug)]
pub(crate) enum End<'a> {
    /// One end of a pipe that was made for it.
    Pipe(OwnedFd),
    /// The outside of its terminal.
    Terminal(BorrowedFd<'a>),
}

impl AsFd for End<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Terminal(terminal) => *terminal,
        }
    }
}

/// Descriptors to wait for: where the bytes come from, and where they go.
type Waits<'a> = [Option<(BorrowedFd<'a>, PollFlags)>; 2];

/// All streams of a program.
#[derive(Debug, Default)]
pub(crate) struct Pumps<'a> {
    pub(crate) input: Option<Input<'a>>,
    pub(crate) outputs: Vec<Output<'a>>,
}

impl Pumps<'_> {
    /// Waits until something happens to a stream or to one of `others`, carries what can be carried, and says which of
    /// `others` it was.
    ///
    /// # Errors
    /// As `poll(2)`. A failing stream is told by [`trouble`](Self::trouble).
    pub(crate) fn turn<const N: usize>(&mut self, others: [BorrowedFd<'_>; N]) -> io::Result<[bool; N]> {
        let mut on: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let inputs = self.input.iter().map(Input::waits_for);
        let mut places: Vec<[Option<usize>; 2]> = Vec::new();
        for waits in inputs.chain(self.outputs.iter().map(Output::waits_for)) {
            places.push(waits.map(|wait| {
                wait.map(|(fd, flags)| {
                    on.push(PollFd::from_borrowed_fd(fd, flags));
                    on.len() - 1
                })
            }));
        }
        match poll(&mut on, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok([false; N]),
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<PollFlags> = on.iter().map(PollFd::revents).collect();
        let mut of_streams =
            places.iter().map(|place| place.map(|at| at.map_or(PollFlags::empty(), |at| happened[at])));
        for (input, happened) in self.input.iter_mut().zip(&mut of_streams) {
            input.act(happened);
        }
        for (output, happened) in self.outputs.iter_mut().zip(of_streams) {
            output.act(happened);
        }
        self.give_up_keys();
        Ok(std::array::from_fn(|at| !happened[at].is_empty()))
    }

    /// The program has ended: from now on only what it has written already is carried. Others that it left behind may hold
    /// its streams for ever.
    pub(crate) fn finish(&mut self) {
        if let Some(input) = &mut self.input {
            input.finish();
        }
        self.outputs.iter_mut().for_each(Output::finish);
        self.give_up_keys();
    }

    /// Gives the caller's terminal back once it has shown the last of a program that has ended.
    fn give_up_keys(&mut self) {
        let shows = self.outputs.iter().any(Output::shows);
        if let Some(input) = self.input.as_mut().filter(|input| input.is_closed() && !shows) {
            input.keyboard = None;
        }
    }

    /// Whether nothing is left to carry out of the node.
    pub(crate) fn is_dry(&self) -> bool {
        self.outputs.iter().all(Output::is_closed)
    }

    /// The first of the caller's streams that failed, and why.
    pub(crate) fn trouble(&mut self) -> Option<(&'static str, io::Error)> {
        let input = self.input.as_mut().and_then(Input::trouble).map(|error| ("read standard input", error));
        input.or_else(|| {
            self.outputs.iter_mut().find_map(Output::trouble).map(|error| ("write standard output or error", error))
        })
    }
}

/// A pipe: the program's end, and this process's, which never blocks.
pub(crate) fn pipe_to_program() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    never_block(&writer)?;
    Ok((reader.into(), writer.into()))
}

/// As [`pipe_to_program`], the other way.
pub(crate) fn pipe_from_program() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    never_block(&reader)?;
    Ok((writer.into(), reader.into()))
}

/// Sets a pipe of this process's own up.
pub(crate) fn never_block(pipe: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// Whether a file is the null device (`null(4)`).
pub(crate) fn is_null(status: &Stat) -> bool {
    let device = (major(status.st_rdev), minor(status.st_rdev));
    FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && device == (1, 3)
}

/// Whether two descriptors are of one file, whose bytes have an order.
pub(crate) fn are_one(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<bool> {
    let [a, b] = [fstat(a)?, fstat(b)?];
    Ok((a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev))
}

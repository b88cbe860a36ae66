//! Programs as callers describe them, and their standard input and output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, fstat};
use rustix::termios::Winsize;

use super::pump::is_null;

/// A program to execute.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The program and its arguments. A name without a slash is looked up in the node's `PATH`, inside the node.
    pub argv: Vec<OsString>,
    /// Added to the environment, over the node's. Nothing of the caller's environment passes.
    pub env: BTreeMap<String, String>,
    /// Inside the node; `/` where `None`.
    pub workdir: Option<PathBuf>,
    /// Root where `None`.
    pub user: Option<User>,
}

/// Whom a program runs as, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group. There are no supplementary groups.
    pub gid: u32,
}

/// Standard input, output and error of a program, as a caller asks for them.
#[derive(Debug, Clone, Copy)]
pub enum Stdio<'a> {
    /// Standard input, output and error: pipes and sockets that the caller made for the program. The null device stands for
    /// the node's own, and nothing else may enter a node.
    Descriptors([BorrowedFd<'a>; 3]),
    /// A new terminal of the node's own, of this size.
    Terminal(Winsize),
    /// Each by itself.
    Streams(Streams<'a>),
}

/// Standard input, output and error of a program.
#[derive(Debug, Clone, Copy)]
pub struct Streams<'a> {
    pub(super) each: [Stream<'a>; 3],
    /// Of the terminal, where one of them is one.
    pub(super) size: Option<Winsize>,
    /// Sockets that were made for the program, too. It has them under the numbers that they have here.
    pub(super) kept: &'a [OwnedFd],
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stream<'a> {
    /// The node's own null device.
    Null,
    /// Made for the program.
    Pipe(BorrowedFd<'a>),
    /// The node's own terminal. Where the input is none, it only shows.
    Terminal,
}

impl<'a> Stdio<'a> {
    pub(super) fn streams(self) -> io::Result<Streams<'a>> {
        let of = |fd: BorrowedFd<'a>| {
            let status = fstat(fd)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Fifo | FileType::Socket => Ok(Stream::Pipe(fd)),
                _ if is_null(&status) => Ok(Stream::Null),
                _ => Err(io::Error::other(
                    "it is neither a pipe nor the null device, and no file of this machine may enter a node",
                )),
            }
        };
        match self {
            Self::Descriptors([input, output, error]) => {
                Ok(Streams { each: [of(input)?, of(output)?, of(error)?], size: None, kept: &[] })
            }
            Self::Terminal(size) => Ok(Streams { each: [Stream::Terminal; 3], size: Some(size), kept: &[] }),
            Self::Streams(streams) => Ok(streams),
        }
    }
}

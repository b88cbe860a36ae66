//! The plug-in's connection with the broker.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::connection::Joint;
use crate::wire::{self, Answer, End, Gid, Reply, Request, WireError};

/// Where a node sees its broker's listener.
const SOCKET: &str = "/run/slipway/verbs.sock";
const VARIABLE: &str = "SLIPWAY_VERBS_SOCKET";

/// A packet that nobody asked for.
#[derive(Debug)]
pub(super) enum Note {
    Revoked { number: u32 },
    Reached { number: u32, joint: Joint },
    Silenced { number: u32, peer: u32, is_silent: bool },
    Regrouped { group: Gid },
}

/// State of the connection with the broker, which may end and be followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It serves.
    Ready,
    /// The program has greeted the next one, which has not answered yet.
    Greeted,
    /// It has ended.
    Lost,
}

#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    notes: VecDeque<Note>,
    pub(super) stage: Stage,
}

fn socket(path: &OsStr, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(Path::new(path))?)?;
    Ok(socket)
}

/// Where a listener is: what a variable says, or the place where nodes see it.
fn place(variable: &str, usual: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

/// Connects to a listener of the node's.
pub(super) fn connect(variable: &str, usual: &str) -> Result<OwnedFd, Errno> {
    socket(&place(variable, usual), SocketFlags::empty())
}

impl Client {
    pub(super) fn connect() -> Result<Self, Errno> {
        Ok(Self::over(connect(VARIABLE, SOCKET)?))
    }

    /// A connection by a socket that has it.
    pub(super) fn over(socket: OwnedFd) -> Self {
        Self { socket, notes: VecDeque::new(), stage: Stage::Ready }
    }

    /// Greets the next broker, without waiting: it may not have begun.
    pub(super) fn greet() -> Result<Self, Errno> {
        let socket = socket(&place(VARIABLE, SOCKET), SocketFlags::NONBLOCK)?;
        wire::send(socket.as_fd(), &Request::Hello, &[]).map_err(|error| errno(&error))?;
        // From now on as any other: calls wait for replies.
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(Self { socket, notes: VecDeque::new(), stage: Stage::Greeted })
    }

    /// Takes the answer of a broker that was greeted, without waiting: its file of counts.
    pub(super) fn welcome(&mut self) -> Result<Vec<OwnedFd>, Errno> {
        match wire::receive::<Answer>(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Ok((Answer::Reply(Reply::Node { .. }), fds)) => {
                self.stage = Stage::Ready;
                Ok(fds)
            }
            Ok(_) => Err(self.lost(&WireError::Malformed)),
            Err(WireError::Socket(Errno::AGAIN)) => Err(Errno::AGAIN),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// The broker has ended. Notes that it sent before still count: nobody else has the descriptors beside them.
    fn lost(&mut self, error: &WireError) -> Errno {
        while let Ok((answer, fds)) = wire::receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            self.keep(&answer, fds);
        }
        self.stage = Stage::Lost;
        errno(error)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks the broker, and waits for its reply. Packets that come before it become notes. `ECONNRESET` where there is none.
    pub(super) fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        if self.stage != Stage::Ready {
            return Err(Errno::CONNRESET);
        }
        wire::send(self.socket.as_fd(), request, fds).map_err(|error| self.lost(&error))?;
        loop {
            let (answer, fds) =
                wire::receive(self.socket.as_fd(), RecvFlags::empty()).map_err(|error| self.lost(&error))?;
            match answer {
                Answer::Reply(Reply::Refused { errno }) => return Err(Errno::from_raw_os_error(errno)),
                Answer::Reply(reply) => return Ok((reply, fds)),
                note => self.keep(&note, fds),
            }
        }
    }

    /// The next note, without waiting. An error where the broker has ended: what is connected goes on.
    pub(super) fn note(&mut self) -> Result<Option<Note>, Errno> {
        if self.notes.is_empty() {
            if self.stage != Stage::Ready {
                return Err(Errno::CONNRESET);
            }
            match wire::receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok((answer, fds)) => self.keep(&answer, fds),
                Err(WireError::Socket(Errno::AGAIN)) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(self.notes.pop_front())
    }

    /// A peer's connection with a queue pair, where its note is kept.
    pub(super) fn reached(&mut self, number: u32, peer: u32) -> Option<Joint> {
        let is_it =
            |note: &Note| matches!(note, Note::Reached { number: to, joint } if *to == number && joint.peer.1 == peer);
        let at = self.notes.iter().position(is_it)?;
        match self.notes.remove(at)? {
            Note::Reached { joint, .. } => Some(joint),
            Note::Revoked { .. } | Note::Silenced { .. } | Note::Regrouped { .. } => None,
        }
    }

    /// A group whose members are others now, where its note is kept.
    pub(super) fn regrouped(&mut self) -> Option<Gid> {
        let at = self.notes.iter().position(|note| matches!(note, Note::Regrouped { .. }))?;
        match self.notes.remove(at)? {
            Note::Regrouped { group } => Some(group),
            _ => None,
        }
    }

    /// A note that came with a reply.
    pub(super) fn kept(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn keep(&mut self, answer: &Answer, fds: Vec<OwnedFd>) {
        match *answer {
            Answer::Revoked { number } => self.notes.push_back(Note::Revoked { number }),
            Answer::Silenced { number, peer, is_silent } => {
                self.notes.push_back(Note::Silenced { number, peer, is_silent });
            }
            Answer::Reached { number, gid, peer, counts } => {
                // Memory and a socket on this host, a stream from another.
                let end = if fds.len() == 1 { End::Far } else { End::Second };
                let joint = Joint { fds, end, counts, peer: (gid, peer) };
                self.notes.push_back(Note::Reached { number, joint });
            }
            Answer::Regrouped { group } => self.notes.push_back(Note::Regrouped { group }),
            Answer::Reply(_) => {}
        }
    }
}

fn errno(error: &WireError) -> Errno {
    match error {
        WireError::Socket(errno) => *errno,
        WireError::Ended => Errno::CONNRESET,
        WireError::Malformed => Errno::PROTO,
    }
}

//! Requests to a running anchor: one message, one answer, over a socket that only root can reach.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::birth::Death;
use crate::condition::LinkAction;
use crate::packet;

/// Longest message either way, bytes. A request names nodes by number, so ten thousand of them fit.
const LONGEST: usize = 256 * 1024;

/// What an anchor can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Give these nodes, stopped or dead, a new init.
    Start(Vec<usize>),
    /// Silence these nodes' links, then end every process in them. Files and links stay.
    Halt(Vec<usize>),
    /// End every process in these nodes, as a crash, a shutdown or a power failure would. Nothing answers for them afterwards.
    Kill { nodes: Vec<usize>, death: Death },
    /// Have interfaces of these nodes, which are frozen, pass nothing; or, where they are thawed, what they passed before.
    Still { nodes: Vec<usize>, still: bool },
    /// Put in place what stilling these nodes will need.
    PrepareStill(Vec<usize>),
    /// Change links: for good, or as the overlay of this number until it is lifted.
    Links(Option<usize>, Box<LinkAction>),
    /// Lift an overlay.
    Lift(usize),
    /// Put in place what a change of links will need, so that little is left to do when it is asked for.
    Prepare(Box<LinkAction>),
    /// Take away what was so prepared and is not needed.
    Settle,
    /// Make all links what the lab file says.
    Restore,
    /// Put the rules that are written down in the place of those that there were.
    Policy,
    /// Write down how links are now.
    Report,
    /// Have what comes along heard by the router of this node's host: a listener, by which a program's calls wait.
    Listener(usize),
    /// Write down how the fast path is.
    Fast,
    /// Give back a descriptor of what is written on sockets of the fast path.
    Notes,
    /// See to programs that have ended, so that they are written down.
    Programs,
    /// Give back a pipe in which there is something whenever there is more in this node's log.
    Follow(usize),
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Failed(String),
}

/// What the anchor says to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    /// Fast connections that it ended.
    pub(crate) ended: u64,
    /// What it had done right before, which this request may have waited for.
    pub(crate) before: Option<Deed>,
}

/// Something that the anchor did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deed {
    pub(crate) what: String,
    /// As [`now`].
    pub(crate) until: u64,
}

impl Request {
    /// What is being done when this is.
    fn deed(&self) -> &'static str {
        match self {
            Self::Start(_) => "starting nodes",
            Self::Halt(_) | Self::Kill { .. } => "ending nodes",
            Self::Still { .. }
            | Self::PrepareStill(_)
            | Self::Links(..)
            | Self::Lift(_)
            | Self::Prepare(_)
            | Self::Settle
            | Self::Restore => "changing links",
            Self::Report => "reporting on links",
            Self::Programs | Self::Follow(_) => "seeing to nodes' programs",
            Self::Policy | Self::Listener(_) | Self::Fast | Self::Notes => "seeing to the fast path",
        }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which is never negative and the same for all processes.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Opens the anchor's socket for requests.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // A scenario's player asks without waiting for answers.
    listen(&socket, 4096)?;
    Ok(socket)
}

/// Asks the anchor, and waits for its answer.
pub(crate) fn ask(path: &Path, request: &Request) -> io::Result<Reply> {
    reply(&begin(path, request)?)
}

/// Asks the anchor. The socket is readable once it has answered.
pub(crate) fn begin(path: &Path, request: &Request) -> io::Result<OwnedFd> {
    begin_with(path, request, None)
}

fn begin_with(path: &Path, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    packet::send(&socket, &serde_json::to_vec(request)?, descriptor)?;
    Ok(socket)
}

/// Has the router of a node's host hear the calls of a program, and waits until it does.
pub(crate) fn hand(path: &Path, node: usize, listener: &OwnedFd) -> io::Result<()> {
    match reply(&begin_with(path, &Request::Listener(node), Some(listener.as_fd()))?)?.answer {
        Answer::Done => Ok(()),
        Answer::Failed(account) => Err(io::Error::other(account)),
    }
}

/// Asks the anchor for a descriptor.
pub(crate) fn descriptor(path: &Path, request: &Request) -> io::Result<OwnedFd> {
    let (reply, descriptor) = packet::receive(&begin(path, request)?, LONGEST)?;
    match (serde_json::from_slice::<Reply>(&reply)?.answer, descriptor) {
        (Answer::Done, Some(descriptor)) => Ok(descriptor),
        (Answer::Done, None) => Err(io::ErrorKind::InvalidData.into()),
        (Answer::Failed(account), _) => Err(io::Error::other(account)),
    }
}

/// The anchor's reply, waited for.
pub(crate) fn reply(socket: &OwnedFd) -> io::Result<Reply> {
    Ok(serde_json::from_slice(&packet::receive(socket, LONGEST)?.0)?)
}

/// Takes one request, has it done, answers. `before` is what was done for the one before, and then for this one. `act` is given
/// the descriptor that came along, and leaves one there that is to go back;
/// it says how many fast connections it ended.
pub(crate) fn serve_one(
    listener: &OwnedFd,
    before: &mut Option<Deed>,
    act: impl FnOnce(Request, &mut Option<OwnedFd>) -> Result<u64, String>,
) -> io::Result<()> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    // A caller that connects and says nothing must not hold the anchor.
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(std::time::Duration::from_secs(1)),
    )?;
    let (request, mut descriptor) = packet::receive(&socket, LONGEST)?;
    let mut ended = 0;
    let (answer, earlier) = match serde_json::from_slice::<Request>(&request) {
        Ok(request) => {
            let what = request.deed().to_owned();
            let span = tracing::info_span!("request", what).entered();
            tracing::trace!(?request, "taken");
            let answer = act(request, &mut descriptor).map(|count| ended = count);
            match &answer {
                Ok(()) => tracing::debug!(ended, "done"),
                Err(account) => tracing::warn!("failed: {account}"),
            }
            drop(span);
            let answer = answer.map_or_else(Answer::Failed, |()| Answer::Done);
            (answer, before.replace(Deed { what, until: now() }))
        }
        Err(error) => (Answer::Failed(format!("understand the request: {error}")), None),
    };
    let reply = serde_json::to_vec(&Reply { answer, ended, before: earlier })?;
    packet::send(&socket, &reply, descriptor.as_ref().map(OwnedFd::as_fd))
}

//! Requests to a running anchor: one message, one answer, over a socket that only root can reach.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recv, send, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::condition::LinkAction;

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
    /// End every process in these nodes, as a crash would: silently where `hard`, so that no packet leaves any more; else the
    /// kernel closes their connections, and goes on to answer for them.
    Kill { nodes: Vec<usize>, hard: bool },
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
    /// Write down how links are now.
    Report,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Failed(String),
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
pub(crate) fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    answer(&begin(path, request)?)
}

/// Asks the anchor. The socket is readable once it has answered.
pub(crate) fn begin(path: &Path, request: &Request) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    send(&socket, &serde_json::to_vec(request)?, SendFlags::NOSIGNAL)?;
    Ok(socket)
}

/// The anchor's answer, waited for.
pub(crate) fn answer(socket: &OwnedFd) -> io::Result<Answer> {
    Ok(serde_json::from_slice(&receive(socket)?)?)
}

/// Takes one request, has it done, answers.
pub(crate) fn serve_one(listener: &OwnedFd, act: impl FnOnce(Request) -> Result<(), String>) -> io::Result<()> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    // A caller that connects and says nothing must not hold the anchor.
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(std::time::Duration::from_secs(1)),
    )?;
    let answer = match serde_json::from_slice(&receive(&socket)?) {
        Ok(request) => act(request).map_or_else(Answer::Failed, |()| Answer::Done),
        Err(error) => Answer::Failed(format!("understand the request: {error}")),
    };
    send(&socket, &serde_json::to_vec(&answer)?, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; LONGEST];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

//! The answering side, for a process with one thread: nothing here waits, so no peer holds it up.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use rustix::process::{Uid, geteuid};
use serde::Serialize;

use super::error::{Code, Error};
use super::frame::{Frames, Outgoing, framed};
use super::hello::{self, Hello};
use super::operation::{Descriptor, Operation, Service};
use super::{LARGEST_REPLY, LARGEST_REQUEST, Reply, Served, now, parse};

/// How long a peer may take for the next piece of its message, or of ours.
const PATIENCE: Duration = Duration::from_secs(5);
/// Peers that have connected and are not served yet: a scenario's player asks without waiting for answers.
const BACKLOG: i32 = 4096;

/// A socket for requests of a service, and its peers.
#[derive(Debug)]
pub(crate) struct Server<S> {
    listener: OwnedFd,
    /// The only user who is served.
    owner: Uid,
    peers: Vec<Peer>,
    before: Option<Served>,
    service: PhantomData<fn() -> S>,
}

/// What a descriptor is to be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
}

#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    stage: Stage,
    /// It is dropped then.
    due: Instant,
}

#[derive(Debug)]
enum Stage {
    Hearing(Hearing),
    Answering(Outgoing),
}

/// A request on its way in.
#[derive(Debug, Default)]
struct Hearing {
    frames: Frames,
    has_greeted: bool,
    descriptors: Vec<OwnedFd>,
}

/// Makes the answer to one request.
#[derive(Debug)]
pub(crate) struct Responder {
    before: Option<Served>,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Answer {
    text: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Responder {
    /// The answer to an operation.
    pub(crate) fn answer<O: Operation>(self, outcome: Result<O::Reply, Error>) -> Answer {
        self.encode(outcome, None)
    }

    /// The answer to an operation that gives back a descriptor.
    pub(crate) fn hand<O: Operation<Reply = Descriptor>>(self, outcome: Result<OwnedFd, Error>) -> Answer {
        match outcome {
            Ok(descriptor) => self.encode::<O::Reply>(Ok(Descriptor), Some(descriptor)),
            Err(error) => self.refuse(error),
        }
    }

    /// Says that a request will not be done.
    pub(crate) fn refuse(self, error: Error) -> Answer {
        self.encode::<()>(Err(error), None)
    }

    fn encode<T: Serialize>(self, outcome: Result<T, Error>, descriptor: Option<OwnedFd>) -> Answer {
        match &outcome {
            Ok(_) => tracing::debug!("done"),
            Err(error) => tracing::warn!(code = ?error.code, "failed: {error}"),
        }
        let text = serde_json::to_vec(&Reply { outcome, before: self.before }).expect("replies are plain data");
        Answer { text, descriptor }
    }
}

impl<S: Service + std::fmt::Debug> Server<S> {
    /// Opens the socket. Only processes of this one's effective user are served.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, BACKLOG)?;
        Ok(Self { listener, owner: geteuid(), peers: Vec::new(), before: None, service: PhantomData })
    }

    #[cfg(test)]
    pub(super) fn serve_only(&mut self, owner: Uid) {
        self.owner = owner;
    }

    /// Everything to wait for.
    pub(crate) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let peers = self.peers.iter().map(|peer| match peer.stage {
            Stage::Hearing(_) => (peer.socket.as_fd(), Interest::Read),
            Stage::Answering(_) => (peer.socket.as_fd(), Interest::Write),
        });
        std::iter::once((self.listener.as_fd(), Interest::Read)).chain(peers).collect()
    }

    /// How long to wait at most.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let due = self.peers.iter().map(|peer| peer.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Goes on with what is ready, in the order of [`waits_for`](Self::waits_for), and has at most one request served. The
    /// others stay ready.
    pub(crate) fn tend(&mut self, ready: &[bool], serve: impl FnOnce(S, Option<OwnedFd>, Responder) -> Answer) {
        let is_ready = |at: usize| ready.get(at).copied().unwrap_or(false);
        let mut serve = Some(serve);
        // A request may take long: who was late before it is late.
        let begin = Instant::now();
        let mut peers = std::mem::take(&mut self.peers);
        let mut at = 0;
        peers.retain_mut(|peer| {
            at += 1;
            if is_ready(at) { self.go_on(peer, &mut serve) } else { peer.due > begin || peer.give_up() }
        });
        // A peer may have gone away, or the limit of descriptors be reached: it is tried again.
        if is_ready(0)
            && serve.is_some()
            && let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            let stage = Stage::Hearing(Hearing::default());
            let mut peer = Peer { socket, stage, due: Instant::now() + PATIENCE };
            if self.go_on(&mut peer, &mut serve) {
                peers.push(peer);
            }
        }
        self.peers = peers;
    }

    /// `false`: there is no more to do for this peer.
    fn go_on<F: FnOnce(S, Option<OwnedFd>, Responder) -> Answer>(
        &mut self,
        peer: &mut Peer,
        serve: &mut Option<F>,
    ) -> bool {
        if let Stage::Hearing(hearing) = &mut peer.stage {
            // One request at a time: whoever waits for this process's other work is not kept waiting by a crowd.
            if serve.is_none() {
                return true;
            }
            let heard = permitted(&peer.socket, self.owner).and_then(|()| hearing.go_on::<S>(&peer.socket));
            let answer = match heard {
                Ok(Heard::More) => {
                    peer.due = Instant::now() + PATIENCE;
                    return true;
                }
                Ok(Heard::Nothing) => return false,
                Ok(Heard::Request(request, descriptor)) => match serve.take() {
                    Some(serve) => self.serve(request, descriptor, serve),
                    None => return true,
                },
                Err(error) => Responder { before: None }.refuse(error),
            };
            peer.stage = Stage::Answering(answer.frames());
        }
        let Stage::Answering(outgoing) = &mut peer.stage else { return true };
        peer.due = Instant::now() + PATIENCE;
        // A peer that went away before its answer has only itself to tell.
        !outgoing.advance(peer.socket.as_fd()).unwrap_or(true)
    }

    fn serve(
        &mut self,
        request: S,
        descriptor: Option<OwnedFd>,
        serve: impl FnOnce(S, Option<OwnedFd>, Responder) -> Answer,
    ) -> Answer {
        let work = request.work();
        let _span = tracing::info_span!("request", what = work).entered();
        tracing::trace!(?request, "taken");
        let answer = serve(request, descriptor, Responder { before: self.before.take() });
        self.before = Some(Served { work: work.to_owned(), until: now() });
        answer
    }
}

impl Peer {
    /// Tells a peer that it took too long. Gives `false`: there is no more to do for it.
    fn give_up(&mut self) -> bool {
        if let Stage::Hearing(_) = self.stage {
            let late = Error::new(Code::Timeout, format!("read a request: it stopped for {} s", PATIENCE.as_secs()));
            let _ = Responder { before: None }.refuse(late).frames().advance(self.socket.as_fd());
        }
        false
    }
}

impl Answer {
    fn frames(self) -> Outgoing {
        let hello = serde_json::to_vec(&Hello::own()).expect("a hello is plain data");
        let frames = |text: &[u8]| framed(&[(&hello, hello::LARGEST), (text, LARGEST_REPLY)]);
        let bytes = frames(&self.text).or_else(|error| frames(&Responder { before: None }.refuse(error).text));
        Outgoing::new(bytes.unwrap_or_default(), self.descriptor)
    }
}

/// What came of a peer's bytes.
enum Heard<S> {
    /// There is more to come.
    More,
    /// The peer went away.
    Nothing,
    Request(S, Option<OwnedFd>),
}

impl Hearing {
    fn go_on<S: Service>(&mut self, socket: &OwnedFd) -> Result<Heard<S>, Error> {
        match self.frames.receive(socket, &mut self.descriptors) {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Heard::More),
            Ok(false) | Err(_) => return Ok(Heard::Nothing),
        }
        if !self.has_greeted {
            let Some(hello) = self.frames.take(hello::LARGEST)? else { return Ok(Heard::More) };
            parse::<Hello>(&hello)?.check()?;
            self.has_greeted = true;
        }
        let Some(request) = self.frames.take(LARGEST_REQUEST)? else { return Ok(Heard::More) };
        let request: S = parse(&request)?;
        if !self.frames.is_empty() || self.descriptors.len() != request.descriptors() {
            return Err(Error::new(Code::Malformed, "read a request: something else came along"));
        }
        Ok(Heard::Request(request, self.descriptors.pop()))
    }
}

/// Files keep others away; this does so for a descriptor that was passed on.
fn permitted(socket: &OwnedFd, owner: Uid) -> Result<(), Error> {
    match socket_peercred(socket) {
        Ok(peer) if peer.uid == owner => Ok(()),
        _ => Err(Error::new(
            Code::NotPermitted,
            "serve another user than the lab's\nHint: run the command as the user who brought the lab up",
        )),
    }
}

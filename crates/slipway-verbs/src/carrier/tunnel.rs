//! Two ends and the bytes between them.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, c_short};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, send};

use super::hold_out;
use super::rdmacm::Socket;
use crate::untrusted::{self, Untrusted};

/// Bytes on their way, each direction.
const ROOM: usize = 128 << 10;
/// How often one tunnel moves bytes before others have their turn.
const ROUNDS: usize = 16;
/// Longest time for bytes that an end has left behind.
const DRAIN: Duration = Duration::from_secs(2);

/// A stream, mostly one whose other end a hostile program has. Descriptors that the program has sent along close with it.
#[derive(Debug)]
pub(super) struct Stream(Untrusted);

impl Stream {
    pub(super) fn new(stream: OwnedFd) -> Self {
        Self(stream.into())
    }

    pub(super) fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Whether the program has closed or shut down its end.
    pub(super) fn is_over(&self) -> bool {
        let mut on = [PollFd::new(&self.0, PollFlags::RDHUP)];
        !matches!(poll(&mut on, Some(&Timespec::default())), Ok(0))
    }

    /// Receives bytes. A program that sends descriptors along is none of ours: its stream ends.
    fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let received = untrusted::receive(self.0.as_fd(), to, RecvFlags::DONTWAIT)?;
        if received.fds.is_empty() { Ok(received.bytes) } else { Err(Errno::PROTO) }
    }
}

/// An end of a tunnel.
#[derive(Debug)]
pub(super) enum End {
    Stream(Stream),
    Device(Socket),
}

impl End {
    pub(super) fn number(&self) -> RawFd {
        match self {
            Self::Stream(stream) => stream.number(),
            Self::Device(socket) => socket.number(),
        }
    }

    /// Sends as much as there is room for; `None`: nothing.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        match self {
            Self::Stream(stream) => waits(send(&stream.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)),
            Self::Device(socket) => socket.send(bytes),
        }
    }

    /// Receives what has come; `None`: nothing yet.
    pub(super) fn receive(&self, to: &mut [u8]) -> Result<Option<usize>, Errno> {
        match self {
            Self::Stream(stream) => waits(stream.receive(to)),
            Self::Device(socket) => socket.receive(to),
        }
    }
}

fn waits(moved: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    match moved {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Bytes on their way in one direction.
#[derive(Debug)]
struct Flow {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
    /// Nothing more comes.
    is_over: bool,
}

impl Flow {
    fn new() -> Self {
        Self { bytes: vec![0; ROOM].into(), from: 0, to: 0, is_over: false }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Moves what can be moved. Gives whether any did. Where one end fails, the other way may still have bytes.
    fn turn(&mut self, source: &End, target: &End) -> bool {
        let mut has_moved = false;
        if self.is_empty() && !self.is_over {
            (self.from, self.to) = (0, 0);
            match source.receive(&mut self.bytes) {
                Ok(Some(got)) => (self.to, self.is_over, has_moved) = (got, got == 0, true),
                Ok(None) => {}
                Err(_) => (self.is_over, has_moved) = (true, true),
            }
        }
        if !self.is_empty() {
            if let Ok(sent) = target.send(&self.bytes[self.from..self.to]) {
                self.from += sent.unwrap_or(0);
                has_moved |= sent.is_some_and(|sent| sent > 0);
            } else {
                (self.from, self.to, self.is_over) = (0, 0, true);
            }
        }
        has_moved
    }
}

/// A program's end, and the other machine's.
#[derive(Debug)]
pub(super) struct Tunnel {
    near: End,
    far: End,
    is_held: bool,
    /// To the other machine, and from there.
    out: Flow,
    back: Flow,
    /// Time at which it ends, drained or not.
    ends: Option<Instant>,
}

impl Tunnel {
    pub(super) fn new(near: Stream, far: End) -> Self {
        Self { near: End::Stream(near), far, is_held: false, out: Flow::new(), back: Flow::new(), ends: None }
    }

    /// Moves nothing from now on, or goes on.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        if let End::Stream(stream) = &self.far {
            // One that has ended takes no option.
            let _ = hold_out(&stream.0, is_held);
        }
    }

    /// Moves bytes. False where the tunnel has ended.
    pub(super) fn turn(&mut self) -> bool {
        if self.is_held {
            // The end of a program is no news of the network. The other machine hears of it by the connection's end.
            return !matches!(&self.near, End::Stream(near) if near.is_over());
        }
        for _ in 0..ROUNDS {
            let out = self.out.turn(&self.near, &self.far);
            let back = self.back.turn(&self.far, &self.near);
            if self.out.is_over || self.back.is_over {
                let is_drained = self.out.is_empty() && self.back.is_empty();
                let ends = *self.ends.get_or_insert_with(|| Instant::now() + DRAIN);
                if is_drained || Instant::now() >= ends {
                    return false;
                }
            }
            if !out && !back {
                break;
            }
        }
        true
    }

    /// Descriptors to wait for, and the events.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = (RawFd, c_short)> {
        let is_held = self.is_held;
        let events = |from: &Flow, to: &Flow| {
            let reads = if from.is_empty() && !from.is_over { POLLIN } else { 0 };
            reads | if to.is_empty() { 0 } else { POLLOUT }
        };
        let both =
            [(self.near.number(), events(&self.out, &self.back)), (self.far.number(), events(&self.back, &self.out))];
        // One that has ended would be reported without end. A held one waits for the end of its program alone (`POLLHUP`).
        let held = is_held.then_some((self.near.number(), 0));
        held.into_iter().chain(both.into_iter().filter(move |(_, events)| !is_held && *events != 0))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, Shutdown, SocketFlags, SocketType, recv, sendmsg,
        shutdown, socketpair,
    };

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn all_bytes_arrive_in_order_before_the_end_does() {
        let ((program, near), (far, other)) = (pair(), pair());
        let mut tunnel = Tunnel::new(Stream::new(near), End::Stream(Stream::new(far)));
        let sent: Vec<u8> = (0..4 * ROOM).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut done, mut there, mut room) = (0, Vec::<u8>::new(), vec![0; ROOM]);
        loop {
            match send(&program, &sent[done..], SendFlags::DONTWAIT) {
                Ok(more) => done += more,
                Err(errno) => assert_eq!(errno, Errno::AGAIN),
            }
            if done == sent.len() {
                let _ = shutdown(&program, Shutdown::Write);
            }
            let lives = tunnel.turn();
            while let Ok((got, _)) = recv(&other, &mut room[..], RecvFlags::DONTWAIT)
                && got > 0
            {
                there.extend(&room[..got]);
            }
            if !lives {
                break;
            }
        }
        assert!(there == sent, "{} of {} bytes", there.len(), sent.len());
    }

    #[test]
    fn an_end_without_room_is_waited_for_and_one_that_is_gone_is_not() {
        let ((program, near), (far, other)) = (pair(), pair());
        let mut tunnel = Tunnel::new(Stream::new(near), End::Stream(Stream::new(far)));
        while send(&program, &[0; 4096], SendFlags::DONTWAIT).is_ok() || tunnel.out.is_empty() {
            assert!(tunnel.turn());
        }
        let events: Vec<c_short> = tunnel.waits_for().map(|(_, events)| events).collect();
        assert_eq!(events, [POLLIN | POLLOUT], "the far end alone");
        drop(other);
        assert!(!tunnel.turn());
    }

    #[test]
    fn a_program_that_sends_descriptors_along_loses_its_stream() {
        let ((program, near), (far, other)) = (pair(), pair());
        let mut tunnel = Tunnel::new(Stream::new(near), End::Stream(Stream::new(far)));
        let (sent, kept) = pair();
        {
            let rights = [sent.as_fd()];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
            sendmsg(&program, &[std::io::IoSlice::new(b"byte")], &mut ancillary, SendFlags::empty()).unwrap();
        }
        drop(sent);
        assert!(!tunnel.turn());
        // The thread that closes it has nothing else to do.
        assert_eq!(recv(&kept, &mut [0; 1][..], RecvFlags::empty()).unwrap().1, 0);
        drop(tunnel);
        assert_eq!(recv(&other, &mut [0; 8][..], RecvFlags::empty()).unwrap().1, 0);
    }

    #[test]
    fn a_held_tunnel_moves_nothing_and_ends_with_its_program() {
        let ((program, near), (far, other)) = (pair(), pair());
        let mut tunnel = Tunnel::new(Stream::new(near), End::Stream(Stream::new(far)));
        tunnel.hold(true);
        send(&program, b"byte", SendFlags::empty()).unwrap();
        assert!(tunnel.turn());
        assert_eq!(recv(&other, &mut [0; 8][..], RecvFlags::DONTWAIT), Err(Errno::AGAIN));
        assert_eq!(tunnel.waits_for().map(|(_, events)| events).collect::<Vec<_>>(), [0]);
        tunnel.hold(false);
        assert!(tunnel.turn());
        assert_eq!(recv(&other, &mut [0; 8][..], RecvFlags::DONTWAIT).unwrap().1, 4);
        tunnel.hold(true);
        drop(program);
        assert!(!tunnel.turn());
    }
}

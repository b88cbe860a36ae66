//! Two ends and the bytes between them.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, c_short};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::rdmacm::Socket;

/// Bytes on their way, each direction.
const ROOM: usize = 128 << 10;
/// How often one tunnel moves bytes before others have their turn.
const ROUNDS: usize = 16;
/// Longest time for bytes that an end has left behind.
const DRAIN: Duration = Duration::from_secs(2);

/// An end of a tunnel.
#[derive(Debug)]
pub(super) enum End {
    Stream(OwnedFd),
    Device(Socket),
}

impl End {
    pub(super) fn number(&self) -> RawFd {
        match self {
            Self::Stream(stream) => stream.as_raw_fd(),
            Self::Device(socket) => socket.number(),
        }
    }

    /// Sends as much as there is room for; `None`: nothing.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        match self {
            Self::Stream(stream) => waits(send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)),
            Self::Device(socket) => socket.send(bytes),
        }
    }

    /// Receives what has come; `None`: nothing yet.
    pub(super) fn receive(&self, to: &mut [u8]) -> Result<Option<usize>, Errno> {
        match self {
            Self::Stream(stream) => waits(recv(stream, &mut *to, RecvFlags::DONTWAIT).map(|(got, _)| got)),
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

    /// Moves what can be moved. Gives whether any did.
    fn turn(&mut self, source: &End, target: &End) -> Result<bool, Errno> {
        let mut has_moved = false;
        if self.is_empty() && !self.is_over {
            (self.from, self.to) = (0, 0);
            match source.receive(&mut self.bytes) {
                Ok(Some(got)) => (self.to, self.is_over, has_moved) = (got, got == 0, true),
                Ok(None) => {}
                // Bytes the other way may still arrive.
                Err(_) => (self.is_over, has_moved) = (true, true),
            }
        }
        if !self.is_empty()
            && let Some(sent) = target.send(&self.bytes[self.from..self.to])?
        {
            self.from += sent;
            has_moved |= sent > 0;
        }
        Ok(has_moved)
    }
}

/// A program's end, and the other machine's.
#[derive(Debug)]
pub(super) struct Tunnel {
    near: End,
    far: End,
    /// To the other machine, and from there.
    out: Flow,
    back: Flow,
    /// Time at which it ends, drained or not.
    ends: Option<Instant>,
}

impl Tunnel {
    pub(super) fn new(near: OwnedFd, far: End) -> Self {
        Self { near: End::Stream(near), far, out: Flow::new(), back: Flow::new(), ends: None }
    }

    /// Moves bytes. False where the tunnel has ended.
    pub(super) fn turn(&mut self) -> bool {
        for _ in 0..ROUNDS {
            let out = self.out.turn(&self.near, &self.far);
            let back = self.back.turn(&self.far, &self.near);
            let (Ok(out), Ok(back)) = (out, back) else { return false };
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
        let events = |from: &Flow, to: &Flow| {
            let reads = if from.is_empty() && !from.is_over { POLLIN } else { 0 };
            reads | if to.is_empty() { 0 } else { POLLOUT }
        };
        let both =
            [(self.near.number(), events(&self.out, &self.back)), (self.far.number(), events(&self.back, &self.out))];
        // One that has ended would be reported without end.
        both.into_iter().filter(|(_, events)| *events != 0)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.ends
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn all_bytes_arrive_in_order_before_the_end_does() {
        let ((program, near), (far, other)) = (pair(), pair());
        let mut tunnel = Tunnel::new(near, End::Stream(far));
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
        let mut tunnel = Tunnel::new(near, End::Stream(far));
        while send(&program, &[0; 4096], SendFlags::DONTWAIT).is_ok() || tunnel.out.is_empty() {
            assert!(tunnel.turn());
        }
        let events: Vec<c_short> = tunnel.waits_for().map(|(_, events)| events).collect();
        assert_eq!(events, [POLLIN | POLLOUT], "the far end alone");
        drop(other);
        assert!(!tunnel.turn());
    }
}

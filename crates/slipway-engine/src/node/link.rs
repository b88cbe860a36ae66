//! What an anchor and a fresh init say to each other, once each, over a socket pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::Pid;

/// The steps of a node's birth, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Init: I am here. My number follows ([`Link::born`]).
    Born = 4,
    /// Init: my namespaces are there.
    Namespaced = 1,
    /// Anchor: your interfaces are in place.
    Linked = 2,
    /// Init: ready. Said by the program that it executes.
    Ready = 3,
}

/// The reason that an init did not take its next step. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("listen to the node's init: {0}")]
    Listen(io::Error),
    /// The init's own account.
    #[error("{0}")]
    Said(String),
    #[error(
        "start its init: it ended without a word\nHint: look for it in the kernel's log (dmesg); was it out of memory?"
    )]
    Silent,
}

/// Longest account of a failure; the rest is cut.
const LONGEST: usize = 4096;
const FAILED: u8 = 0xff;

/// One end of the pair. Whole messages: each is one byte, or `FAILED` and an account of it.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    /// An init's end, from the anchor.
    pub(crate) fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Says this process's number, as the anchor knows it.
    pub(crate) fn tell_born(&self, pid: Pid) -> io::Result<()> {
        let mut message = vec![Step::Born as u8];
        message.extend(pid.as_raw_nonzero().get().to_ne_bytes());
        send(&self.0, &message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the init's number.
    pub(crate) fn born(&self) -> Result<Pid, InitError> {
        let mut buffer = [0u8; LONGEST + 1];
        match self.receive(&mut buffer)? {
            [said, number @ ..] if *said == Step::Born as u8 => {
                let number = number.try_into().ok().map(i32::from_ne_bytes);
                number.and_then(Pid::from_raw).ok_or(InitError::Silent)
            }
            other => Err(refused(other)),
        }
    }

    pub(crate) fn say(&self, step: Step) -> io::Result<()> {
        send(&self.0, &[step as u8], SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The other side hears it instead of its next step.
    pub(crate) fn fail(&self, account: &str) {
        let mut message = vec![FAILED];
        message.extend(account.bytes().take(LONGEST));
        // Nobody there to hear it means that the anchor is gone, and so are we.
        let _ = send(&self.0, &message, SendFlags::NOSIGNAL);
    }

    /// Why an init that is gone is gone.
    pub(crate) fn last_word(&self) -> InitError {
        self.expect(Step::Ready).err().unwrap_or(InitError::Silent)
    }

    /// Waits for `step`. Anything else is an error: the other side's account, or its silence.
    pub(crate) fn expect(&self, step: Step) -> Result<(), InitError> {
        let mut buffer = [0u8; LONGEST + 1];
        match self.receive(&mut buffer)? {
            [said] if *said == step as u8 => Ok(()),
            other => Err(refused(other)),
        }
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], InitError> {
        let length = loop {
            match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                // That the other side ended without having read all is told first, and once; what it said last comes after
                // (`__skb_try_recv_datagram`, `net/core/datagram.c`).
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                other => break other.map_err(|error| InitError::Listen(error.into()))?.1,
            }
        };
        Ok(buffer.get(..length).unwrap_or_default())
    }
}

/// A message that is not the one waited for.
fn refused(message: &[u8]) -> InitError {
    match message {
        [FAILED, account @ ..] => InitError::Said(String::from_utf8_lossy(account).into_owned()),
        _ => InitError::Silent,
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

//! What an anchor and a fresh init say to each other, once each, over a socket pair.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// The steps of a node's birth, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
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

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
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
        let (length, _) = loop {
            match recv(&self.0, &mut buffer, RecvFlags::empty()) {
                // That the other side ended without having read all is told first, and once; what it said last comes after
                // (`__skb_try_recv_datagram`, `net/core/datagram.c`).
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                other => break other.map_err(|error| InitError::Listen(error.into()))?,
            }
        };
        match buffer.get(..length) {
            Some([FAILED, account @ ..]) => Err(InitError::Said(String::from_utf8_lossy(account).into_owned())),
            Some([said]) if *said == step as u8 => Ok(()),
            _ => Err(InitError::Silent),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

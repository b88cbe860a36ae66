//! The anchor's side of the wire.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use slipway_sys::clone::SingleThread;
use slipway_sys::helper::{Birth, Helper};

use crate::confine;
use crate::protocol::{Answer, LONGEST, PEERS, Request, hear, say};
use crate::spec::Spec;
use crate::stats::PortStats;
use crate::{Scheduling, WireError};

/// The wire answers in microseconds; one that does not for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running wire: a process of its own, which ends when this is dropped or its maker ends.
///
/// After any error but [`WireError::Refused`] it is of no more use: stop it and start another.
#[derive(Debug)]
pub struct Wire {
    control: OwnedFd,
    helper: Helper,
    scheduling: Scheduling,
}

impl Wire {
    /// Starts the process, and waits until it runs. Its ports are none. It keeps `lock` open until it has ended: whoever can
    /// take that lock meets neither it nor its devices.
    ///
    /// # Errors
    /// When the kernel refuses a process, or it cannot confine itself.
    pub fn start(alone: SingleThread, lock: Option<BorrowedFd<'_>>) -> Result<Self, WireError> {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair().map_err(|error| WireError::Start(error.to_string()))?;
        let birth = Birth { alone, name: c"slipway-wire", group: None, log: None };
        let made = Helper::fork(birth, |newborn| confine::live(newborn, &theirs, lock));
        let (helper, scheduling) = made.map_err(|error| WireError::Start(error.to_string()))?;
        set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE)).map_err(io::Error::from)?;
        let scheduling = serde_json::from_str(&scheduling).map_err(|error| WireError::Start(error.to_string()))?;
        Ok(Self { control: ours, helper, scheduling })
    }

    /// The process, in the caller's PID namespace.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.helper.pid()
    }

    /// Readable when the process has ended. All its devices are gone then, and packets redirected to them are dropped.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.helper.as_fd()
    }

    /// How the kernel was asked to prefer the process, as far as it allowed.
    #[must_use]
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// Has the frames of a device pass a link: what is read from it is written back to it. A copy of the descriptor goes
    /// over; the caller closes its own, or the device would outlive the wire.
    ///
    /// # Errors
    /// [`WireError::Refused`] where the number is in use; then nothing changed.
    pub fn attach(&self, port: u32, tap: impl AsFd, spec: &Spec) -> Result<(), WireError> {
        self.done(&Request::Attach { port }, Some(tap.as_fd()))?;
        self.set(port, spec).inspect_err(|error| {
            if matches!(error, WireError::Refused(_)) {
                // The reason why it was not set is the one to tell.
                let _ = self.detach(port);
            }
        })
    }

    /// Changes the conditions of a port, all at once. Packets that wait in it keep their times. Random streams go on,
    /// and so do loss models that stay the same; it keeps its first seed.
    ///
    /// # Errors
    /// [`WireError::Refused`] where there is no such port; then nothing changed.
    pub fn set(&self, port: u32, spec: &Spec) -> Result<(), WireError> {
        let mut chunks = spec.peers.chunks(PEERS).peekable();
        let peers = chunks.next().unwrap_or_default().to_vec();
        let first = Spec { direction: spec.direction, seed: spec.seed, all: spec.all.clone(), peers, mtu: spec.mtu };
        self.done(&Request::Set { port, spec: Box::new(first), more: chunks.peek().is_some() }, None)?;
        while let Some(peers) = chunks.next() {
            self.done(&Request::Peers { port, peers: peers.to_vec(), more: chunks.peek().is_some() }, None)?;
        }
        Ok(())
    }

    /// Takes a port away. Packets that wait in it are dropped.
    ///
    /// # Errors
    /// [`WireError::Refused`] where there is no such port.
    pub fn detach(&self, port: u32) -> Result<(), WireError> {
        self.done(&Request::Detach { port }, None)
    }

    /// The counters of every port, by number.
    ///
    /// # Errors
    /// Where the wire is gone.
    pub fn stats(&self) -> Result<Vec<PortStats>, WireError> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(port) = from {
            let Answer::Stats(ports, next) = self.ask(&Request::Stats { from: port }, None)? else {
                return Err(WireError::Gone);
            };
            all.extend(ports);
            from = next;
        }
        Ok(all)
    }

    /// Ends the process and waits for its end.
    pub fn stop(self) {
        // However it ended, its devices are gone.
        let _ = self.helper.stop();
    }

    fn done(&self, request: &Request, with: Option<BorrowedFd<'_>>) -> Result<(), WireError> {
        self.ask(request, with).map(drop)
    }

    fn ask(&self, request: &Request, with: Option<BorrowedFd<'_>>) -> Result<Answer, WireError> {
        match say(&self.control, request, with) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(WireError::Gone),
            Err(error) => return Err(error.into()),
        }
        match self.hear()? {
            Answer::Failed(account) => Err(WireError::Refused(account)),
            answer => Ok(answer),
        }
    }

    fn hear(&self) -> Result<Answer, WireError> {
        match hear(&self.control, &mut vec![0; LONGEST]) {
            Ok(Some((answer, _))) => Ok(answer),
            Ok(None) => Err(WireError::Gone),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(WireError::Gone),
            Err(error) => Err(error.into()),
        }
    }
}

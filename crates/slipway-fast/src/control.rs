//! What a lab's anchor and the router of one of its hosts say to each other: JSON over a socket pair that keeps messages whole,
//! descriptors beside them (`unix(7)`, `SCM_RIGHTS`).
//!
//! The anchor orders, the router reports; neither waits for the other, but for a status. What is not one of these messages, of
//! the right length, with the right number of descriptors, is refused as a whole.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use slipway_lab::policy::Rule;

/// Longest message either way, bytes. Below what a socket's buffer takes by default (`net.core.wmem_default`).
pub const LONGEST: usize = 128 * 1024;
/// Most descriptors beside a message.
pub const MOST: usize = 64;
/// Text of a status in one report, bytes: as JSON a byte becomes six at most.
const PIECE: usize = 16 * 1024;
/// Longest status, bytes.
const WHOLE: usize = 64 << 20;
/// A router answers in microseconds; one that does not for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an anchor orders.
#[derive(Debug)]
pub enum Order<F = OwnedFd> {
    /// Serve the programs of a node that this hears of.
    Listener {
        /// Index of the node in the lab.
        node: usize,
        /// The PID namespace that its programs are in, by its inode.
        namespace: u64,
        /// Of the filter that they run under.
        listener: F,
    },
    /// TCP sockets made in the node's network namespace, to knock at its listeners with.
    Knockers {
        /// Index of the node in the lab.
        node: usize,
        /// As many of IPv4 as of IPv6, where the node has that.
        sockets: Vec<F>,
    },
    /// The nodes whose links are under conditions from now on, and no others: what they connect stays on the container network.
    /// Answered by [`Report::Heeded`].
    Conditions {
        /// Indices in the lab.
        nodes: Vec<usize>,
    },
    /// The rules that hold from now on, as JSON, or a piece of that. The last is answered by [`Report::Heeded`].
    Policy {
        /// The piece.
        text: String,
        /// Whether another follows.
        more: bool,
    },
    /// These nodes end without a word: what waits for their programs does not hear of it.
    Silence {
        /// Indices in the lab.
        nodes: Vec<usize>,
    },
    /// They start anew: what waited for them ends.
    Wake {
        /// Indices in the lab.
        nodes: Vec<usize>,
    },
    /// These nodes have ended.
    Forget {
        /// Indices in the lab.
        nodes: Vec<usize>,
    },
    /// Say how it is.
    Status,
}

/// What a router reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It runs, and is confined.
    Ready,
    /// It ends, for this reason.
    Failed(String),
    /// What is admitted has changed as it was ordered: nothing else is handed out any more, but for what is ended at once.
    Heeded,
    /// A node has had all its knockers out at once.
    MoreKnockers {
        /// Index of the node in the lab.
        node: usize,
    },
    /// How it is: a JSON document, or a piece of it.
    Status {
        /// The piece.
        text: String,
        /// Whether another follows.
        more: bool,
    },
}

/// No message of these.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is not written as any is.
    #[error("no message of this protocol: {0}")]
    Words(#[from] serde_json::Error),
    /// Descriptors are missing, or there are some for which there is no use.
    #[error("a message with {0} descriptors, which is not what it says")]
    Descriptors(usize),
    /// Cut off, for it was longer than any may be, or this process may have no more descriptors.
    #[error("a message that was cut off")]
    CutOff,
}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// An order as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Words {
    Listener { node: usize, namespace: u64 },
    Knockers { node: usize },
    Conditions { nodes: Vec<usize> },
    Policy { text: String, more: bool },
    Silence { nodes: Vec<usize> },
    Wake { nodes: Vec<usize> },
    Forget { nodes: Vec<usize> },
    Status,
}

impl Order {
    /// Reads an order.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<Self, Malformed> {
        let count = descriptors.len();
        let order = match serde_json::from_slice(bytes)? {
            Words::Listener { node, namespace } => {
                let listener = descriptors.pop().ok_or(Malformed::Descriptors(0))?;
                Self::Listener { node, namespace, listener }
            }
            Words::Knockers { node } => Self::Knockers { node, sockets: std::mem::take(&mut descriptors) },
            Words::Conditions { nodes } => Self::Conditions { nodes },
            Words::Policy { text, more } => Self::Policy { text, more },
            Words::Silence { nodes } => Self::Silence { nodes },
            Words::Wake { nodes } => Self::Wake { nodes },
            Words::Forget { nodes } => Self::Forget { nodes },
            Words::Status => Self::Status,
        };
        if descriptors.is_empty() { Ok(order) } else { Err(Malformed::Descriptors(count)) }
    }
}

impl<F: AsFd> Order<F> {
    fn words(&self) -> Words {
        match self {
            Self::Listener { node, namespace, .. } => Words::Listener { node: *node, namespace: *namespace },
            Self::Knockers { node, .. } => Words::Knockers { node: *node },
            Self::Conditions { nodes } => Words::Conditions { nodes: nodes.clone() },
            Self::Policy { text, more } => Words::Policy { text: text.clone(), more: *more },
            Self::Silence { nodes } => Words::Silence { nodes: nodes.clone() },
            Self::Wake { nodes } => Words::Wake { nodes: nodes.clone() },
            Self::Forget { nodes } => Words::Forget { nodes: nodes.clone() },
            Self::Status => Words::Status,
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Listener { listener, .. } => vec![listener.as_fd()],
            Self::Knockers { sockets, .. } => sockets.iter().map(AsFd::as_fd).collect(),
            _ => Vec::new(),
        }
    }
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Both ends of a new connection.
///
/// # Errors
/// As `socketpair(2)`.
pub fn pair() -> io::Result<(AnchorEnd, RouterEnd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(&ours, Timeout::Send, Some(PATIENCE))?;
    Ok((AnchorEnd(ours), RouterEnd(theirs)))
}

/// The anchor's end. Nothing here takes longer than a router that works needs: then it is an error, `WouldBlock`.
#[derive(Debug)]
pub struct AnchorEnd(OwnedFd);

impl AnchorEnd {
    /// Gives an order. Copies of descriptors go over.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EPIPE` where the router is gone.
    pub fn order<F: AsFd>(&self, order: &Order<F>) -> io::Result<()> {
        send(&self.0, &serde_json::to_vec(&order.words())?, &order.descriptors())
    }

    /// Gives an order that changes what is admitted, and waits until it holds. What is reported meanwhile is given to `other`.
    ///
    /// # Errors
    /// As [`order`](Self::order) and [`hear`](Self::hear); `BrokenPipe` where the router is gone.
    pub fn have_heeded(&self, order: &Order, mut other: impl FnMut(Report)) -> io::Result<()> {
        self.order(order)?;
        loop {
            match self.hear()?.ok_or(io::ErrorKind::BrokenPipe)? {
                Report::Heeded => return Ok(()),
                report => other(report),
            }
        }
    }

    /// Puts these rules in the place of those that there were, as [`have_heeded`](Self::have_heeded).
    ///
    /// # Errors
    /// As there.
    pub fn set_policy(&self, rules: &[Rule], mut other: impl FnMut(Report)) -> io::Result<()> {
        let whole = serde_json::to_string(rules)?;
        let mut text = whole.as_str();
        loop {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
            let order = Order::Policy { text: piece.to_owned(), more: !rest.is_empty() };
            if rest.is_empty() {
                return self.have_heeded(&order, &mut other);
            }
            self.order(&order)?;
            text = rest;
        }
    }

    /// Waits for a report. `None` where the router is gone.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `InvalidData` for what is no report.
    pub fn hear(&self) -> io::Result<Option<Report>> {
        Ok(receive(&self.0)?.map(|(bytes, _)| Report::read(&bytes)).transpose()?)
    }

    /// Asks for the status, and waits for it: a JSON document. What is reported meanwhile is given to `other`.
    ///
    /// # Errors
    /// As [`order`](Self::order) and [`hear`](Self::hear); `BrokenPipe` where the router is gone.
    pub fn status(&self, mut other: impl FnMut(Report)) -> io::Result<String> {
        self.order::<OwnedFd>(&Order::Status)?;
        let mut whole = String::new();
        while whole.len() < WHOLE {
            match self.hear()?.ok_or(io::ErrorKind::BrokenPipe)? {
                Report::Status { text, more } => {
                    whole.push_str(&text);
                    if !more {
                        return Ok(whole);
                    }
                }
                report => other(report),
            }
        }
        Err(Malformed::CutOff.into())
    }
}

impl AsFd for AnchorEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The router's end. Several threads may report, while one hears orders.
#[derive(Debug)]
pub struct RouterEnd(OwnedFd);

impl RouterEnd {
    /// Waits for an order. `None` where the anchor is gone.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `InvalidData` for what is no order.
    pub fn hear(&self) -> io::Result<Option<Order>> {
        Ok(receive(&self.0)?.map(|(bytes, descriptors)| Order::read(&bytes, descriptors)).transpose()?)
    }

    /// Reports.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EPIPE` where the anchor is gone.
    pub fn report(&self, report: &Report) -> io::Result<()> {
        send(&self.0, &serde_json::to_vec(report)?, &[])
    }

    /// Answers [`Order::Status`] with a JSON document of any length.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn status(&self, mut text: &str) -> io::Result<()> {
        loop {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
            self.report(&Report::Status { text: piece.to_owned(), more: !rest.is_empty() })?;
            if rest.is_empty() {
                return Ok(());
            }
            text = rest;
        }
    }
}

impl From<OwnedFd> for RouterEnd {
    /// Takes over an end that came from elsewhere: what is on it is checked as it comes.
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for RouterEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.len() > LONGEST || with.len() > MOST {
        return Err(Errno::MSGSIZE.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(Errno::MSGSIZE.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A message whole. `None` where the other side is gone.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            // That the other side ended without having read all is told first, and once; what it said last comes after
            // (`__skb_try_recv_datagram`, `net/core/datagram.c`).
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Malformed::CutOff.into());
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptors)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("there").into()
    }

    #[test]
    fn orders_arrive_with_their_descriptors() {
        let (anchor, router) = pair().expect("a pair");
        let null = null();
        anchor.order(&Order::Listener { node: 7, namespace: 8, listener: null.as_fd() }).expect("sent");
        anchor.order(&Order::Knockers { node: 7, sockets: vec![null.as_fd(); MOST] }).expect("sent");
        anchor.order::<OwnedFd>(&Order::Conditions { nodes: (0..10_000).collect() }).expect("sent");
        let hear = || router.hear().expect("heard").expect("something");
        assert!(matches!(hear(), Order::Listener { node: 7, namespace: 8, .. }));
        assert!(matches!(hear(), Order::Knockers { node: 7, sockets } if sockets.len() == MOST));
        assert!(matches!(hear(), Order::Conditions { nodes } if nodes.len() == 10_000));
        drop(anchor);
        assert!(router.hear().expect("heard").is_none());
    }

    #[test]
    fn a_status_of_any_length_comes_whole_and_nothing_else_is_lost() {
        let (anchor, router) = pair().expect("a pair");
        let said = "\"ü\u{1}".repeat(100_000);
        let expected = said.clone();
        let answering = std::thread::spawn(move || {
            assert!(matches!(router.hear().expect("heard"), Some(Order::Status)));
            router.report(&Report::MoreKnockers { node: 3 }).expect("said");
            router.status(&said).expect("said");
        });
        let mut aside = Vec::new();
        assert_eq!(anchor.status(|report| aside.push(report)).expect("answered"), expected);
        assert_eq!(aside, [Report::MoreKnockers { node: 3 }]);
        answering.join().expect("ended");
    }

    #[test]
    fn a_listener_needs_a_descriptor_and_others_take_none() {
        let read = |text: &str, count: usize| Order::read(text.as_bytes(), (0..count).map(|_| null()).collect());
        assert!(matches!(read(r#"{"listener":{"node":1,"namespace":2}}"#, 0), Err(Malformed::Descriptors(0))));
        assert!(matches!(read(r#"{"listener":{"node":1,"namespace":2}}"#, 2), Err(Malformed::Descriptors(2))));
        assert!(matches!(read(r#""status""#, 1), Err(Malformed::Descriptors(1))));
        assert!(read(r#"{"listener":{"node":-1,"namespace":2}}"#, 1).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes: Vec<u8>) {
            let _ = Order::read(&bytes, Vec::new());
            let _ = Report::read(&bytes);
        }
    }
}

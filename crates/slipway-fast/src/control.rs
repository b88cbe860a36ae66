//! The messages between a lab's anchor and a host's router: JSON over a socket pair that keeps messages whole, with descriptors
//! beside them (`unix(7)`, `SCM_RIGHTS`).
//!
//! The anchor sends orders, and the router reports. The anchor waits for the router when it asks for a status, or changes
//! what is admitted. Each side accepts only these messages, of the right length, with the right number of descriptors.

mod ends;
mod wire;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

pub use self::ends::{AnchorEnd, RouterEnd, pair};
use slipway_lab::id::NodeId;

use crate::journal::Unaccepted;

/// An order from the anchor.
#[derive(Debug)]
pub enum Order<F = OwnedFd> {
    /// Serve the programs of a node behind this listener, from the next [`Serve`](Self::Serve) on.
    Listener {
        /// Index of the node in the lab.
        node: NodeId,
        /// The number of this tree of programs, for every router the same.
        tree: u64,
        /// The PID namespace that its programs are in, by its inode.
        namespace: u64,
        /// The listener of the filter that they run under.
        listener: F,
    },
    /// Serve the programs behind all listeners.
    Serve,
    /// A connection that the router before this one had in hand.
    Unaccepted {
        /// The connection.
        unaccepted: Unaccepted,
        /// The server's end, and the wake-up socket that announces the connection, if any.
        sockets: Vec<F>,
    },
    /// The descriptor of an object that the router before this one had.
    Recorded {
        /// The number of its record ([`crate::records`]).
        record: usize,
        /// The descriptor.
        descriptor: F,
    },
    /// Wake-up sockets: TCP sockets made in the node's network namespace.
    WakeupSockets {
        /// Index of the node in the lab.
        node: NodeId,
        /// Whether the sockets are of IPv6.
        ipv6: bool,
        /// The sockets, all of one request.
        sockets: Vec<F>,
    },
    /// The complete set of nodes whose links are under conditions. Their connections stay on the container network. The
    /// router answers with [`Report::Heeded`].
    Conditions {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// The rules that hold from now on, as JSON, or a piece of that. The router answers the last piece with
    /// [`Report::Heeded`].
    Policy {
        /// The piece.
        text: String,
        /// Whether another piece follows.
        more: bool,
    },
    /// These nodes end silently: clients that wait for their programs do not notice. The router answers with
    /// [`Report::Heeded`].
    Silence {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// These nodes are about to be frozen: their programs get no answers until [`Release`](Self::Release), which comes within
    /// [`LONGEST`](crate::gate::LONGEST). The router answers with [`Report::Heeded`].
    Hold {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// Programs of these nodes get answers again.
    Release {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// These nodes start anew: connections that waited for them end.
    Wake {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// These nodes have ended.
    Forget {
        /// Indices in the lab.
        nodes: Vec<NodeId>,
    },
    /// Report the status.
    Status,
}

/// A report from a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The router runs, and is confined.
    Ready,
    /// The router ends, for this reason.
    Failed(String),
    /// The order holds. If it changed what is admitted, the router hands out nothing else any more, except what it ends at
    /// once.
    Heeded,
    /// All wake-up sockets of a node and family are in use.
    MoreWakeupSockets {
        /// Index of the node in the lab.
        node: NodeId,
        /// Whether the sockets are of IPv6.
        ipv6: bool,
    },
    /// The status: a JSON document, or a piece of it.
    Status {
        /// The piece.
        text: String,
        /// Whether another piece follows.
        more: bool,
    },
}

/// The error of bytes that are no such message.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// The bytes are none of these messages.
    #[error("no message of this protocol: {0}")]
    Words(#[from] serde_json::Error),
    /// The message has too few descriptors, or too many.
    #[error("a message with {0} descriptors, which is not what it says")]
    Descriptors(usize),
    /// The message was cut off: it is too long, or this process may have no more descriptors.
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
    Listener { node: NodeId, tree: u64, namespace: u64 },
    Serve,
    Unaccepted(Unaccepted),
    Recorded { record: usize },
    WakeupSockets { node: NodeId, ipv6: bool },
    Conditions { nodes: Vec<NodeId> },
    Policy { text: String, more: bool },
    Silence { nodes: Vec<NodeId> },
    Hold { nodes: Vec<NodeId> },
    Release { nodes: Vec<NodeId> },
    Wake { nodes: Vec<NodeId> },
    Forget { nodes: Vec<NodeId> },
    Status,
}

impl Order {
    /// Reads an order.
    ///
    /// # Errors
    /// When the bytes are no such message.
    pub fn read(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<Self, Malformed> {
        let count = descriptors.len();
        let order = match serde_json::from_slice(bytes)? {
            Words::Listener { node, tree, namespace } => {
                let listener = descriptors.pop().ok_or(Malformed::Descriptors(0))?;
                Self::Listener { node, tree, namespace, listener }
            }
            Words::Serve => Self::Serve,
            Words::Unaccepted(unaccepted) => Self::Unaccepted { unaccepted, sockets: std::mem::take(&mut descriptors) },
            Words::Recorded { record } => {
                Self::Recorded { record, descriptor: descriptors.pop().ok_or(Malformed::Descriptors(0))? }
            }
            Words::WakeupSockets { node, ipv6 } => {
                Self::WakeupSockets { node, ipv6, sockets: std::mem::take(&mut descriptors) }
            }
            Words::Conditions { nodes } => Self::Conditions { nodes },
            Words::Policy { text, more } => Self::Policy { text, more },
            Words::Silence { nodes } => Self::Silence { nodes },
            Words::Hold { nodes } => Self::Hold { nodes },
            Words::Release { nodes } => Self::Release { nodes },
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
            Self::Listener { node, tree, namespace, .. } => {
                Words::Listener { node: *node, tree: *tree, namespace: *namespace }
            }
            Self::Serve => Words::Serve,
            Self::Unaccepted { unaccepted, .. } => Words::Unaccepted(*unaccepted),
            Self::Recorded { record, .. } => Words::Recorded { record: *record },
            Self::WakeupSockets { node, ipv6, .. } => Words::WakeupSockets { node: *node, ipv6: *ipv6 },
            Self::Conditions { nodes } => Words::Conditions { nodes: nodes.clone() },
            Self::Policy { text, more } => Words::Policy { text: text.clone(), more: *more },
            Self::Silence { nodes } => Words::Silence { nodes: nodes.clone() },
            Self::Hold { nodes } => Words::Hold { nodes: nodes.clone() },
            Self::Release { nodes } => Words::Release { nodes: nodes.clone() },
            Self::Wake { nodes } => Words::Wake { nodes: nodes.clone() },
            Self::Forget { nodes } => Words::Forget { nodes: nodes.clone() },
            Self::Status => Words::Status,
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Listener { listener: one, .. } | Self::Recorded { descriptor: one, .. } => vec![one.as_fd()],
            Self::Unaccepted { sockets, .. } | Self::WakeupSockets { sockets, .. } => {
                sockets.iter().map(AsFd::as_fd).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// When the bytes are no such message.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::wire::MOST;
    use super::*;
    use crate::journal::HandoffCall;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("there").into()
    }

    #[test]
    fn orders_arrive_with_their_descriptors() {
        let (anchor, router) = pair().expect("a pair");
        let null = null();
        anchor
            .order(&Order::Listener { node: NodeId(7), tree: 9, namespace: 8, listener: null.as_fd() })
            .expect("sent");
        anchor
            .order(&Order::WakeupSockets { node: NodeId(7), ipv6: true, sockets: vec![null.as_fd(); MOST] })
            .expect("sent");
        let [client, server] = ["10.64.0.1:1", "10.64.0.2:2"].map(|address| address.parse().expect("an address"));
        let handoff =
            Some(HandoffCall { tree: 1, call: u64::MAX, tid: 2, listener: 3, reported: true, interrupted: Some(4) });
        let in_hand = Unaccepted { node: NodeId(7), path: None, flow: u64::MAX, client, server, handoff };
        anchor.order(&Order::Unaccepted { unaccepted: in_hand, sockets: vec![null.as_fd(); 2] }).expect("sent");
        anchor.order(&Order::Recorded { record: 5, descriptor: null.as_fd() }).expect("sent");
        anchor.order::<OwnedFd>(&Order::Conditions { nodes: (0..10_000).map(NodeId).collect() }).expect("sent");
        let hear = || router.hear().expect("heard").expect("something");
        assert!(matches!(hear(), Order::Listener { node: NodeId(7), tree: 9, namespace: 8, .. }));
        assert!(
            matches!(hear(), Order::WakeupSockets { node: NodeId(7), ipv6: true, sockets } if sockets.len() == MOST)
        );
        assert!(
            matches!(hear(), Order::Unaccepted { unaccepted, sockets } if unaccepted == in_hand && sockets.len() == 2)
        );
        assert!(matches!(hear(), Order::Recorded { record: 5, .. }));
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
            router.report(&Report::MoreWakeupSockets { node: NodeId(3), ipv6: false }).expect("said");
            router.status(&said).expect("said");
        });
        let mut aside = Vec::new();
        assert_eq!(anchor.status(|report| aside.push(report)).expect("answered"), expected);
        assert_eq!(aside, [Report::MoreWakeupSockets { node: NodeId(3), ipv6: false }]);
        answering.join().expect("ended");
    }

    #[test]
    fn a_listener_needs_a_descriptor_and_others_take_none() {
        let read = |text: &str, count: usize| Order::read(text.as_bytes(), (0..count).map(|_| null()).collect());
        assert!(matches!(read(r#"{"listener":{"node":1,"tree":3,"namespace":2}}"#, 0), Err(Malformed::Descriptors(0))));
        assert!(matches!(read(r#"{"listener":{"node":1,"tree":3,"namespace":2}}"#, 2), Err(Malformed::Descriptors(2))));
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

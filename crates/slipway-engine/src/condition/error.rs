//! Errors of links.

use std::io;

use slipway_lab::change::Problem;
use slipway_lab::model::Lab;
use slipway_sys::bpf::LoadError;
use slipway_sys::netlink::NetlinkError;
use slipway_wire::WireError;

use super::choose::Unable;
use super::gate::GROUPS;
use super::live::Place;

/// A change of links that cannot be, or failed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The lab has no such node or interface.
    #[error("find an interface of that number: the lab has none")]
    UnknownInterface,
    /// The node has its host's links.
    #[error("change links of {0}: on driver host it has none of its own\nHint: choose another driver")]
    HostDriver(String),
    /// A partition has more groups than a filter can tell apart.
    #[error("part the nodes: {0} groups are too many\nHint: at most {most} are possible", most = GROUPS)]
    TooManyGroups(usize),
    /// A partition names this node twice.
    #[error("part the nodes: {0} is in two groups\nHint: name each node once")]
    InTwoGroups(String),
    /// So many partitions hold already, and no more can.
    #[error("part the nodes: {0} partitions hold already\nHint: `slipway join` ends them")]
    TooManyPartitions(usize),
    /// The change and the conditions in force cannot hold together.
    #[error("set conditions of {interface}: {}\nHint: {}", .source.message, .source.help)]
    Contradiction {
        /// The interface, as NODE:INTERFACE.
        interface: String,
        /// The condition to blame.
        source: Problem,
    },
    /// No mechanism of this machine makes the conditions.
    #[error("set conditions of {interface}: {source}")]
    Unable {
        /// The interface.
        interface: String,
        /// The missing mechanism.
        source: Unable,
    },
    /// Work at one interface failed.
    #[error("{doing} {interface}: {source}")]
    At {
        /// The failed action, as in "prepare".
        doing: &'static str,
        /// The interface.
        interface: String,
        /// The error of the action.
        source: Box<Self>,
    },
    /// A system call.
    #[error("{doing}: {source}")]
    System {
        /// The failed action.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A request to the kernel about devices.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A BPF program of a filter was not loaded.
    #[error(transparent)]
    Program(#[from] LoadError),
    /// User-space netem failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A change failed, and so did taking it back.
    #[error(
        "{failure}\nand to put back what was: {undo}\nHint: these links are not what `slipway inspect` says; `slipway restore` makes them anew"
    )]
    Undo {
        /// The error of the change.
        failure: Box<Self>,
        /// The error of taking it back.
        undo: Box<Self>,
    },
}

impl LinkError {
    pub(super) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing: doing.into(), source }
    }

    pub(super) fn at(doing: &'static str, lab: &Lab, place: Place) -> impl FnOnce(Self) -> Self {
        move |source| Self::At { doing, interface: lab.port_name(place), source: Box::new(source) }
    }
}

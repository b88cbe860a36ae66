//! The records of the manager: what each kind of object is written down as.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;

use super::done::Done;
use super::identifier::{Caller, Identifier};
use crate::rdma_wire::{Event, Message, Offer};

/// An object as it is written down. The next router takes them up in the order of these kinds: each refers to those before it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Saved<'a> {
    /// A channel, with the router's end of it. Others refer to it by its inode number.
    Channel { inode: u64, node: NodeId, done: Cow<'a, Done> },
    /// A link, with the router's end of it.
    Link {
        number: u64,
        node: NodeId,
        id: Cow<'a, Result<u32, Caller>>,
        unsent: Cow<'a, Option<Message>>,
        is_over: bool,
    },
    /// An identifier, by its number.
    Identifier { id: u32, one: Cow<'a, Identifier> },
    /// A request that is held, of an identifier.
    Request { id: u32, offer: Cow<'a, Offer> },
    /// An event that waits in a channel, or is being given to a call: its tree of programs and its number.
    Event { number: u64, channel: u64, counted: u32, event: Cow<'a, Event>, given: Option<(u64, u64)> },
}

impl Saved<'_> {
    /// The place among all, and among those of its kind.
    pub(super) fn order(&self) -> (u8, u64) {
        match self {
            Self::Channel { .. } => (0, 0),
            Self::Link { .. } => (1, 0),
            Self::Identifier { .. } => (2, 0),
            Self::Request { .. } => (3, 0),
            Self::Event { number, .. } => (4, *number),
        }
    }
}

impl<'a> Saved<'a> {
    pub(super) fn identifier(id: u32, one: &'a Identifier) -> Self {
        Self::Identifier { id, one: Cow::Borrowed(one) }
    }
}

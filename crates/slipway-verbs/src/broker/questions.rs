//! Messages between brokers of different hosts. Whoever runs a broker carries them.

use rustix::io::Errno;

use crate::wire::{Gid, Transport};

/// A queue pair of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// An address of its node.
    pub gid: Gid,
    /// Its number.
    pub number: u32,
}

/// A question to another host's broker: may these queue pairs be joined?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Transport of both.
    pub transport: Transport,
    /// The queue pair whose program asks.
    pub from: Name,
    /// The other one.
    pub to: Name,
}

/// News of a queue pair for another host's broker, or from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: Gid,
    /// The queue pair.
    pub member: Name,
    /// Whether it is a member from now on, or no more.
    pub is_member: bool,
}

/// A message to another host's broker, which has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// May these queue pairs be joined? The answer is their stream.
    Join(Join),
    /// A queue pair is a member of a group, or no more. Any answer says that this was heard.
    Group(Membership),
    /// This broker knows no members of the other host yet: it may follow one that did. The other broker forgets the members of this
    /// host, and tells of its own. Any answer says that this was heard.
    Groups,
}

/// Sends a message to the broker of a host. Its answer comes by [`answered`](super::Broker::answered), with this ticket.
pub type Way = Box<dyn FnMut(u32, u64, &Question) -> Result<(), Errno> + Send>;

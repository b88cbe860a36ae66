//! Requests to the anchor that are not waited for: what it does meanwhile delays no event.

use std::os::fd::{AsFd, BorrowedFd};

use serde::de::DeserializeOwned;

use slipway_lab::id::NodeId;

use super::error::ActError;
use crate::condition::LinkReport;
use crate::protocol::{CallError, Ended, Pending, Reply, Served, State};

/// A request that had to wait longer than this says for what, nanoseconds.
const WORTH_SAYING: u64 = 1_000_000;

/// A request that was made, and why. Readable once it is answered.
#[derive(Debug)]
pub(super) enum Asked {
    /// For an event that starts or ends nodes.
    Nodes(usize, Pending<Ended>),
    /// For an event that changes links.
    Change(usize, Pending<Ended>),
    /// For an event that freezes nodes. The programs of `stopped` go on where the answer is that they cannot be frozen.
    Freeze { number: usize, stopped: Vec<NodeId>, pending: Pending<Ended> },
    /// For an event that thaws nodes, whose programs go on afterwards.
    Thaw { number: usize, nodes: Vec<NodeId>, pending: Pending<Ended> },
    /// To know what became of a node that has ended.
    Look(NodeId, Pending<State>),
    /// To forget a change that cannot be felt any more.
    Forget(Pending<Ended>),
    /// To know how late the wire is.
    Wire(Pending<LinkReport>),
}

/// What came of a request.
#[derive(Debug)]
pub(super) struct Answered<T> {
    pub(super) result: Result<T, ActError>,
    /// What it had to wait for, where that took long.
    pub(super) waited: Option<String>,
}

/// The answer to a request, waited for.
pub(super) fn answer<T: DeserializeOwned>(pending: Pending<T>) -> Answered<T> {
    let since = pending.since;
    match pending.wait() {
        Ok(Reply { outcome, before }) => Answered {
            result: outcome.map_err(ActError::from),
            waited: before.and_then(|before| waited(since, &before)),
        },
        Err(CallError::Refused(error)) => Answered { result: Err(error.into()), waited: None },
        Err(CallError::Unreachable(error)) => Answered { result: Err(ActError::Hear(error)), waited: None },
    }
}

/// What to say of a request made at `since`, before which the anchor served this.
fn waited(since: u64, before: &Served) -> Option<String> {
    let waited = before.until.checked_sub(since).filter(|waited| *waited > WORTH_SAYING)?;
    Some(format!("waited {} ms for the lab's anchor, which was {}", waited / 1_000_000, before.work))
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Nodes(_, pending)
            | Self::Change(_, pending)
            | Self::Freeze { pending, .. }
            | Self::Thaw { pending, .. }
            | Self::Forget(pending) => pending.as_fd(),
            Self::Look(_, pending) => pending.as_fd(),
            Self::Wire(pending) => pending.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_that_was_one_is_told() {
        let before = Served { work: "starting nodes".to_owned(), until: 30_000_000 };
        let told = waited(7_000_000, &before);
        assert_eq!(told.as_deref(), Some("waited 23 ms for the lab's anchor, which was starting nodes"));
        assert_eq!((waited(29_500_000, &before), waited(31_000_000, &before)), (None, None));
    }
}

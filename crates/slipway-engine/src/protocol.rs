//! The control protocol: how a command, a scenario or another program gives orders to the processes of a running lab.
//!
//! The client sends a [`Hello`] and one request, the server a [`Hello`] and one reply. Each is a JSON text in a [frame](Frames). Either
//! side refuses a peer whose version differs. A descriptor may travel beside the request or the reply (`unix(7)`, `SCM_RIGHTS`).
//!
//! An operation is a type that names its service and the type of its reply ([`Operation`]); errors are data with a stable [`Code`].
//! An order means the same whoever gives it. ADR 0015 says why.

mod client;
mod error;
mod frame;
mod hello;
mod log;
mod operation;
mod server;
mod state;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use self::client::{CallError, Pending, ask, ask_for_descriptor, begin, give_descriptor};
pub use self::error::{Code, Error};
pub use self::frame::Frames;
pub use self::hello::{Hello, VERSION};
pub use self::log::LogPiece;
pub use self::operation::{
    Alone, Change, Descriptor, End, Ended, FollowLog, Halt, HearProgram, HoldAnswers, JobEnded, Keep, Lift, Operation,
    Pause, PlayerRequest, Prepare, ReadFast, ReadGraph, ReadLinks, ReadLog, ReadPolicy, ReadSockets, ReadState,
    Relocate, Request, RestoreLinks, Resume, SetPolicy, Settle,
};
pub(crate) use self::server::{Answer, Interest, Responder, Server};
pub use self::state::State;

/// Largest request, bytes: rules and links of ten thousand nodes fit.
pub const LARGEST_REQUEST: usize = 64 << 20;
/// Largest reply, bytes: the conditions of each pair of a thousand nodes fit.
pub const LARGEST_REPLY: usize = 512 << 20;

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply<T> {
    /// How it went.
    pub outcome: Result<T, Error>,
    /// The request that the server served right before, for which this one may have waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Served>,
}

/// A request that was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The work, as in "starting nodes".
    pub work: String,
    /// When it ended, nanoseconds of `CLOCK_MONOTONIC`.
    pub until: u64,
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which is never negative and the same for all processes.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Reads a request, as a server does.
///
/// # Errors
/// [`Code::Malformed`] where it is none.
pub fn parse<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::new(Code::Malformed, format!("read a message: {error}")))
}

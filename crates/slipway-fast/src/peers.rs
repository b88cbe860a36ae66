//! Connections to programs on other hosts: a TCP connection between two routers, which becomes the programs' own.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::channel::{ChannelError, Open, Pool, Refusal};
use crate::reason::Reason;
use crate::status::Peer;

/// Connections kept ready for each other host.
pub const WARM: usize = 16;

/// How long another router may take. It answers at once; what takes longer is the network, and then the overlay, which asks
/// again and again, is the better place to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// The routers of other hosts.
#[derive(Debug)]
pub struct Peers(Option<Pool>);

/// What becomes of a connection that a program asks for.
#[derive(Debug)]
pub enum Outcome {
    /// The client's end of the connection.
    Accepted(OwnedFd),
    /// As the overlay would refuse it.
    Refused,
    /// The container network carries it.
    Native(Reason),
}

impl Peers {
    /// Those that the pool keeps connections to; none in a lab of one host.
    #[must_use]
    pub fn new(pool: Option<Pool>) -> Self {
        Self(pool)
    }

    /// Asks the router of a host for a server of its.
    #[must_use]
    pub fn open(&self, host: usize, flow: u64, client: SocketAddr, server: SocketAddr) -> Outcome {
        let (Some(pool), Ok(host)) = (&self.0, u32::try_from(host)) else { return Outcome::Native(Reason::NoRouter) };
        match pool.open(host, &Open { flow, server, client }, PATIENCE) {
            Ok(stream) => Outcome::Accepted(stream.into()),
            Err(ChannelError::Refused(Refusal::NobodyListens | Refusal::Limit)) => Outcome::Refused,
            Err(ChannelError::Refused(Refusal::Policy)) => Outcome::Native(Reason::Policy),
            Err(ChannelError::Refused(Refusal::Backlog)) => Outcome::Native(Reason::Backlog),
            Err(ChannelError::Refused(Refusal::Options)) => Outcome::Native(Reason::Options),
            Err(ChannelError::Refused(Refusal::NotServed)) => Outcome::Native(Reason::Conditions),
            Err(ChannelError::Refused(Refusal::Crowded)) => Outcome::Native(Reason::Crowded),
            Err(ChannelError::Refused(_)) => Outcome::Native(Reason::Exhausted),
            Err(_) => Outcome::Native(Reason::NoRouter),
        }
    }

    /// How it stands with each.
    #[must_use]
    pub fn status(&self) -> Vec<Peer> {
        self.0.as_ref().map(Pool::status).unwrap_or_default()
    }
}

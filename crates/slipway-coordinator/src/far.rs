//! Workers on other machines: their calls come over TLS, and the coordinator passes them on to the workers' own sockets.
//!
//! The coordinator listens at a [`Gate`], and writes an [`Invitation`] into the campaign's folder, which all machines see. A
//! machine [joins](join()) for one worker. Its first connection lasts as long as the worker; each further one carries calls.

mod gate;
pub mod hello;
mod invitation;
mod join;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

pub use gate::{Gate, GateError};
pub(crate) use gate::{News, Seats};
pub use invitation::{Invitation, InvitationError};
pub use join::{End, JoinError, Joined, join};

/// Longest time for a handshake and the words after it.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Silence of a machine after which the kernel ends a connection. A coordinator that is stopped is not silent: its kernel
/// answers.
const SILENCE: Duration = Duration::from_secs(30);

/// Has the kernel find out whether the machine at the other end is still there.
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 6)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

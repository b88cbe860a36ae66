//! TCP connections within a host, over its own loopback: for connections with a rate, and for exact networks.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname, listen, socket_with,
};

/// Longest wait. Loopback answers at once, unless other connections fill the queue.
const PATIENCE: Duration = Duration::from_secs(1);

/// Both ends of a new connection; the first has connected. Its listener is gone. `number` chooses the listener's address,
/// so that ended connections leave its port free (`TIME_WAIT`).
///
/// # Errors
/// As `socket(2)`, `bind(2)` and `connect(2)`; no loopback in this network namespace is one.
pub(crate) fn pair(number: u64) -> io::Result<(OwnedFd, OwnedFd)> {
    let stream = || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let [low, middle, high, ..] = number.to_le_bytes();
    let listener = stream()?;
    // Skips the first and the last address of 127.0.0.0/8, the network's and the broadcast address.
    bind(&listener, &SocketAddr::from((Ipv4Addr::new(127, high.clamp(1, 254), middle, low), 0)))?;
    listen(&listener, 1)?;
    let client = stream()?;
    set_socket_timeout(&client, Timeout::Send, Some(PATIENCE))?;
    connect(&client, &getsockname(&listener)?)?;
    set_socket_timeout(&client, Timeout::Send, None)?;
    let own = getsockname(&client)?;
    loop {
        // Other processes of the host could connect too; this closes their connections.
        let (server, peer) = acceptfrom_with(&listener, SocketFlags::CLOEXEC)?;
        if peer == Some(own.clone()) {
            return Ok((client, server));
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{RecvFlags, SendFlags, recv, send};

    use super::*;

    #[test]
    fn what_one_end_says_the_other_hears() {
        for number in [0, 255, 256, u64::MAX, 0x1234_5678] {
            let (client, server) = pair(number).expect("loopback is up");
            send(&client, b"a", SendFlags::empty()).expect("sent");
            let mut heard = [0];
            recv(&server, &mut heard, RecvFlags::empty()).expect("heard");
            assert_eq!(&heard, b"a");
            let (own, peer) = (getsockname(&client), rustix::net::getpeername(&server));
            assert_eq!(own.ok(), peer.ok().flatten());
        }
    }
}

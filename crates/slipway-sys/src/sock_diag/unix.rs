//! Sockets of the family `AF_UNIX` (`include/uapi/linux/unix_diag.h`).

use std::io;

use super::{ask, attribute, cookie, number};

/// `UDIAG_SHOW_NAME`, `UDIAG_SHOW_PEER`, and the attributes that show them.
const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 4;
const NAME: u16 = 0;
const PEER: u16 = 2;
/// `UNIX_DIAG_SHUTDOWN`, always shown; both ways (`SHUTDOWN_MASK`, `include/net/sock.h`).
const SHUTDOWN: u16 = 6;
const BOTH_WAYS: u8 = 3;

/// `struct unix_diag_msg`.
const MESSAGE: usize = 16;

/// A socket of the family `AF_UNIX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixSocket {
    /// The low half of its inode's number: what `/proc/PID/fd` names as `socket:[…]`.
    pub inode: u32,
    /// The cookie, which is unique since the machine's start (`SO_COOKIE`).
    pub cookie: u64,
    /// Of the socket that it is connected to; `None` where there is none or that has been closed.
    pub peer_inode: Option<u32>,
    /// As TCP's are numbered (`include/net/tcp_states.h`): 1 connected, 7 not, 10 listening.
    pub state: u8,
    /// It has an address, or its listener has: it is not of a `socketpair(2)`.
    pub named: bool,
    /// Nothing can be sent or received any more (`shutdown(2)`, both ways), but for what is in its queue.
    pub shut: bool,
}

/// All Unix sockets of the network namespace.
///
/// # Errors
/// `ENOENT` where the kernel was built without `CONFIG_UNIX_DIAG`.
pub fn unix_sockets() -> io::Result<Vec<UnixSocket>> {
    let mut request = vec![libc::AF_UNIX.to_ne_bytes()[0], 0, 0, 0];
    // In any state, of any inode and cookie.
    for number in [u32::MAX, 0, SHOW_NAME | SHOW_PEER, 0, 0] {
        request.extend(number.to_ne_bytes());
    }
    let mut sockets = Vec::new();
    ask(super::BY_FAMILY, true, &request, |message| sockets.extend(parse(message)))?;
    Ok(sockets)
}

fn parse(message: &[u8]) -> Option<UnixSocket> {
    let attributes = message.get(MESSAGE..)?;
    let peer = attribute(attributes, PEER);
    Some(UnixSocket {
        inode: number(message, 4)?,
        cookie: cookie(message, 8)?,
        peer_inode: peer.and_then(|peer| number(&peer, 0)).filter(|&inode| inode != 0),
        state: *message.get(2)?,
        named: attribute(attributes, NAME).is_some(),
        shut: attribute(attributes, SHUTDOWN).is_some_and(|how| how.first() == Some(&BOTH_WAYS)),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;
    use rustix::net::sockopt::socket_cookie;

    use super::*;

    fn inode(socket: BorrowedFd<'_>) -> u32 {
        let number = rustix::fs::fstat(socket).expect("asks").st_ino;
        u32::try_from(number & u64::from(u32::MAX)).expect("the low half")
    }

    fn seen(socket: impl AsFd) -> UnixSocket {
        let cookie = socket_cookie(&socket).expect("asks");
        let sockets = unix_sockets().expect("any kernel with unix_diag");
        *sockets.iter().find(|socket| socket.cookie == cookie).expect("it is open")
    }

    #[test]
    fn a_pair_is_seen_as_one() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (seen_one, seen_other) = (seen(&one), seen(&other));
        assert_eq!((seen_one.inode, seen_one.state), (inode(one.as_fd()), 1));
        assert_eq!(seen_one.peer_inode, Some(seen_other.inode));
        assert_eq!(seen_other.peer_inode, Some(seen_one.inode));
        drop(other);
        assert_eq!(seen(&one).peer_inode, None);
    }

    #[test]
    fn a_pair_is_shut_from_either_end() {
        let (one, other) = UnixStream::pair().expect("a pair");
        assert!(!seen(&one).shut && !seen(&other).shut);
        one.shutdown(std::net::Shutdown::Both).expect("shuts");
        assert!(seen(&one).shut && seen(&other).shut);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(message: Vec<u8>) {
            let _ = parse(&message);
        }
    }

    #[test]
    fn a_message_that_is_short_is_none() {
        let mut message = vec![1; MESSAGE];
        assert!(parse(&message).is_some());
        message.pop();
        assert_eq!(parse(&message), None);
    }
}

//! Connections within a host: pairs of `unix(7)` sockets.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket, socketpair};
use slipway_sys::sockopt::{self, Name};

use crate::filter::SO_PASSRIGHTS;

const PASSRIGHTS: Name = Name { level: libc::SOL_SOCKET, name: SO_PASSRIGHTS };

/// Beyond `net.core.wmem_max` (`socket(7)`).
const SO_SNDBUFFORCE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUFFORCE };

/// Of an end of a pair, bytes; the kernel doubles it. A writer and a reader on two processors that wait in `select`, as those of
/// iperf3 do, pass 34 Gbit/s on instead of the 17 with the usual 208 KiB; on one, 72 instead of 46. More is little more.
const SEND_BUFFER: i32 = 300 * 1024;

/// Whether this kernel has what a pair needs to be fit for nodes: that no descriptors pass through it, from Linux 6.16 on.
#[must_use]
pub fn is_there() -> bool {
    let end = socket(AddressFamily::UNIX, SocketType::STREAM, None);
    end.is_ok_and(|end| sockopt::int(&end, PASSRIGHTS).is_ok())
}

/// Both ends of a new pair, fit for nodes: no descriptors pass through it, and each end holds what a program writes at a time and
/// as much again.
///
/// # Errors
/// As `socketpair(2)`; `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for end in [&one, &other] {
        sockopt::set(end, PASSRIGHTS, &0_i32.to_ne_bytes())?;
        // A pair says that it can be written to when three quarters of it are empty (`unix_writable`, `net/unix/af_unix.c`). With the
        // usual size the reader waits by then, and each of the two for the other in turn.
        sockopt::set(end, SO_SNDBUFFORCE, &SEND_BUFFER.to_ne_bytes())?;
    }
    Ok((one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_pair_has_room_beyond_the_machines_limit_and_passes_no_descriptors() {
        assert!(is_there());
        let (one, other) = pair().expect("these tests need root and Linux 6.16");
        let size = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUF };
        for end in [one, other] {
            assert_eq!(sockopt::int(&end, size).expect("read"), 2 * SEND_BUFFER);
            assert_eq!(sockopt::int(&end, PASSRIGHTS).expect("read"), 0);
        }
    }
}

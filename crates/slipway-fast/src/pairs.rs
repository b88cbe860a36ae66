//! Connections within a host: pairs of `unix(7)` sockets.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket, socketpair};
use slipway_lab::id::NodeId;
use slipway_sys::sockopt::{self, Name};
use slipway_verbs::untrusted::SO_PASSRIGHTS;

use crate::sync::lock;

const PASSRIGHTS: Name = Name { level: libc::SOL_SOCKET, name: SO_PASSRIGHTS };

/// An option that sets buffers beyond `net.core.wmem_max` (`socket(7)`).
const SO_SNDBUFFORCE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUFFORCE };

/// Buffer of an end of a pair, bytes; the kernel doubles it. iperf3's writer and reader, which wait in `select`, reach 34
/// Gbit/s on two processors instead of 17 with the usual 208 KiB. On one, they reach 72 instead of 46. A larger buffer
/// gains little.
const SEND_BUFFER: i32 = 300 * 1024;

/// Pairs a second that get these buffers; later ones have the usual. Many full buffers exceed a processor's cache: 512
/// pairs then reach 35 Gbit/s together instead of 46. Each node that connects has an even part of this number.
const FEW: u32 = 64;
const AT_ONCE: Duration = Duration::from_secs(1);

/// Whether this kernel can stop pairs from passing descriptors, which nodes need: from Linux 6.16 on.
#[must_use]
pub fn are_supported() -> bool {
    let end = socket(AddressFamily::UNIX, SocketType::STREAM, None);
    end.is_ok_and(|end| sockopt::int(&end, PASSRIGHTS).is_ok())
}

/// Makes pairs.
#[derive(Debug)]
pub(crate) struct Pairs(Mutex<Rush>);

/// The number of pairs made, and since when.
#[derive(Debug)]
struct Rush {
    since: Instant,
    all: u32,
    /// Counts by the node that connects.
    made: HashMap<NodeId, u32>,
}

impl Default for Pairs {
    fn default() -> Self {
        Self(Mutex::new(Rush { since: Instant::now(), all: 0, made: HashMap::new() }))
    }
}

impl Pairs {
    /// Both ends of a new pair, which passes no descriptors. While there are few at once, each end holds twice the data
    /// that a program writes at a time.
    ///
    /// # Errors
    /// As `socketpair(2)`; `ENOPROTOOPT` before Linux 6.16.
    pub(crate) fn make(&self, node: NodeId) -> io::Result<(OwnedFd, OwnedFd)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let is_roomy = self.are_few(node);
        for end in [&one, &other] {
            sockopt::set(end, PASSRIGHTS, &0_i32.to_ne_bytes())?;
            // A pair is writable when three quarters of its buffer are empty (`unix_writable`, `net/unix/af_unix.c`). With
            // the usual size the reader waits by then, and each of the two waits for the other in turn.
            if is_roomy {
                sockopt::set(end, SO_SNDBUFFORCE, &SEND_BUFFER.to_ne_bytes())?;
            }
        }
        Ok((one, other))
    }

    /// Counts a new pair. The router does not learn when pairs end, so their rate shows how many there are.
    fn are_few(&self, node: NodeId) -> bool {
        let mut rush = lock(&self.0);
        if rush.since.elapsed() >= AT_ONCE {
            *rush = Rush { since: Instant::now(), all: 0, made: HashMap::new() };
        }
        rush.all += 1;
        let made = rush.made.entry(node).or_default();
        *made += 1;
        let made = *made;
        rush.all <= FEW || made as usize * rush.made.len() <= FEW as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUF };

    #[test]
    fn an_end_of_a_pair_has_room_beyond_the_machines_limit_and_passes_no_descriptors() {
        assert!(are_supported());
        let (one, other) = Pairs::default().make(NodeId(0)).expect("these tests need root and Linux 6.16");
        for end in [one, other] {
            assert_eq!(sockopt::int(&end, SIZE).expect("read"), 2 * SEND_BUFFER);
            assert_eq!(sockopt::int(&end, PASSRIGHTS).expect("read"), 0);
        }
    }

    #[test]
    fn many_that_come_at_once_have_the_usual_room() {
        let made = Rush { since: Instant::now() + AT_ONCE, all: FEW - 1, made: HashMap::from([(NodeId(0), FEW - 1)]) };
        let pairs = Pairs(Mutex::new(made));
        let sizes_of = |node| {
            let (one, other) = pairs.make(NodeId(node)).expect("these tests need root and Linux 6.16");
            [one, other].map(|end| sockopt::int(end, SIZE).expect("read"))
        };
        let sizes = || sizes_of(0);
        let (usual, _) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair");
        let usual = sockopt::int(usual, SIZE).expect("read");
        assert_eq!([sizes(), sizes()], [[2 * SEND_BUFFER; 2], [usual; 2]]);
        assert_eq!([sizes_of(1), sizes()], [[2 * SEND_BUFFER; 2], [usual; 2]], "another node has its part");
        lock(&pairs.0).since = Instant::now().checked_sub(AT_ONCE).expect("the machine has run for a second");
        assert_eq!(sizes(), [2 * SEND_BUFFER; 2]);
    }
}

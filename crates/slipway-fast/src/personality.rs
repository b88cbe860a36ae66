//! What a socket that is none of TCP says when it is asked as one (`tcp(7)`, `ip(7)`, `ipv6(7)`).
//!
//! Programs set options of TCP and read them back. Those that change how a connection of TCP works (`TCP_NODELAY`, the
//! times of its keep-alive) have nothing to change where there is no network, and are only kept; what a pair of sockets
//! cannot have at all is refused as by a kernel that was built without it.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use slipway_sys::bpf::{FreeNumber, FreeOption};
use slipway_sys::sockopt::{self, Name};

/// Numbers that are kept, and the least and the most that each may be (`do_tcp_setsockopt`, `net/ipv4/tcp.c`).
const KEPT: [(Name, i32, i32); 18] = [
    (tcp(libc::TCP_NODELAY), i32::MIN, i32::MAX),
    (tcp(libc::TCP_CORK), i32::MIN, i32::MAX),
    (tcp(libc::TCP_KEEPIDLE), 1, 32767),
    (tcp(libc::TCP_KEEPINTVL), 1, 32767),
    (tcp(libc::TCP_KEEPCNT), 1, 127),
    (tcp(libc::TCP_USER_TIMEOUT), 0, i32::MAX),
    (QUICKACK, i32::MIN, i32::MAX),
    (tcp(libc::TCP_NOTSENT_LOWAT), i32::MIN, i32::MAX),
    (tcp(libc::TCP_SYNCNT), 1, 127),
    (tcp(libc::TCP_LINGER2), i32::MIN, 120),
    (ip(libc::IP_TOS), 0, 255),
    (ip(libc::IP_TTL), 1, 255),
    (ip(libc::IP_MTU_DISCOVER), 0, 5),
    (ip(libc::IP_RECVTOS), i32::MIN, i32::MAX),
    (ipv6(libc::IPV6_TCLASS), -1, 255),
    (ipv6(libc::IPV6_UNICAST_HOPS), -1, 255),
    (ipv6(libc::IPV6_RECVTCLASS), i32::MIN, i32::MAX),
    (ipv6(libc::IPV6_V6ONLY), i32::MIN, i32::MAX),
];

/// Those that are true or false, whatever number was set.
const SWITCHES: [Name; 6] = [
    tcp(libc::TCP_NODELAY),
    tcp(libc::TCP_CORK),
    QUICKACK,
    ip(libc::IP_RECVTOS),
    ipv6(libc::IPV6_RECVTCLASS),
    ipv6(libc::IPV6_V6ONLY),
];

/// Those of TCP that programs set on nearly every connection. Where the kernel itself can take them ([`free`]) the router does not
/// hear of it.
pub(crate) const FREE: [i32; 5] =
    [libc::TCP_NODELAY, libc::TCP_CORK, libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];

/// Those that change nothing once there is a connection: they are checked, and forgotten. 0 is always right.
const PAST: [(Name, i32, i32); 2] =
    [(tcp(libc::TCP_MAXSEG), 88, 32767), (tcp(libc::TCP_DEFER_ACCEPT), i32::MIN, i32::MAX)];

const QUICKACK: Name = tcp(libc::TCP_QUICKACK);
pub(crate) const CONGESTION: Name = tcp(libc::TCP_CONGESTION);
/// `TCP_CA_NAME_MAX` (`include/net/tcp.h`).
pub(crate) const CONGESTION_BYTES: usize = 16;

/// What a segment holds on Ethernet, with time stamps: 1500 less 40 and 12.
const SEGMENT: i32 = 1448;

const fn tcp(name: i32) -> Name {
    Name { level: libc::IPPROTO_TCP, name }
}

const fn ip(name: i32) -> Name {
    Name { level: libc::IPPROTO_IP, name }
}

const fn ipv6(name: i32) -> Name {
    Name { level: libc::IPPROTO_IPV6, name }
}

/// [`FREE`], and where in what is written of [`Options`] each is, from `at` on.
pub(crate) fn free(at: usize) -> impl Iterator<Item = FreeOption> {
    let places = (at..).step_by(4).zip(KEPT).filter(|(_, (name, ..))| FREE.map(tcp).contains(name));
    places.map(|(at, (name, least, most))| {
        let number = if SWITCHES.contains(&name) { FreeNumber::Switch } else { FreeNumber::Within(least, most) };
        FreeOption { name: name.name, at: i16::try_from(at).expect("a note is short"), number }
    })
}

/// What a program set, or would find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    kept: [i32; KEPT.len()],
    congestion: [u8; CONGESTION_BYTES],
}

impl Options {
    /// As they are on a socket of TCP.
    #[must_use]
    pub(crate) fn of(socket: impl AsFd) -> Self {
        let socket = socket.as_fd();
        let mut options = Self::default();
        for (value, (name, ..)) in options.kept.iter_mut().zip(KEPT) {
            // One that this kernel does not know stays at zero, and is nobody's.
            *value = sockopt::int(socket, name).unwrap_or_default();
        }
        let _ = sockopt::get(socket, CONGESTION, &mut options.congestion);
        options
    }

    /// The same, but for those which programs set without the router's hearing of it: they are as on this socket of TCP.
    #[must_use]
    pub(crate) fn with_free_of(mut self, socket: impl AsFd) -> Self {
        for (value, (name, ..)) in self.kept.iter_mut().zip(KEPT) {
            if FREE.map(tcp).contains(&name) {
                *value = sockopt::int(&socket, name).unwrap_or_default();
            }
        }
        self
    }

    /// Sets them on a socket of TCP, as far as they are not what it `has`, and it knows them: hosts may talk by another
    /// version of IP than programs.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub(crate) fn apply(&self, to: impl AsFd, has: &Self) -> io::Result<()> {
        let to = to.as_fd();
        for ((wanted, has), (name, ..)) in self.kept.iter().zip(&has.kept).zip(KEPT) {
            // Whether it acknowledges at once changes by itself (`tcp(7)`), so what others have says nothing of this one: on a
            // connection that routers have just talked over it would wait, and what comes next with it (RFC 896), 40 ms.
            if name == QUICKACK || wanted != has && sockopt::int(to, name).is_ok() {
                sockopt::set(to, name, &wanted.to_ne_bytes())?;
            }
        }
        if has.congestion != self.congestion {
            sockopt::set(to, CONGESTION, &self.congestion)?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &mut [u8]) {
        for (chunk, value) in bytes.chunks_exact_mut(4).zip(self.kept) {
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        let end = KEPT.len() * 4;
        bytes[end..end + CONGESTION_BYTES].copy_from_slice(&self.congestion);
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        for (value, chunk) in options.kept.iter_mut().zip(bytes.as_chunks().0) {
            *value = i32::from_ne_bytes(*chunk);
        }
        if let Some(congestion) = bytes.get(KEPT.len() * 4..).and_then(<[u8]>::first_chunk) {
            options.congestion = *congestion;
        }
        options
    }

    /// What `getsockopt(2)` gives, at most as many bytes as are asked for. `open` is false where the peer has ended.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that there is not.
    pub(crate) fn get(&self, name: Name, open: bool) -> Result<Vec<u8>, Errno> {
        if let Some(at) = KEPT.iter().position(|(kept, ..)| *kept == name) {
            return Ok(self.kept[at].to_ne_bytes().to_vec());
        }
        match name {
            CONGESTION => Ok(self.congestion.to_vec()),
            Name { level: libc::IPPROTO_TCP, name: libc::TCP_MAXSEG } => Ok(SEGMENT.to_ne_bytes().to_vec()),
            Name { level: libc::IPPROTO_TCP, name: libc::TCP_DEFER_ACCEPT } => Ok(0_i32.to_ne_bytes().to_vec()),
            Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO } => Ok(info(open)),
            _ => Err(Errno::NOPROTOOPT),
        }
    }

    /// What `setsockopt(2)` does.
    ///
    /// # Errors
    /// `EINVAL` for a value that TCP refuses, `ENOPROTOOPT` for an option that there is not, `ENOENT` for congestion control
    /// other than the connection has: there is none to change.
    pub(crate) fn set(&mut self, name: Name, value: &[u8]) -> Result<(), Errno> {
        if name == CONGESTION {
            let asked = value.split(|byte| *byte == 0).next().unwrap_or_default();
            let has = self.congestion.split(|byte| *byte == 0).next().unwrap_or_default();
            return if asked == has { Ok(()) } else { Err(Errno::NOENT) };
        }
        let past = PAST.iter().find(|(past, ..)| *past == name);
        let kept = KEPT.iter().position(|(kept, ..)| *kept == name);
        let (_, least, most) = past.or(kept.map(|at| &KEPT[at])).ok_or(Errno::NOPROTOOPT)?;
        let number = match value.first_chunk() {
            Some(bytes) => i32::from_ne_bytes(*bytes),
            // One byte is enough for options of IP (`do_ip_setsockopt`), not for those of TCP.
            None if name.level != libc::IPPROTO_TCP && !value.is_empty() => i32::from(value[0]),
            None => return Err(Errno::INVAL),
        };
        let unset = past.is_some() && number == 0;
        if !unset && !(*least..=*most).contains(&number) {
            return Err(Errno::INVAL);
        }
        let Some(at) = kept else { return Ok(()) };
        self.kept[at] = if SWITCHES.contains(&name) { i32::from(number != 0) } else { number };
        Ok(())
    }
}

/// `struct tcp_info` (`include/uapi/linux/tcp.h`) of a connection that nothing ever happens to.
fn info(open: bool) -> Vec<u8> {
    /// `TCP_ESTABLISHED`, `TCP_CLOSE_WAIT` (`include/net/tcp_states.h`).
    const STATES: [u8; 2] = [8, 1];
    let mut bytes = vec![0; 248];
    let mut put = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    let segment = SEGMENT.unsigned_abs();
    put(8, 200_000); // tcpi_rto, microseconds: its least
    put(16, segment); // tcpi_snd_mss
    put(20, segment); // tcpi_rcv_mss
    put(60, 1500); // tcpi_pmtu
    put(68, 10); // tcpi_rtt, microseconds
    put(72, 5); // tcpi_rttvar
    put(76, i32::MAX.unsigned_abs()); // tcpi_snd_ssthresh: never reached
    put(80, 10); // tcpi_snd_cwnd
    put(84, segment); // tcpi_advmss
    put(88, 3); // tcpi_reordering
    bytes[0] = STATES[usize::from(open)];
    bytes
}

/// Options of `SOL_SOCKET` that a program set before it connected, and that its new socket is to have.
const CARRIED: [i32; 4] = [libc::SO_REUSEADDR, libc::SO_KEEPALIVE, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];

/// More of them, which are set so seldom that the router can hear of it whenever one is.
pub(crate) const HEARD: [i32; 6] =
    [libc::SO_BROADCAST, libc::SO_TIMESTAMP, libc::SO_OOBINLINE, libc::SO_RCVLOWAT, libc::SO_LINGER, libc::SO_PRIORITY];

/// Gives a new socket what was set on the one that it takes the place of, or on the listener that it is `accepted` from, which
/// passes on all but `SO_PRIORITY` (`sk_clone`, `net/core/sock.c`). `changed`: whether one of [`HEARD`] may have been set. Sizes of
/// buffers pass only where the program set them (`SO_BUF_LOCK`): the defaults of the two kinds of sockets differ.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn carry(from: impl AsFd, to: impl AsFd, accepted: bool, changed: bool) -> io::Result<()> {
    const NOTHING: [u8; 16] = [0; 16];
    let (from, to) = (from.as_fd(), to.as_fd());
    let heard = HEARD.into_iter().filter(|name| changed && !(accepted && *name == libc::SO_PRIORITY));
    for name in CARRIED.into_iter().chain(heard) {
        let name = Name { level: libc::SOL_SOCKET, name };
        let mut value = NOTHING;
        let len = sockopt::get(from, name, &mut value)?;
        let default = name.name == libc::SO_RCVLOWAT && value[..len] == 1_i32.to_ne_bytes();
        if value != NOTHING && !default {
            sockopt::set(to, name, &value[..len])?;
        }
    }
    let socket = |name| Name { level: libc::SOL_SOCKET, name };
    let locked = sockopt::int(from, socket(libc::SO_BUF_LOCK)).unwrap_or_default();
    // SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK (`include/uapi/linux/socket.h`). The kernel doubles what is set.
    for (lock, name) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
        if locked & lock != 0 {
            let half = sockopt::int(from, socket(name))? / 2;
            sockopt::set(to, socket(name), &half.to_ne_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket, socketpair, sockopt as typed};

    use super::*;

    fn pair_and_tcp() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        let (ours, _) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).expect("a pair");
        (ours, socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket"))
    }

    #[test]
    fn what_was_set_on_tcp_is_found_and_kept() {
        let (_, socket) = pair_and_tcp();
        typed::set_tcp_nodelay(&socket, true).expect("set");
        let mut options = Options::of(&socket);
        assert_eq!(options.get(tcp(libc::TCP_NODELAY), true), Ok(1_i32.to_ne_bytes().to_vec()));
        options.set(tcp(libc::TCP_KEEPIDLE), &77_i32.to_ne_bytes()).expect("in range");
        let mut bytes = [0; 100];
        options.write(&mut bytes);
        assert_eq!(Options::read(&bytes), options);
        assert_eq!(options.get(tcp(libc::TCP_KEEPIDLE), true), Ok(77_i32.to_ne_bytes().to_vec()));
    }

    #[test]
    fn wrong_values_are_refused_as_tcp_refuses_them() {
        let (_, socket) = pair_and_tcp();
        let mut options = Options::of(&socket);
        for value in [0, 32768, -1] {
            let ours = options.set(tcp(libc::TCP_KEEPIDLE), &i32::to_ne_bytes(value));
            let theirs = sockopt::set(&socket, tcp(libc::TCP_KEEPIDLE), &i32::to_ne_bytes(value));
            assert_eq!(
                ours.err().map(Errno::raw_os_error),
                theirs.err().and_then(|error| error.raw_os_error()),
                "{value}"
            );
        }
        assert_eq!(options.set(tcp(libc::TCP_NODELAY), &[1]), Err(Errno::INVAL));
        for (value, expected) in [(0, Ok(())), (87, Err(Errno::INVAL)), (88, Ok(())), (32768, Err(Errno::INVAL))] {
            let ours = options.set(tcp(libc::TCP_MAXSEG), &i32::to_ne_bytes(value));
            let theirs = sockopt::set(&socket, tcp(libc::TCP_MAXSEG), &i32::to_ne_bytes(value));
            assert_eq!((ours, theirs.is_ok()), (expected, expected.is_ok()), "{value}");
        }
        assert_eq!(options.set(tcp(9999), &[0; 4]), Err(Errno::NOPROTOOPT));
        assert_eq!(options.get(tcp(9999), true), Err(Errno::NOPROTOOPT));
    }

    #[test]
    fn options_of_the_socket_itself_pass_on() {
        let (pair, socket) = pair_and_tcp();
        typed::set_socket_keepalive(&socket, true).expect("set");
        typed::set_socket_recv_buffer_size(&socket, 50_000).expect("set");
        let before = typed::socket_send_buffer_size(&pair).expect("read");
        carry(&socket, &pair, false, false).expect("carried");
        assert!(typed::socket_keepalive(&pair).expect("read"));
        assert_eq!(typed::socket_recv_buffer_size(&pair).expect("read"), 100_000);
        assert_eq!(typed::socket_send_buffer_size(&pair).expect("read"), before, "it was never set");
    }
}

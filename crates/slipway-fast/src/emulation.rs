//! Socket-option emulation: the answers of a pair to `getsockopt(2)` and `setsockopt(2)` of TCP and IP (`tcp(7)`, `ip(7)`,
//! `ipv6(7)`).
//!
//! Programs set options of TCP and read them back. Some change how TCP works (`TCP_NODELAY`, keep-alive times). A pair has
//! no network, so the router only stores them. It refuses options that a pair cannot have, as a kernel built without them
//! does.

mod table;

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use slipway_sys::bpf::{FreeNumber, FreeOption};
use slipway_sys::sockopt::{self, Name};

use self::table::{
    COMMON, ETHERNET, FIXED, HOPS, LISTS, MULTICAST_HOPS, MULTICAST_TTL, NUMBERS, Rule, Shown, TTL, is_unseen, tcp,
};
pub(crate) use self::table::{OF_SOCKETS, is_privileged};
use crate::path::Path;
use crate::timestamps;

/// TCP options that programs set on nearly every connection. Where the kernel itself can take them ([`free`]), they do not
/// trap to the router.
pub(crate) const FREE: [i32; 5] =
    [libc::TCP_NODELAY, libc::TCP_CORK, libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];

const QUICKACK: Name = tcp(libc::TCP_QUICKACK);
pub(crate) const CONGESTION: Name = tcp(libc::TCP_CONGESTION);
/// `TCP_CA_NAME_MAX` (`include/net/tcp.h`).
pub(crate) const CONGESTION_BYTES: usize = 16;

/// An option that changes nothing on a connection: the router checks its value, and forgets it. 0 is always valid.
const MAXSEG: Name = tcp(libc::TCP_MAXSEG);
const SEGMENTS: std::ops::RangeInclusive<i32> = 88..=32767;
/// Bytes of data in a segment on Ethernet: less 40 of headers and 12 of time stamps.
const SEGMENT: i32 = ETHERNET - 52;

/// [`FREE`], and the offset of each in the written [`Options`], from `at` on.
pub(crate) fn free(at: usize) -> impl Iterator<Item = FreeOption> {
    let positions = (at..).step_by(4).zip(NUMBERS).filter(|(_, option)| FREE.map(tcp).contains(&option.name));
    positions.map(|(at, option)| {
        let number = match option.rule {
            Rule::Within(least, most) => FreeNumber::Within(least, most),
            _ => FreeNumber::Switch,
        };
        FreeOption { name: option.name.name, at: i16::try_from(at).expect("a note is short"), number }
    })
}

/// Kinds of options that a program has set on a socket of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// The program set an option that programs set seldom.
    pub is_rare: bool,
    /// The program set an option that cannot be read, and that a fast connection cannot keep.
    pub is_unseen: bool,
}

impl Change {
    /// The program may have set any option that can be read.
    pub(crate) const UNKNOWN: Self = Self { is_rare: true, is_unseen: false };

    pub(crate) fn and(self, other: Self) -> Self {
        Self { is_rare: self.is_rare || other.is_rare, is_unseen: self.is_unseen || other.is_unseen }
    }

    pub(crate) fn write(self) -> u8 {
        u8::from(self.is_rare) | u8::from(self.is_unseen) << 1
    }

    pub(crate) fn read(byte: u8) -> Self {
        Self { is_rare: byte & 1 != 0, is_unseen: byte & 2 != 0 }
    }
}

/// The kind of this option, which a program sets on a TCP socket of its own. `is_nothing`: the value is 0.
pub(crate) fn change(name: Name, is_nothing: bool) -> Change {
    let is_often_set = NUMBERS[..COMMON].iter().any(|option| option.name == name)
        || name.level == libc::SOL_SOCKET && (CARRIED.contains(&name.name) || HEARD.contains(&name.name));
    Change { is_rare: !is_often_set, is_unseen: !is_nothing && is_unseen(name) }
}

/// Whether a connection by this path loses this option, if its value is not 0.
pub(crate) fn loses(name: Name, path: Path) -> bool {
    let is_stamps = name.level == libc::SOL_SOCKET && timestamps::NAMES.contains(&name.name);
    is_stamps && path == Path::Pair
        || LISTS.contains(&name)
        || is_unseen(name)
        || place(name).is_some_and(|at| !NUMBERS[at].availability.by(path))
}

/// Whether a connection by this path can keep the options of a program's own TCP socket, as far as they can be read.
pub(crate) fn keeps(socket: impl AsFd, path: Path) -> bool {
    let socket = socket.as_fd();
    let numbers = NUMBERS.iter().filter(|option| !option.availability.by(path));
    let is_on = |name| sockopt::int(socket, name).is_ok_and(|number| number != 0);
    let has_list = |name| sockopt::get(socket, name, &mut [0; 64]).is_ok_and(|bytes| bytes > 0);
    let has_stamps = path == Path::Pair && timestamps::is_on(socket);
    !has_stamps && !numbers.map(|option| option.name).any(is_on) && !LISTS.into_iter().any(has_list)
}

/// The options of a socket: those that a program set, and the defaults of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    numbers: [i32; NUMBERS.len()],
    congestion: [u8; CONGESTION_BYTES],
}

impl Default for Options {
    fn default() -> Self {
        Self { numbers: [0; NUMBERS.len()], congestion: [0; CONGESTION_BYTES] }
    }
}

impl Options {
    /// Bytes of the options in a socket's metadata.
    pub(crate) const BYTES: usize = 4 * NUMBERS.len() + CONGESTION_BYTES;

    /// The options of a TCP socket.
    #[must_use]
    pub(crate) fn of(socket: impl AsFd) -> Self {
        Self::default().with(&socket, |_| true).with_congestion_of(socket)
    }

    /// These options, with those that programs set without a trapped call as on this TCP socket.
    #[must_use]
    pub(crate) fn with_free_of(self, socket: impl AsFd) -> Self {
        self.with(socket, |at| FREE.map(tcp).contains(&NUMBERS[at].name))
    }

    /// These options, with those that programs set often as on this TCP socket.
    #[must_use]
    pub(crate) fn with_common_of(self, socket: impl AsFd) -> Self {
        self.with(&socket, |at| at < COMMON).with_congestion_of(socket)
    }

    /// The options that a socket accepted from this listener has. The kernel notes on that socket how many hops its
    /// client's packets had left (`tcp_v4_syn_recv_sock`). No packet loses a hop within a network, so that is the number
    /// that clients begin with. `mapped`: the client's address is one of IPv4.
    #[must_use]
    pub(crate) fn as_accepted(mut self, ipv6: bool, mapped: bool) -> Self {
        let mut copy = |from, to| {
            if let (Some(from), Some(to)) = (place(from), place(to)) {
                self.numbers[to] = self.numbers[from];
            }
        };
        if !ipv6 || mapped {
            copy(TTL, MULTICAST_TTL);
        }
        if ipv6 {
            copy(HOPS, MULTICAST_HOPS);
        }
        self
    }

    fn with(mut self, socket: impl AsFd, is_asked: impl Fn(usize) -> bool) -> Self {
        let socket = socket.as_fd();
        let asked = self.numbers.iter_mut().zip(NUMBERS).enumerate().filter(|(at, _)| is_asked(*at));
        for (_, (value, option)) in asked {
            // An option that this kernel does not know stays at zero.
            *value = sockopt::int(socket, option.name).unwrap_or_default();
        }
        self
    }

    fn with_congestion_of(mut self, socket: impl AsFd) -> Self {
        let _ = sockopt::get(socket, CONGESTION, &mut self.congestion);
        self
    }

    /// Sets these options on a TCP socket, where they differ from those it `has`, and where it knows them: hosts may use
    /// another version of IP than programs.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub(crate) fn apply(&self, to: impl AsFd, has: &Self) -> io::Result<()> {
        let to = to.as_fd();
        for ((wanted, has), option) in
            self.numbers.iter().zip(&has.numbers).zip(NUMBERS).filter(|(_, option)| option.is_real)
        {
            let name = option.name;
            // Quick acknowledgement changes by itself (`tcp(7)`), so other sockets do not show it. On a connection that
            // routers have just used, an acknowledgement would wait 40 ms, and the next message with it (RFC 896).
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
        for (chunk, value) in bytes.chunks_exact_mut(4).zip(self.numbers) {
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        bytes[4 * NUMBERS.len()..][..CONGESTION_BYTES].copy_from_slice(&self.congestion);
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        for (value, chunk) in options.numbers.iter_mut().zip(bytes.as_chunks().0) {
            *value = i32::from_ne_bytes(*chunk);
        }
        if let Some(congestion) = bytes.get(NUMBERS.len() * 4..).and_then(<[u8]>::first_chunk) {
            options.congestion = *congestion;
        }
        options
    }

    /// The value that `getsockopt(2)` returns. `state` looks at the connection.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an unknown option.
    pub(crate) fn get(&self, name: Name, state: impl FnOnce() -> State) -> Result<Vec<u8>, Errno> {
        if let Some(at) = place(name) {
            return Ok(self.numbers[at].to_ne_bytes().to_vec());
        }
        match name {
            CONGESTION => return Ok(self.congestion.to_vec()),
            MAXSEG => return Ok(SEGMENT.to_ne_bytes().to_vec()),
            Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO } => return Ok(info(state())),
            name if LISTS.contains(&name) => return Ok(Vec::new()),
            _ => {}
        }
        match FIXED.iter().find(|fixed| fixed.name == name).map(|fixed| fixed.shown) {
            Some(Shown::Number(number)) => Ok(number.to_ne_bytes().to_vec()),
            Some(Shown::Nothing) => Ok(Vec::new()),
            Some(Shown::Refused(errno)) => Err(errno),
            None => Err(Errno::NOPROTOOPT),
        }
    }

    /// Sets an option on a connection by this path, as `setsockopt(2)` does. True where the kernel must set it too, on a
    /// TCP connection.
    ///
    /// # Errors
    /// A value that TCP refuses gives `EINVAL`. An unknown option, or one that such a connection cannot have, gives
    /// `ENOPROTOOPT`. Congestion control other than the connection's gives `ENOENT`: there is none to change.
    pub(crate) fn set(&mut self, name: Name, value: &[u8], path: Path) -> Result<bool, Errno> {
        if name == CONGESTION {
            let asked = value.split(|byte| *byte == 0).next().unwrap_or_default();
            let has = self.congestion.split(|byte| *byte == 0).next().unwrap_or_default();
            return if asked == has { Ok(true) } else { Err(Errno::NOENT) };
        }
        if LISTS.contains(&name) {
            let is_none = value.is_empty() || name.level == libc::IPPROTO_IP && value.iter().all(|byte| *byte == 0);
            return if is_none { Ok(false) } else { Err(Errno::NOPROTOOPT) };
        }
        if let Some(fixed) = FIXED.iter().find(|fixed| fixed.name == name) {
            return fixed.set.map(|()| false);
        }
        let number = match value.first_chunk() {
            Some(bytes) => i32::from_ne_bytes(*bytes),
            // One byte is enough for options of IP (`do_ip_setsockopt`), not for those of TCP.
            None if name.level == libc::IPPROTO_IP && !value.is_empty() => i32::from(value[0]),
            None => return Err(Errno::INVAL),
        };
        if name == MAXSEG {
            return if number == 0 || SEGMENTS.contains(&number) { Ok(true) } else { Err(Errno::INVAL) };
        }
        let at = place(name).ok_or(Errno::NOPROTOOPT)?;
        let option = NUMBERS[at];
        let number = match option.rule {
            Rule::Never(errno) => return Err(errno),
            Rule::Switch => i32::from(number != 0),
            Rule::Within(least, most) | Rule::Forgotten(least, most) if !(least..=most).contains(&number) => {
                return Err(Errno::INVAL);
            }
            Rule::Forgotten(..) => return Ok(false),
            Rule::Within(..) => number,
        };
        if number != 0 && !option.availability.by(path) {
            return Err(Errno::NOPROTOOPT);
        }
        self.numbers[at] = number;
        Ok(option.is_real)
    }
}

/// The position of an option among [`NUMBERS`].
fn place(name: Name) -> Option<usize> {
    NUMBERS.iter().position(|option| option.name == name)
}

/// The state of a connection, as far as a pair shows it (`include/net/tcp_states.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// `TCP_ESTABLISHED`.
    Established = 1,
    /// `TCP_FIN_WAIT2`: this end's direction is shut down.
    FinWait = 5,
    /// `TCP_CLOSE_WAIT`: the peer's direction is shut down, or the peer has ended.
    CloseWait = 8,
}

/// Length of `struct tcp_info` on this kernel, bytes. It has grown from time to time.
fn info_bytes() -> usize {
    /// Until Linux 6.7.
    const SHORTEST: usize = 240;
    static BYTES: OnceLock<usize> = OnceLock::new();
    let name = tcp(libc::TCP_INFO);
    let asked = || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::get(&socket, name, &mut [0; 1024])
    };
    *BYTES.get_or_init(|| asked().unwrap_or(SHORTEST).max(SHORTEST))
}

/// `struct tcp_info` (`include/uapi/linux/tcp.h`) of an undisturbed connection.
fn info(state: State) -> Vec<u8> {
    let mut bytes = vec![0; info_bytes()];
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
    bytes[0] = state as u8;
    bytes
}

/// Options of `SOL_SOCKET` that pass from a program's socket to the new one at connect.
const CARRIED: [i32; 4] = [libc::SO_REUSEADDR, libc::SO_KEEPALIVE, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];

/// Further such options, set so seldom that each call can trap to the router.
pub(crate) const HEARD: [i32; 6] =
    [libc::SO_BROADCAST, libc::SO_TIMESTAMP, libc::SO_OOBINLINE, libc::SO_RCVLOWAT, libc::SO_LINGER, libc::SO_PRIORITY];

/// Options that hardly any program sets, with a new socket's values.
pub(crate) const SELDOM: [(i32, i32); 12] = [
    (libc::SO_NO_CHECK, 0),
    (libc::SO_TIMESTAMPNS, 0),
    (timestamps::TIMESTAMP_WIDE, 0),
    (timestamps::TIMESTAMPNS_WIDE, 0),
    (libc::SO_RXQ_OVFL, 0),
    (libc::SO_WIFI_STATUS, 0),
    (libc::SO_PEEK_OFF, -1),
    (libc::SO_NOFCS, 0),
    (libc::SO_SELECT_ERR_QUEUE, 0),
    (libc::SO_BUSY_POLL, 0),
    (75, 0), // SO_RCVMARK
    (82, 0), // SO_RCVPRIORITY
];
/// The pacing rate, whose value is longer than a word.
const PACING: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE };

/// Copies options to a new socket from the one that it replaces, or from the listener that it is `accepted` from. A
/// listener passes on all but `SO_PRIORITY` (`sk_clone`, `net/core/sock.c`). `changed`: whether a program may have set one
/// of [`HEARD`], or of [`SELDOM`]. Buffer sizes pass only where the program set them (`SO_BUF_LOCK`): the defaults of the
/// two kinds of sockets differ.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn carry(from: impl AsFd, to: impl AsFd, accepted: bool, changed: Option<Change>) -> io::Result<()> {
    const NOTHING: [u8; 16] = [0; 16];
    let (from, to) = (from.as_fd(), to.as_fd());
    let heard = HEARD.into_iter().filter(|name| changed.is_some() && !(accepted && *name == libc::SO_PRIORITY));
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
    if changed.is_some_and(|change| change.is_rare) {
        for (name, default) in SELDOM {
            // This kernel may lack some.
            let value = sockopt::int(from, socket(name)).unwrap_or(default);
            if value != default {
                sockopt::set(to, socket(name), &value.to_ne_bytes())?;
            }
        }
        let mut rate = [0; 8];
        let len = sockopt::get(from, PACING, &mut rate)?;
        if rate[..len].iter().any(|byte| *byte != u8::MAX) {
            sockopt::set(to, PACING, &rate[..len])?;
        }
    }
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
    use rustix::net::{SocketFlags, socketpair, sockopt as typed};

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
        assert_eq!(options.get(tcp(libc::TCP_NODELAY), || State::Established), Ok(1_i32.to_ne_bytes().to_vec()));
        options.set(tcp(libc::TCP_KEEPIDLE), &77_i32.to_ne_bytes(), Path::Pair).expect("in range");
        let mut bytes = [0; Options::BYTES];
        options.write(&mut bytes);
        assert_eq!(Options::read(&bytes), options);
        assert_eq!(options.get(tcp(libc::TCP_KEEPIDLE), || State::Established), Ok(77_i32.to_ne_bytes().to_vec()));
    }

    #[test]
    fn wrong_values_are_refused_as_tcp_refuses_them() {
        let (_, socket) = pair_and_tcp();
        let mut options = Options::of(&socket);
        for value in [0, 32768, -1] {
            let ours = options.set(tcp(libc::TCP_KEEPIDLE), &i32::to_ne_bytes(value), Path::Pair);
            let theirs = sockopt::set(&socket, tcp(libc::TCP_KEEPIDLE), &i32::to_ne_bytes(value));
            assert_eq!(
                ours.err().map(Errno::raw_os_error),
                theirs.err().and_then(|error| error.raw_os_error()),
                "{value}"
            );
        }
        assert_eq!(options.set(tcp(libc::TCP_NODELAY), &[1], Path::Pair), Err(Errno::INVAL));
        for (value, expected) in [(0, Ok(())), (87, Err(Errno::INVAL)), (88, Ok(())), (32768, Err(Errno::INVAL))] {
            let ours = options.set(tcp(libc::TCP_MAXSEG), &i32::to_ne_bytes(value), Path::Pair).map(drop);
            let theirs = sockopt::set(&socket, tcp(libc::TCP_MAXSEG), &i32::to_ne_bytes(value));
            assert_eq!((ours, theirs.is_ok()), (expected, expected.is_ok()), "{value}");
        }
        assert_eq!(options.set(tcp(9999), &[0; 4], Path::Pair), Err(Errno::NOPROTOOPT));
        assert_eq!(options.get(tcp(9999), || State::Established), Err(Errno::NOPROTOOPT));
    }

    #[test]
    fn what_a_connection_cannot_keep_is_known_before_it_is_made_and_refused_after() {
        let ip = |name| Name { level: libc::IPPROTO_IP, name };
        let on = 1_i32.to_ne_bytes();
        for (name, by_pair, by_tcp) in
            [(ip(libc::IP_RECVTTL), true, true), (ip(libc::IP_MINTTL), false, false), (tcp(libc::TCP_INQ), false, true)]
        {
            let (_, socket) = pair_and_tcp();
            assert!(keeps(&socket, Path::Pair), "{name:?}");
            sockopt::set(&socket, name, &on).expect("set");
            for (path, expected) in [(Path::Pair, by_pair), (Path::Tcp, by_tcp)] {
                assert_eq!(keeps(&socket, path), expected, "{name:?} by {path:?}");
                let mut options = Options::default();
                let set = options.set(name, &on, path).map(drop);
                assert_eq!(set, if expected { Ok(()) } else { Err(Errno::NOPROTOOPT) }, "{name:?} by {path:?}");
                assert!(options.set(name, &[0; 4], path).is_ok(), "off, {name:?}");
            }
        }
        let (_, socket) = pair_and_tcp();
        sockopt::set(&socket, ip(libc::IP_OPTIONS), &[1, 0, 0, 0]).expect("set");
        assert!(!keeps(&socket, Path::Tcp));
    }

    #[test]
    fn options_of_the_socket_itself_pass_on() {
        let (pair, socket) = pair_and_tcp();
        typed::set_socket_keepalive(&socket, true).expect("set");
        typed::set_socket_recv_buffer_size(&socket, 50_000).expect("set");
        let before = typed::socket_send_buffer_size(&pair).expect("read");
        carry(&socket, &pair, false, None).expect("carried");
        assert!(typed::socket_keepalive(&pair).expect("read"));
        assert_eq!(typed::socket_recv_buffer_size(&pair).expect("read"), 100_000);
        assert_eq!(typed::socket_send_buffer_size(&pair).expect("read"), before, "it was never set");
    }
}

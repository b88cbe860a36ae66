//! The options other than those of `SOL_SOCKET`: their values, and the connections that can keep them.
//!
//! The rules are the kernel's own (`do_tcp_setsockopt`, `do_ip_setsockopt`, `do_ipv6_setsockopt`, `sk_setsockopt`).
//! `crates/slipway/tests/sockets/sweep.c` holds every option against a socket of the container network.

use rustix::io::Errno;
use slipway_sys::sockopt::Name;

use crate::path::Path;

/// An option with a numeric value, which the metadata keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberOption {
    /// Level and number of the option.
    pub(super) name: Name,
    /// Values that a program may set.
    pub(super) rule: Rule,
    /// Connections that can have another number than 0.
    pub(super) availability: Availability,
    /// Whether the router also sets it on a connection of the hosts' network. Other options would affect packets that are
    /// not the program's, or nothing.
    pub(super) is_real: bool,
}

/// Values that a program may set an option to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Least and greatest value.
    Within(i32, i32),
    /// Any value: all but 0 become 1.
    Switch,
    /// Like `Within`, but the value stays as it is.
    Forgotten(i32, i32),
    /// No value.
    Never(Errno),
}

/// The connections that can have an option set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    /// All: the option changes nothing that a program could see there, or is only a number.
    Always,
    /// TCP connections: the kernel keeps it.
    ByTcp,
    /// None: the option is about packets.
    Never,
}

impl Availability {
    pub(super) fn by(self, path: Path) -> bool {
        self == Self::Always || self == Self::ByTcp && path == Path::Tcp
    }
}

/// An option whose answers are fixed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    pub(super) name: Name,
    pub(super) shown: Shown,
    /// The answer of `setsockopt(2)`. Success changes nothing.
    pub(super) set: Result<(), Errno>,
}

/// The answer of `getsockopt(2)`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shown {
    Number(i32),
    /// No bytes.
    Nothing,
    Refused(Errno),
}

/// Number of leading entries of [`NUMBERS`] that programs set often. The router reads these for every socket with a set
/// option.
pub(super) const COMMON: usize = 20;

#[rustfmt::skip]
pub(super) const NUMBERS: [NumberOption; 83] = [
    real(tcp(libc::TCP_NODELAY), Rule::Switch),
    real(tcp(libc::TCP_CORK), Rule::Switch),
    real(tcp(libc::TCP_KEEPIDLE), Rule::Within(1, 32767)),
    real(tcp(libc::TCP_KEEPINTVL), Rule::Within(1, 32767)),
    real(tcp(libc::TCP_KEEPCNT), Rule::Within(1, 127)),
    real(tcp(libc::TCP_USER_TIMEOUT), Rule::Within(0, i32::MAX)),
    real(super::QUICKACK, Rule::Switch),
    real(tcp(libc::TCP_NOTSENT_LOWAT), Rule::Within(i32::MIN, i32::MAX)),
    real(tcp(libc::TCP_SYNCNT), Rule::Within(1, 127)),
    real(tcp(libc::TCP_LINGER2), Rule::Within(i32::MIN, 120)),
    real(ip(libc::IP_TOS), Rule::Within(0, 255)),
    real(TTL, Rule::Within(1, 255)),
    real(ip(libc::IP_MTU_DISCOVER), Rule::Within(0, 5)),
    real(ip(libc::IP_RECVTOS), Rule::Switch),
    real(ipv6(libc::IPV6_TCLASS), Rule::Within(-1, 255)),
    real(HOPS, Rule::Within(-1, 255)),
    real(ipv6(libc::IPV6_RECVTCLASS), Rule::Switch),
    emulated(ipv6(libc::IPV6_V6ONLY), Rule::Never(Errno::INVAL)),
    emulated(tcp(libc::TCP_DEFER_ACCEPT), Rule::Forgotten(i32::MIN, i32::MAX)),
    emulated(socket(libc::SO_REUSEPORT), Rule::Switch),
    // Seldom from here on. Of TCP.
    emulated(tcp(libc::TCP_WINDOW_CLAMP), Rule::Within(0, i32::MAX)),
    real(tcp(libc::TCP_THIN_LINEAR_TIMEOUTS), Rule::Within(0, 1)),
    emulated(tcp(libc::TCP_THIN_DUPACK), Rule::Forgotten(0, 1)),
    emulated(tcp(libc::TCP_FASTOPEN), Rule::Never(Errno::INVAL)),
    emulated(tcp(libc::TCP_FASTOPEN_CONNECT), Rule::Never(Errno::INVAL)),
    emulated(tcp(TCP_FASTOPEN_NO_COOKIE), Rule::Never(Errno::INVAL)),
    NumberOption { availability: Availability::Never, ..emulated(tcp(libc::TCP_SAVE_SYN), Rule::Within(0, 2)) },
    NumberOption { availability: Availability::Never, ..emulated(tcp(TCP_TX_DELAY), Rule::Within(0, i32::MAX)) },
    NumberOption { availability: Availability::ByTcp, ..real(tcp(libc::TCP_INQ), Rule::Within(0, 1)) },
    real(tcp(44), Rule::Within(1000, 120_000)), // TCP_RTO_MAX_MS, milliseconds
    real(tcp(45), Rule::Within(1, i32::MAX)), // TCP_RTO_MIN_US
    real(tcp(46), Rule::Within(1, i32::MAX)), // TCP_DELACK_MAX_US
    // Options of sockets (`SOL_SOCKET`).
    NumberOption { availability: Availability::ByTcp, ..real(socket(libc::SO_ZEROCOPY), Rule::Within(0, 1)) },
    emulated(socket(SO_TXREHASH), Rule::Within(-1, 1)),
    // These are about packets of the hosts' network, which a program may not control.
    emulated(socket(libc::SO_MARK), Rule::Within(i32::MIN, i32::MAX)),
    emulated(socket(libc::SO_DONTROUTE), Rule::Switch),
    // Options of IP. Control messages of datagrams never come with a stream (`tcp_recvmsg`).
    emulated(ip(libc::IP_RECVOPTS), Rule::Switch),
    emulated(ip(libc::IP_RETOPTS), Rule::Switch),
    emulated(ip(libc::IP_PKTINFO), Rule::Switch),
    emulated(ip(libc::IP_RECVTTL), Rule::Switch),
    emulated(ip(libc::IP_PASSSEC), Rule::Switch),
    emulated(ip(libc::IP_ORIGDSTADDR), Rule::Switch),
    emulated(ip(IP_CHECKSUM), Rule::Switch),
    // No error of the network comes to a fast connection.
    emulated(ip(libc::IP_RECVERR), Rule::Switch),
    emulated(ip(IP_RECVERR_RFC4884), Rule::Within(0, 1)),
    // About a socket's address, which it has.
    emulated(ip(libc::IP_FREEBIND), Rule::Switch),
    emulated(ip(libc::IP_TRANSPARENT), Rule::Switch),
    emulated(ip(libc::IP_BIND_ADDRESS_NO_PORT), Rule::Switch),
    NumberOption { availability: Availability::Never, ..emulated(ip(IP_LOCAL_PORT_RANGE), Rule::Within(i32::MIN, i32::MAX)) },
    NumberOption { availability: Availability::Never, ..emulated(ip(IP_UNICAST_IF), Rule::Within(i32::MIN, i32::MAX)) },
    NumberOption { availability: Availability::Never, ..emulated(ip(libc::IP_MINTTL), Rule::Within(0, 255)) },
    emulated(MULTICAST_TTL, Rule::Never(Errno::INVAL)),
    emulated(ip(libc::IP_MULTICAST_LOOP), Rule::Switch),
    emulated(ip(libc::IP_MULTICAST_ALL), Rule::Within(0, 1)),
    // Options of IPv6, for the same reasons.
    emulated(ipv6(2), Rule::Switch), // IPV6_2292PKTINFO
    emulated(ipv6(3), Rule::Switch), // IPV6_2292HOPOPTS
    emulated(ipv6(4), Rule::Switch), // IPV6_2292DSTOPTS
    emulated(ipv6(5), Rule::Switch), // IPV6_2292RTHDR
    emulated(ipv6(8), Rule::Switch), // IPV6_2292HOPLIMIT
    emulated(ipv6(libc::IPV6_FLOWINFO), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVPKTINFO), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVHOPLIMIT), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVHOPOPTS), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVRTHDR), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVDSTOPTS), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVPATHMTU), Rule::Switch),
    emulated(ipv6(IPV6_RECVFRAGSIZE), Rule::Switch),
    emulated(ipv6(libc::IPV6_ORIGDSTADDR), Rule::Switch),
    emulated(ipv6(libc::IPV6_MTU_DISCOVER), Rule::Within(0, 5)),
    emulated(ipv6(libc::IPV6_DONTFRAG), Rule::Switch),
    emulated(ipv6(libc::IPV6_RECVERR), Rule::Switch),
    emulated(ipv6(IPV6_RECVERR_RFC4884), Rule::Within(0, 1)),
    emulated(ipv6(libc::IPV6_FREEBIND), Rule::Switch),
    emulated(ipv6(IPV6_FLOWINFO_SEND), Rule::Switch),
    emulated(ipv6(IPV6_ROUTER_ALERT_ISOLATE), Rule::Switch),
    emulated(ipv6(libc::IPV6_TRANSPARENT), Rule::Switch),
    emulated(ipv6(libc::IPV6_AUTOFLOWLABEL), Rule::Switch),
    emulated(ipv6(libc::IPV6_ADDR_PREFERENCES), Rule::Forgotten(i32::MIN, i32::MAX)),
    emulated(MULTICAST_HOPS, Rule::Never(Errno::NOPROTOOPT)),
    emulated(ipv6(libc::IPV6_MULTICAST_LOOP), Rule::Within(0, 1)),
    emulated(ipv6(IPV6_MULTICAST_ALL), Rule::Within(0, 1)),
    NumberOption { availability: Availability::Never, ..emulated(ipv6(IPV6_UNICAST_IF), Rule::Within(i32::MIN, i32::MAX)) },
    NumberOption { availability: Availability::Never, ..emulated(ipv6(libc::IPV6_MINHOPCOUNT), Rule::Within(0, 255)) },
];

/// Fixed answers of a TCP connection within a node, as far as they are known.
#[rustfmt::skip]
pub(super) const FIXED: [Fixed; 31] = [
    fixed(ip(libc::IP_HDRINCL), Shown::Number(0), Err(Errno::NOPROTOOPT)),
    fixed(ip(libc::IP_NODEFRAG), Shown::Number(0), Err(Errno::NOPROTOOPT)),
    fixed(ip(libc::IP_ROUTER_ALERT), Shown::Number(0), Err(Errno::INVAL)),
    fixed(ip(IP_RECVFRAGSIZE), Shown::Number(0), Err(Errno::INVAL)),
    fixed(ip(libc::IP_MULTICAST_IF), Shown::Number(0), Err(Errno::INVAL)),
    fixed(ip(libc::IP_PKTOPTIONS), Shown::Nothing, Err(Errno::NOPROTOOPT)),
    fixed(ip(libc::IP_MTU), Shown::Number(ETHERNET), Err(Errno::NOPROTOOPT)),
    fixed(ip(16), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::PERM)), // IP_IPSEC_POLICY
    fixed(ip(17), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::PERM)), // IP_XFRM_POLICY
    fixed(ipv6(34), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::PERM)), // IPV6_IPSEC_POLICY
    fixed(ipv6(35), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::PERM)), // IPV6_XFRM_POLICY
    fixed(ipv6(libc::IPV6_ADDRFORM), Shown::Number(libc::AF_INET6), Err(Errno::INVAL)),
    fixed(ipv6(6), Shown::Nothing, Ok(())), // IPV6_2292PKTOPTIONS
    fixed(ipv6(libc::IPV6_MULTICAST_IF), Shown::Number(0), Err(Errno::NOPROTOOPT)),
    fixed(ipv6(libc::IPV6_ROUTER_ALERT), Shown::Number(0), Err(Errno::NOPROTOOPT)),
    fixed(ipv6(libc::IPV6_MTU), Shown::Number(ETHERNET), Ok(())),
    fixed(tcp(libc::TCP_REPAIR), Shown::Number(0), Err(Errno::PERM)),
    fixed(tcp(libc::TCP_REPAIR_QUEUE), Shown::Refused(Errno::INVAL), Err(Errno::PERM)),
    fixed(tcp(libc::TCP_QUEUE_SEQ), Shown::Refused(Errno::INVAL), Err(Errno::PERM)),
    fixed(tcp(TCP_REPAIR_WINDOW), Shown::Refused(Errno::INVAL), Err(Errno::PERM)),
    fixed(tcp(libc::TCP_REPAIR_OPTIONS), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::INVAL)),
    fixed(tcp(libc::TCP_TIMESTAMP), Shown::Number(0), Err(Errno::PERM)),
    fixed(tcp(libc::TCP_CC_INFO), Shown::Nothing, Err(Errno::NOPROTOOPT)),
    fixed(tcp(libc::TCP_SAVED_SYN), Shown::Nothing, Err(Errno::NOPROTOOPT)),
    fixed(tcp(libc::TCP_ULP), Shown::Nothing, Err(Errno::NOENT)),
    fixed(tcp(TCP_FASTOPEN_KEY), Shown::Nothing, Err(Errno::INVAL)),
    fixed(tcp(43), Shown::Number(0), Err(Errno::NOPROTOOPT)), // TCP_IS_MPTCP
    fixed(tcp(42), Shown::Refused(Errno::PERM), Err(Errno::PERM)), // TCP_AO_REPAIR
    fixed(tcp(libc::TCP_INFO), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::NOPROTOOPT)), // shown by `info`
    fixed(tcp(libc::TCP_MD5SIG), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::INVAL)),
    fixed(tcp(TCP_MD5SIG_EXT), Shown::Refused(Errno::NOPROTOOPT), Err(Errno::INVAL)),
];

/// Options whose bytes the kernel sends with each packet. No connection can keep any.
pub(super) const LISTS: [Name; 5] = [
    ip(libc::IP_OPTIONS),
    ipv6(libc::IPV6_HOPOPTS),
    ipv6(libc::IPV6_RTHDRDSTOPTS),
    ipv6(libc::IPV6_RTHDR),
    ipv6(libc::IPV6_DSTOPTS),
];

/// Options of [`FIXED`], and of neither table, that change a connection and cannot be read, or read as if they had not been
/// set.
#[rustfmt::skip]
const UNSEEN: [Name; 14] = [
    tcp(libc::TCP_MD5SIG), tcp(TCP_MD5SIG_EXT), tcp(libc::TCP_REPAIR), tcp(libc::TCP_REPAIR_QUEUE), tcp(libc::TCP_QUEUE_SEQ),
    tcp(TCP_REPAIR_WINDOW), tcp(libc::TCP_REPAIR_OPTIONS), tcp(libc::TCP_ULP), ip(16), ip(17), ipv6(34), ipv6(35),
    ipv6(libc::IPV6_ADDRFORM), ipv6(6),
];

/// Options that need `CAP_NET_RAW` or `CAP_NET_ADMIN`, and whether any program may turn them off.
const PRIVILEGED: [(Name, bool); 3] =
    [(socket(libc::SO_MARK), false), (ip(libc::IP_TRANSPARENT), true), (ipv6(libc::IPV6_TRANSPARENT), true)];

/// Whether a program needs a capability to set this option to this value.
pub(crate) fn is_privileged(name: Name, value: &[u8]) -> bool {
    let is_nothing = value.iter().all(|byte| *byte == 0);
    PRIVILEGED.iter().any(|(of, may_clear)| *of == name && !(*may_clear && is_nothing))
}

/// Options of multicast groups, which a stream has not: the numbers of IP, and of IPv6.
const GROUPS: [std::ops::RangeInclusive<i32>; 4] = [35..=48, 20..=21, 27..=28, 42..=48];

/// Whether the effect of this option on a connection is unknown, because it cannot be read, or is not in these tables.
pub(super) fn is_unseen(name: Name) -> bool {
    let is_known = NUMBERS.iter().any(|option| option.name == name)
        || FIXED.iter().any(|fixed| fixed.name == name)
        || LISTS.contains(&name)
        || [super::CONGESTION, super::MAXSEG].contains(&name);
    let [ip, ipv6 @ ..] = GROUPS;
    let is_group = match name.level {
        libc::IPPROTO_IP => ip.contains(&name.name),
        libc::IPPROTO_IPV6 => ipv6.iter().any(|names| names.contains(&name.name)),
        _ => false,
    };
    name.level != libc::SOL_SOCKET && (UNSEEN.contains(&name) || !is_known && !is_group)
}

/// Hop limits of packets, for one receiver and for many.
pub(super) const TTL: Name = ip(libc::IP_TTL);
pub(super) const MULTICAST_TTL: Name = ip(libc::IP_MULTICAST_TTL);
pub(super) const HOPS: Name = ipv6(libc::IPV6_UNICAST_HOPS);
pub(super) const MULTICAST_HOPS: Name = ipv6(libc::IPV6_MULTICAST_HOPS);

/// Ethernet's MTU, bytes.
pub(super) const ETHERNET: i32 = 1500;

// Options that the C library's headers lack (`include/uapi/linux/`).
const TCP_MD5SIG_EXT: i32 = 32;
const TCP_FASTOPEN_KEY: i32 = 33;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_REPAIR_WINDOW: i32 = 29;
const TCP_TX_DELAY: i32 = 37;
const IP_CHECKSUM: i32 = 23;
const IP_RECVFRAGSIZE: i32 = 25;
const IP_RECVERR_RFC4884: i32 = 26;
const IP_UNICAST_IF: i32 = 50;
const IP_LOCAL_PORT_RANGE: i32 = 51;
const IPV6_MULTICAST_ALL: i32 = 29;
const IPV6_ROUTER_ALERT_ISOLATE: i32 = 30;
const IPV6_RECVERR_RFC4884: i32 = 31;
const IPV6_FLOWINFO_SEND: i32 = 33;
const IPV6_UNICAST_IF: i32 = 76;
const IPV6_RECVFRAGSIZE: i32 = 77;
const SO_TXREHASH: i32 = 74;

/// The names of `SOL_SOCKET` among [`NUMBERS`].
pub(crate) const OF_SOCKETS: [i32; 5] =
    [libc::SO_REUSEPORT, libc::SO_ZEROCOPY, SO_TXREHASH, libc::SO_MARK, libc::SO_DONTROUTE];

const fn emulated(name: Name, rule: Rule) -> NumberOption {
    NumberOption { name, rule, availability: Availability::Always, is_real: false }
}

const fn real(name: Name, rule: Rule) -> NumberOption {
    NumberOption { is_real: true, ..emulated(name, rule) }
}

const fn fixed(name: Name, shown: Shown, set: Result<(), Errno>) -> Fixed {
    Fixed { name, shown, set }
}

pub(super) const fn tcp(name: i32) -> Name {
    Name { level: libc::IPPROTO_TCP, name }
}

const fn ip(name: i32) -> Name {
    Name { level: libc::IPPROTO_IP, name }
}

const fn ipv6(name: i32) -> Name {
    Name { level: libc::IPPROTO_IPV6, name }
}

const fn socket(name: i32) -> Name {
    Name { level: libc::SOL_SOCKET, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_of_one_table() {
        let mut names: Vec<Name> =
            NUMBERS.iter().map(|option| option.name).chain(FIXED.iter().map(|fixed| fixed.name)).collect();
        names.extend(LISTS);
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
        let of_sockets =
            NUMBERS.iter().filter(|option| option.name.level == libc::SOL_SOCKET).map(|option| option.name.name);
        assert_eq!(of_sockets.collect::<Vec<_>>(), OF_SOCKETS);
    }

    #[test]
    fn what_cannot_be_read_or_is_not_known_cannot_be_kept() {
        for name in [tcp(libc::TCP_MD5SIG), tcp(38), tcp(9999), ip(9999), ipv6(9999)] {
            assert!(is_unseen(name), "{name:?}");
        }
        for name in [tcp(libc::TCP_NODELAY), ip(libc::IP_MINTTL), ip(libc::IP_ADD_MEMBERSHIP), ip(libc::IP_OPTIONS)] {
            assert!(!is_unseen(name), "{name:?}");
        }
    }
}

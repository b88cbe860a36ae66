//! The calls of a node's programs that trap to the router.
//!
//! Reading, writing, waiting and closing never trap: an established connection costs nothing.

use std::os::fd::BorrowedFd;

use libc::c_long;
use slipway_sys::bpf::{
    FreeOption, FreeOptions, GuardedOptions, Interruptions, LoadError, SocketGuard, SocketStorage, ThreadCounts,
};
use slipway_sys::notify::Caller;
use slipway_sys::seccomp::{Trap, Verdict, When};
use slipway_verbs::untrusted::SO_PASSRIGHTS;

use crate::emulation::{FREE, HEARD, OF_SOCKETS, SELDOM, free};
use crate::metadata::OPTIONS;
use crate::timestamps;

/// The second argument of `getsockopt(2)` and `setsockopt(2)`, and of `ioctl(2)`.
const SECOND: u8 = 1;

/// Calls that set connections up, and that ask what a socket is.
const SOCKETS: &[c_long] = &[
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    // A pair's socket could otherwise get a name of Unix sockets, for which the kernel has no hook.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
];

/// Calls that the router notes and the kernel carries out, so that the router knows where a replaced socket may be
/// registered.
const EPOLLS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
];

/// Calls about a socket's options, some of which trap.
const OPTION_CALLS: &[c_long] = &[libc::SYS_getsockopt, libc::SYS_setsockopt];

/// Levels of socket options that a pair of Unix sockets, or a connection of the host's own network, would answer in another way.
const LEVELS: &[i32] = &[libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6];

/// Options of `SOL_SOCKET` that give away what a socket really is, or would change it.
const ASKED: &[i32] = &[
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_PASSCRED,
    libc::SO_PASSSEC,
    libc::SO_PASSPIDFD,
    SO_PASSRIGHTS,
    libc::SO_PEERCRED,
    libc::SO_PEERSEC,
    libc::SO_PEERGROUPS,
    libc::SO_PEERNAME,
    libc::SO_PEERPIDFD,
    libc::SO_MARK,
    libc::SO_BINDTODEVICE,
    libc::SO_BINDTOIFINDEX,
    libc::SO_NETNS_COOKIE,
];

/// Options that a rule may limit. They trap only when they are set, as do those that pass from a program's socket to its
/// replacement.
const SET: &[i32] = &[libc::SO_MAX_PACING_RATE, libc::SO_PRIORITY];

/// Packet filters, which trap only when they are set too: a program's own filter would see the host's packets.
pub(crate) const FILTERS: [i32; 2] = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF];

/// Requests about interfaces, addresses and routes (`include/uapi/linux/sockios.h`), which a socket answers for the network
/// namespace that it was made in: all of sockets' own from `SIOCGIFNAME` on, sixteen to a value.
const INTERFACES: &[u32] = &[
    0x8910, 0x8920, 0x8930, 0x8940, 0x8950, 0x8960, 0x8970, 0x8980, 0x8990, 0x89a0, 0x89b0, 0x89c0, 0x89d0, 0x89e0,
    0x89f0,
];
const SIXTEEN: u32 = !0xf;

/// Calls that send, with the position of their flags.
const SENDING: &[(c_long, u8)] = &[(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
/// A flag that connects while sending. Programs do without it where the kernel cannot (`tcp(7)`).
const FASTOPEN: u32 = 0x2000_0000;

/// The calls that the [`traps`] leave to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leave {
    /// Programs may use `io_uring`, past this filter.
    pub io_uring: bool,
    /// The [`guard`] takes the options of TCP that are set most.
    pub options: bool,
}

/// The trapped calls of programs in a node on a fast network, beside a default container's filter.
#[must_use]
pub fn traps(leave: Leave) -> Vec<Trap> {
    let mut traps: Vec<Trap> = SOCKETS.iter().chain(EPOLLS).map(|&call| Trap::every(call)).collect();
    if leave.options {
        let when = When::Pair { level: libc::IPPROTO_TCP, names: FREE.to_vec() };
        traps.push(Trap { call: libc::SYS_setsockopt, when, verdict: Verdict::Allow });
    }
    for (call, names) in [
        (libc::SYS_getsockopt, [ASKED, &OF_SOCKETS].concat()),
        (
            libc::SYS_setsockopt,
            [ASKED, &OF_SOCKETS, SET, &HEARD, &SELDOM.map(|(name, _)| name), &FILTERS, &timestamps::NAMES].concat(),
        ),
    ] {
        let levels = LEVELS.iter().map(|level| level.cast_unsigned()).collect();
        traps.push(notified(call, When::Argument { index: SECOND, mask: u32::MAX, values: levels }));
        traps.push(notified(call, When::Pair { level: libc::SOL_SOCKET, names }));
    }
    traps.push(notified(libc::SYS_ioctl, When::Argument { index: SECOND, mask: SIXTEEN, values: INTERFACES.to_vec() }));
    for &(call, index) in SENDING {
        let when = When::Argument { index, mask: FASTOPEN, values: vec![FASTOPEN] };
        traps.push(Trap { call, when, verdict: Verdict::Errno(libc::EOPNOTSUPP) });
    }
    if !leave.io_uring {
        traps.push(Trap { call: libc::SYS_io_uring_setup, when: When::Always, verdict: Verdict::Errno(libc::EPERM) });
    }
    traps
}

/// Guards the sockets that a router of the control group `group` hands out. Only the router may set options that a pair
/// answers differently, or that give away the kind of socket. So a program that slips such a socket into another's place,
/// past the router, gains nothing. With `metadata`, the most frequent options of TCP go to the kernel, or into the
/// metadata, without the router ([`Leave::options`]).
///
/// # Errors
/// As [`SocketGuard::attach`].
pub fn guard(group: BorrowedFd<'_>, metadata: Option<&SocketStorage>) -> Result<SocketGuard, LoadError> {
    let options: Vec<FreeOption> = free(OPTIONS).collect();
    let free = metadata.map(|storage| FreeOptions { level: libc::IPPROTO_TCP, options: &options, storage });
    let names: &[&[i32]] = &[ASKED, &OF_SOCKETS, SET, &FILTERS, &timestamps::NAMES];
    SocketGuard::attach(group, GuardedOptions { levels: LEVELS, names, free })
}

/// Counts interruptions of threads that wait for answers about sockets, for all routers of a lab. Routers then repeat
/// answers that did not arrive.
///
/// # Errors
/// The reason why they cannot be counted, on one line; as [`Interruptions::count`].
pub fn count_interruptions() -> Result<(ThreadCounts, Interruptions), String> {
    let this = Caller::open(rustix::thread::gettid().as_raw_nonzero().get()).map_err(|error| error.to_string())?;
    if !this.keeps_its_number() {
        return Err("before Linux 6.9 a thread cannot be held by a pidfd".to_owned());
    }
    let counts = ThreadCounts::create("slipway_signals").map_err(|error| error.to_string())?;
    // None that the kernel interrupts by itself where it is not heard of.
    let counted = [SOCKETS, OPTION_CALLS].concat();
    let counting = Interruptions::count(&counted, &counts).map_err(|error| {
        // The verifier's output follows.
        error.to_string().lines().next().unwrap_or_default().to_owned()
    })?;
    Ok((counts, counting))
}

/// `RDMA_VERBS_IOCTL` (`include/uapi/rdma/rdma_user_ioctl_cmds.h`).
pub(crate) const VERBS: u32 = 0xc018_1b01;

/// The first of the descriptor numbers that programs get for channels of connection management (`rdma_cm(7)`). There are
/// [`CHANNELS`] of them, below the 1,024 descriptors that a process has by default.
pub(crate) const FIRST_CHANNEL: u32 = 960;

/// Most channels of one process: a power of two that [`FIRST_CHANNEL`] is a multiple of.
pub(crate) const CHANNELS: u32 = 64;

/// The flags that librdmacm opens its device with (`open_cdev`, `util/open_cdev.c` of rdma-core).
pub(crate) const OPENS: i32 = libc::O_RDWR | libc::O_CLOEXEC;

/// `NETLINK_RDMA` (`include/uapi/linux/netlink.h`).
const NETLINK_RDMA: i32 = 20;

/// The trapped calls about RDMA, of programs in nodes that have such a device. These are the control commands that libibverbs
/// sends past its plug-in, `openat` with librdmacm's flags, and calls on a window of descriptors.
///
/// A kernel with devices of its own would list those by netlink. Programs get the answer of a kernel without, so libibverbs and
/// librdmacm read `/sys/class` (`ibverbs_get_device_list`, `libibverbs/init.c` of rdma-core).
#[must_use]
pub fn rdma_traps() -> Vec<Trap> {
    let window = |index| When::Argument { index, mask: !(CHANNELS - 1), values: vec![FIRST_CHANNEL] };
    let flags = When::Argument { index: 2, mask: u32::MAX, values: vec![OPENS.cast_unsigned()] };
    vec![
        notified(libc::SYS_ioctl, When::Argument { index: SECOND, mask: u32::MAX, values: vec![VERBS] }),
        notified(libc::SYS_openat, flags),
        notified(libc::SYS_write, window(0)),
        notified(libc::SYS_fstat, window(0)),
        notified(libc::SYS_newfstatat, window(0)),
        Trap {
            call: libc::SYS_socket,
            when: When::Socket { family: libc::AF_NETLINK, protocols: vec![NETLINK_RDMA] },
            verdict: Verdict::Errno(libc::EPROTONOSUPPORT),
        },
    ]
}

fn notified(call: c_long, when: When) -> Trap {
    Trap { call, when, verdict: Verdict::Notify }
}

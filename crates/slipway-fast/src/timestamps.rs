//! Time stamps of packets that were sent (`SO_TIMESTAMPING`, `Documentation/networking/timestamping.rst`).
//!
//! The kernel returns each with the packet and its headers, which between hosts are the hosts', unless a socket asks for
//! time stamps alone. A message can ask for its own (`cmsg(3)`) without a trapped call. So the router sets the option
//! before it hands sockets out.

use std::io;
use std::os::fd::AsFd;

use slipway_sys::sockopt::{self, Name};

/// The option, and its form where time is longer than words (`SO_TIMESTAMPING_NEW`).
pub(crate) const NAMES: [i32; 2] = [libc::SO_TIMESTAMPING, 65];

/// `SO_TIMESTAMP_NEW` and `SO_TIMESTAMPNS_NEW`: time stamps of received data.
pub(crate) const TIMESTAMP_WIDE: i32 = 63;
pub(crate) const TIMESTAMPNS_WIDE: i32 = 64;

/// `SOF_TIMESTAMPING_OPT_TSONLY` (`include/uapi/linux/net_tstamp.h`).
const ALONE: u32 = 1 << 11;

/// Sets the option of this name as a program asks, but without packets.
///
/// # Errors
/// As `setsockopt(2)`.
pub(crate) fn set(socket: impl AsFd, name: i32, asked: &[u8]) -> io::Result<()> {
    let mut value = asked.to_vec();
    if let Some(flags) = value.first_chunk_mut() {
        *flags = (u32::from_ne_bytes(*flags) | ALONE).to_ne_bytes();
    }
    sockopt::set(socket, Name { level: libc::SOL_SOCKET, name }, &value)
}

/// Whether time stamps are asked for.
pub(crate) fn is_on(socket: impl AsFd) -> bool {
    let [name, _] = NAMES;
    sockopt::int(socket, Name { level: libc::SOL_SOCKET, name }).is_ok_and(|asked| asked.cast_unsigned() & !ALONE != 0)
}

/// Gives a new socket the option of the one that it replaces; `changed`: whether a program may have set it.
///
/// # Errors
/// As [`set`].
pub(crate) fn carry(from: impl AsFd, to: impl AsFd, changed: bool) -> io::Result<()> {
    let [name, wide] = NAMES;
    if !changed {
        return set(to, name, &0_u32.to_ne_bytes());
    }
    let number = |name| sockopt::int(&from, Name { level: libc::SOL_SOCKET, name });
    // The one that is set last decides the word length of all time stamps (`SOCK_TSTAMP_NEW`).
    let is_wide = [wide, TIMESTAMP_WIDE, TIMESTAMPNS_WIDE].into_iter().any(|name| number(name).is_ok_and(|on| on != 0));
    set(to, if is_wide { wide } else { name }, &number(name)?.to_ne_bytes())
}

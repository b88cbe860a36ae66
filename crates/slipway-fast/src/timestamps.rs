//! Time stamps of packets that were sent (`SO_TIMESTAMPING`, `Documentation/networking/timestamping.rst`).
//!
//! The kernel gives each with the packet, headers and all, which between hosts are the hosts', unless a socket is to have time stamps
//! alone. A message can ask for its own (`cmsg(3)`), where nobody hears of it; so sockets are told before they are handed out.

use std::io;
use std::os::fd::AsFd;

use slipway_sys::sockopt::{self, Name};

/// The option, and as it is where time is longer than words are (`SO_TIMESTAMPING_NEW`).
pub(crate) const NAMES: [i32; 2] = [libc::SO_TIMESTAMPING, 65];

/// `SOF_TIMESTAMPING_OPT_TSONLY` (`include/uapi/linux/net_tstamp.h`).
const ALONE: u32 = 1 << 11;

/// Sets the option of this name as a program asks for, but for packets.
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

/// Gives a new socket what was asked of the one that it takes the place of; `changed`: whether something may have been.
///
/// # Errors
/// As [`set`].
pub(crate) fn carry(from: impl AsFd, to: impl AsFd, changed: bool) -> io::Result<()> {
    let [name, _] = NAMES;
    let asked = if changed { sockopt::int(from, Name { level: libc::SOL_SOCKET, name })? } else { 0 };
    set(to, name, &asked.to_ne_bytes())
}

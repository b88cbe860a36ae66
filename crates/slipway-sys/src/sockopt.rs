//! Options of sockets by number, as bytes: for carrying out somebody else's `getsockopt(2)` and `setsockopt(2)`, whose level
//! and name are theirs. For options of our own there is `rustix::net::sockopt`, which knows their types.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// An option: its level (`SOL_SOCKET`, `IPPROTO_TCP`, …) and its name within that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// `SOL_SOCKET` or a protocol's number.
    pub level: i32,
    /// Within the level.
    pub name: i32,
}

/// Reads an option into `value`, and says how many bytes it has.
///
/// # Errors
/// As `getsockopt(2)`: `ENOPROTOOPT` where the socket has no such option.
#[allow(unsafe_code)]
pub fn get(socket: impl AsFd, Name { level, name }: Name, value: &mut [u8]) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is `len` bytes of ours that the kernel may write, and it writes no more than that (`put_user` of the
    // length that it used, `net/core/sock.c`); `len` outlives the call.
    let result =
        unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if result == 0 { Ok(value.len().min(len as usize)) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option.
///
/// # Errors
/// As `setsockopt(2)`.
#[allow(unsafe_code)]
pub fn set(socket: impl AsFd, Name { level, name }: Name, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is `len` bytes that outlive the call; the kernel copies them. Options whose value holds addresses
    // itself (`SO_ATTACH_FILTER`, tables of iptables) are read by the kernel with its own checks of this process's memory
    // (`copy_from_user`), and only ever read.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is one `int`.
///
/// # Errors
/// As [`get`].
pub fn int(socket: impl AsFd, name: Name) -> io::Result<i32> {
    let mut value = [0; 4];
    get(socket, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    const NODELAY: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_NODELAY };

    #[test]
    fn an_option_is_read_as_it_was_set() {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        assert_eq!(int(&tcp, NODELAY).expect("TCP has it"), 0);
        set(&tcp, NODELAY, &1_i32.to_ne_bytes()).expect("it can be set");
        assert_eq!(int(&tcp, NODELAY).expect("TCP has it"), 1);
        let mut name = [0; 64];
        let congestion = Name { level: libc::IPPROTO_TCP, name: libc::TCP_CONGESTION };
        assert!(get(&tcp, congestion, &mut name).expect("TCP has it") <= 64 && name[0] != 0);
    }

    #[test]
    fn a_socket_without_it_says_so() {
        let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        assert_eq!(int(&unix, NODELAY).expect_err("no TCP").raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}

//! Options of sockets by number, as bytes: for carrying out somebody else's `getsockopt(2)` and `setsockopt(2)`, whose level
//! and name are theirs. For options of our own there is `rustix::net::sockopt`, which knows their types.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// An option: its level (`SOL_SOCKET`, `IPPROTO_TCP`, …) and its name within that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// `SOL_SOCKET` or a protocol's number.
    pub level: i32,
    /// Within the level.
    pub name: i32,
}

/// Whose length counts instructions (`sk_get_filter`, `net/core/filter.c`); to set it, it has another name.
const SO_GET_FILTER: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_ATTACH_FILTER };

/// Reads an option into `value`, and says how many bytes it has.
///
/// # Errors
/// As `getsockopt(2)`: `ENOPROTOOPT` where the socket has no such option. `InvalidInput` for `SO_GET_FILTER`, whose length is none
/// in bytes: see [`has_filter`].
#[allow(unsafe_code)]
pub fn get(socket: impl AsFd, option: Name, value: &mut [u8]) -> io::Result<usize> {
    if option == SO_GET_FILTER {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let Name { level, name } = option;
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

/// Whether packets that come to a socket pass a filter first (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF` in `socket(7)`).
///
/// # Errors
/// As `getsockopt(2)`.
#[allow(unsafe_code)]
pub fn has_filter(socket: impl AsFd) -> io::Result<bool> {
    let Name { level, name } = SO_GET_FILTER;
    let mut len = 0;
    // SAFETY: where there is room for nothing the kernel writes nothing but the number of instructions, to `len`, which outlives the
    // call.
    let result =
        unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::null_mut(), &raw mut len) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(len > 0),
        // It is not one of classic BPF, and cannot be shown.
        error if error.raw_os_error() == Some(libc::EACCES) => Ok(true),
        error => Err(error),
    }
}

/// Has a socket drop all packets that come, by a filter that passes none, or pass them again.
///
/// # Errors
/// As `setsockopt(2)`: `ENOENT` where there is no filter to take away.
#[allow(unsafe_code)]
pub fn set_deaf(socket: impl AsFd, is_deaf: bool) -> io::Result<()> {
    if !is_deaf {
        return set(socket, Name { level: libc::SOL_SOCKET, name: libc::SO_DETACH_FILTER }, &[0; 4]);
    }
    let (code, k) = (u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap_or_default(), 0);
    let mut none = [libc::sock_filter { code, jt: 0, jf: 0, k }];
    let program = libc::sock_fprog { len: 1, filter: none.as_mut_ptr() };
    let len = libc::socklen_t::try_from(size_of_val(&program)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let at = (&raw const program).cast();
    let Name { level, name } = SO_GET_FILTER;
    // SAFETY: the program and its one instruction outlive the call; the kernel copies both.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, at, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens the process of a unix socket's peer (`SO_PEERPIDFD`, `unix(7)`).
///
/// # Errors
/// As [`get`]: `ENODATA` where it has no peer; `ENOPROTOOPT` before Linux 6.5.
#[allow(unsafe_code)]
pub fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    let pidfd = int(socket, Name { level: libc::SOL_SOCKET, name: libc::SO_PEERPIDFD })?;
    // SAFETY: on success the kernel made a new descriptor that nobody else owns (`sk_getsockopt`, net/core/sock.c).
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    const NODELAY: Name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_NODELAY };

    #[test]
    fn a_deaf_socket_hears_nothing_until_it_hears_again() {
        use rustix::net::{RecvFlags, SendFlags, SocketFlags, recv, send, socketpair};
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).expect("a pair");
        let say = |byte: u8| send(&one, &[byte], SendFlags::empty()).map(drop);
        let hear = || recv(&other, &mut [0_u8; 1], RecvFlags::empty()).is_ok();
        set_deaf(&other, true).expect("it becomes deaf");
        let _ = say(1);
        assert!(has_filter(&other).expect("it is asked") && !hear());
        set_deaf(&other, false).expect("it hears again");
        say(2).expect("it is sent");
        assert!(!has_filter(&other).expect("it is asked") && hear());
    }

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
    fn filters_are_seen() {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        assert!(!has_filter(&tcp).expect("it can be asked"));
        // `ret #0xffffffff`: all pass.
        let mut code = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
        let mut program = [0; 16];
        program[..2].copy_from_slice(&1_u16.to_ne_bytes());
        program[8..].copy_from_slice(&(&raw mut code).addr().to_ne_bytes());
        set(&tcp, SO_GET_FILTER, &program).expect("attached");
        assert!(has_filter(&tcp).expect("it can be asked"));
        let error = get(&tcp, SO_GET_FILTER, &mut [0; 64]).expect_err("its length is none in bytes");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_process_of_a_peer_is_opened() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let process = peer_process(&one).expect("Linux 6.5");
        let link = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).expect("it is open");
        assert!(link.contains(&format!("Pid:\t{}\n", std::process::id())), "{link}");
    }

    #[test]
    fn a_socket_without_it_says_so() {
        let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        assert_eq!(int(&unix, NODELAY).expect_err("no TCP").raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}

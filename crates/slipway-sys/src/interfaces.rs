//! Questions about network interfaces (`netdevice(7)`), by number and as bytes: for asking them in somebody else's place. A
//! socket answers for the network namespace that it was made in.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd as _};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// `struct ifreq` (`include/uapi/linux/if.h`): an interface's name, then what is asked for.
pub type Question = [u8; 40];

/// Asks for all interfaces that have addresses.
pub const SIOCGIFCONF: u32 = 0x8912;

/// Those that read and write a [`Question`] and nothing else, and change nothing (`include/uapi/linux/sockios.h`).
const QUESTIONS: &[u32] = &[
    0x8910, // SIOCGIFNAME
    0x8913, // SIOCGIFFLAGS
    0x8915, // SIOCGIFADDR
    0x8917, // SIOCGIFDSTADDR
    0x8919, // SIOCGIFBRDADDR
    0x891b, // SIOCGIFNETMASK
    0x891d, // SIOCGIFMETRIC
    0x8921, // SIOCGIFMTU
    0x8927, // SIOCGIFHWADDR
    0x8933, // SIOCGIFINDEX
    0x8942, // SIOCGIFTXQLEN
    0x8970, // SIOCGIFMAP
];

/// The name of the interface that has an address, in the caller's network namespace (`getifaddrs(3)`).
///
/// # Errors
/// As `getifaddrs(3)`.
pub fn with_address(address: IpAddr) -> io::Result<Option<String>> {
    let ip = |of: &SockaddrStorage| {
        let v4 = of.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| of.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    };
    let mut all = getifaddrs()?;
    Ok(all.find(|of| of.address.as_ref().and_then(ip) == Some(address)).map(|of| of.interface_name))
}

/// The first IPv4 address in the caller's network namespace that is not the loopback's (`getifaddrs(3)`).
///
/// # Errors
/// As `getifaddrs(3)`.
pub fn own_ipv4() -> io::Result<Option<Ipv4Addr>> {
    let mut all = getifaddrs()?.filter_map(|of| Some(of.address.as_ref()?.as_sockaddr_in()?.ip()));
    Ok(all.find(|address| !address.is_loopback()))
}

/// All addresses in the caller's network namespace that other machines may reach, IPv4 first: none of the loopback, and
/// none that holds on one link alone (`getifaddrs(3)`).
///
/// # Errors
/// As `getifaddrs(3)`.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for of in getifaddrs()?.filter_map(|of| of.address) {
        let v6 = of.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::ip).filter(|v6| !v6.is_unicast_link_local());
        let Some(address) = of.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip())).or(v6.map(IpAddr::from)) else {
            continue;
        };
        if !address.is_loopback() && !found.contains(&address) {
            found.push(address);
        }
    }
    found.sort_by_key(IpAddr::is_ipv6);
    Ok(found)
}

/// `struct ifconf` (`include/uapi/linux/if.h`).
#[repr(C)]
struct Ifconf {
    length: libc::c_int,
    room: *mut u8,
}

/// The greatest length of a list, in bytes.
const LONGEST: usize = 64 * 1024;

/// Whether a request is one for [`ask`].
#[must_use]
pub fn is_question(request: u32) -> bool {
    QUESTIONS.contains(&request)
}

/// Asks about one interface; the answer takes the question's place.
///
/// # Errors
/// `InvalidInput` for a request that [is none](is_question); otherwise as `netdevice(7)`: `ENODEV` where there is no such
/// interface.
#[allow(unsafe_code)]
pub fn ask(socket: impl AsFd, request: u32, question: &mut Question) -> io::Result<()> {
    if !is_question(request) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: each of these requests reads and writes one `struct ifreq`, which outlives the call, and takes no address from it.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request.into(), question.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lists interfaces and their IPv4 addresses, as one [`Question`] after the other, in at most `room` bytes.
///
/// # Errors
/// As `netdevice(7)`.
#[allow(unsafe_code)]
pub fn list(socket: impl AsFd, room: usize) -> io::Result<Vec<u8>> {
    let mut list = vec![0_u8; room.min(LONGEST)];
    let length = i32::try_from(list.len()).map_err(io::Error::other)?;
    let mut asked = Ifconf { length, room: list.as_mut_ptr() };
    // SAFETY: the kernel writes at most `length` bytes at `room`, which is `list`, and to `asked`; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGIFCONF.into(), &raw mut asked) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    list.truncate(usize::try_from(asked.length).unwrap_or_default());
    Ok(list)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let listed = list(&socket, 4096).expect("listed");
        assert!(listed.as_chunks::<40>().0.iter().any(|one| one.starts_with(b"lo\0")), "{listed:?}");
        assert_eq!(list(&socket, 39).expect("no room"), []);
        let mut question = [0; 40];
        question[..2].copy_from_slice(b"lo");
        ask(&socket, 0x8933, &mut question).expect("it has a number");
        assert_eq!(question[16..20], 1_i32.to_ne_bytes());
        assert_eq!(ask(&socket, 0x8934, &mut question).expect_err("no question").kind(), io::ErrorKind::InvalidInput);
        question[..4].copy_from_slice(b"none");
        assert_eq!(ask(&socket, 0x8933, &mut question).expect_err("not there").raw_os_error(), Some(libc::ENODEV));
    }
}

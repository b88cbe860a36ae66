//! Addresses in the form that programs pass: the bytes of a `struct sockaddr`, with a length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The longest address that the kernel takes (`struct sockaddr_storage`), bytes.
pub(crate) const LONGEST: usize = 128;

/// `sizeof(struct sockaddr_in)`.
const INET: usize = 16;
/// `SIN6_LEN_RFC2133` (`include/uapi/linux/in6.h`): programs may leave the scope out.
const INET6_SHORTEST: usize = 24;
/// `sizeof(struct sockaddr_in6)`.
const INET6: usize = 28;

/// An address that a program passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// An IP address and port.
    Ip(SocketAddr),
    /// `AF_UNSPEC`: the program dissolves the connection.
    Unspecified,
    /// An address of another family, or too short: the kernel handles it.
    Other,
}

impl Address {
    /// Reads the bytes of a `struct sockaddr` (`ip(7)`, `ipv6(7)`).
    #[must_use]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let Some(family) = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family)) else { return Self::Other };
        match i32::from(family) {
            libc::AF_UNSPEC => Self::Unspecified,
            libc::AF_INET if bytes.len() >= INET => {
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Self::Ip(SocketAddr::from((ip, u16::from_be_bytes([bytes[2], bytes[3]]))))
            }
            libc::AF_INET6 if bytes.len() >= INET6_SHORTEST => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                Self::Ip(SocketAddr::from((Ipv6Addr::from(ip), u16::from_be_bytes([bytes[2], bytes[3]]))))
            }
            _ => Self::Other,
        }
    }
}

/// The bytes of a `struct sockaddr_in` or `sockaddr_in6`.
#[must_use]
pub(crate) fn write(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(INET6);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend(u16::try_from(family).unwrap_or_default().to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.resize(INET, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// The address as a socket of IPv6, or of IPv4, shows it: mapped (RFC 4291, 2.5.5.2) where the socket is of IPv6 and the
/// address is not.
#[must_use]
pub(crate) fn shown(address: SocketAddr, ipv6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if ipv6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        other => other,
    }
}

/// An address as one of IPv6: mapped where it is not.
#[must_use]
pub(crate) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The address itself, of IPv4 where it is mapped into IPv6.
#[must_use]
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(ip: IpAddr, port: u16) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(Address::read(&write(address)), Address::Ip(address));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..LONGEST)) {
            let _ = Address::read(&bytes);
        }

        #[test]
        fn mapped_and_back(ip: Ipv4Addr, port: u16) {
            let address = SocketAddr::from((ip, port));
            prop_assert!(shown(address, true).is_ipv6());
            prop_assert_eq!(canonical(shown(address, true)), address);
            prop_assert_eq!(shown(address, false), address);
        }
    }

    #[test]
    fn short_ones_are_not_ours() {
        let bytes = write("10.0.0.1:80".parse().expect("an address"));
        assert_eq!(Address::read(&bytes[..15]), Address::Other);
        assert_eq!(Address::read(&[]), Address::Other);
        assert_eq!(Address::read(&[0, 0]), Address::Unspecified);
    }
}

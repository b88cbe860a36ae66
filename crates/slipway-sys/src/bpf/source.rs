//! Sockets that send from an address of their control group's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{LoadError, Object, Ready};

const NAME: &str = "source_address";
static OBJECT: Object = Object::new(NAME, include_bytes!("../../bpf/source.bpf.o"));
/// `MOST` of the program: addresses of each family. Those of IPv4 are also among those of IPv6.
const MOST: usize = 8;
const PROGRAMS: [&str; 4] = ["connect4", "connect6", "send4", "send6"];

/// An address, and the subnet to whose other addresses packets come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceAddress {
    /// An address of this machine.
    pub address: IpAddr,
    /// The length of its subnet's prefix, bits.
    pub prefix: u8,
}

/// Gives sockets of a version 2 control group, and of groups within it, their source address. It does so for TCP and
/// UDP sockets that are connected without having been bound, and for UDP sockets bound to no address that send. Only
/// towards the subnets named; all else is as the routes say.
///
/// A socket that its program bound to a port, but to no address, cannot be given one as it is connected, nor can one of ICMP. These
/// follow the route, which rules may choose by the mark.
///
/// Lasts as long as this value; sockets that have an address by then keep it.
#[derive(Debug)]
pub struct SourceAddresses {
    _links: Vec<OwnedFd>,
}

impl SourceAddresses {
    /// Gives the sockets of the group whose folder is `group` these source addresses, and a mark (`SO_MARK`) to those that are made
    /// from now on.
    ///
    /// # Errors
    /// [`LoadError`]; needs `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 5.7.
    pub fn attach(group: BorrowedFd<'_>, own: &[SourceAddress], mark: u32) -> Result<Self, LoadError> {
        let mut links = Vec::new();
        for own in own.chunks(MOST) {
            let ready = ready(own, mark)?;
            for program in PROGRAMS {
                links.push(ready.attach(program, group)?);
            }
        }
        links.push(ready(&[], mark)?.attach("set_mark", group)?);
        Ok(Self { _links: links })
    }

    /// Whether the kernel takes such programs; nothing is attached.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn probe() -> Result<(), LoadError> {
        let own = [
            SourceAddress { address: Ipv4Addr::new(10, 64, 0, 1).into(), prefix: 16 },
            SourceAddress { address: Ipv6Addr::LOCALHOST.into(), prefix: 64 },
        ];
        let ready = ready(&own, 0)?;
        PROGRAMS.iter().try_for_each(|program| ready.load(program).map(drop))
    }
}

/// The programs for at most [`MOST`] addresses.
fn ready(own: &[SourceAddress], mark: u32) -> Result<Ready, LoadError> {
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    for &SourceAddress { address, prefix } in own {
        match address {
            IpAddr::V4(address) => {
                ipv4.extend(entry(&address.octets(), prefix));
                // A socket of IPv6 that is connected to an address of IPv4, written as one of IPv6.
                ipv6.extend(entry(&address.to_ipv6_mapped().octets(), 96 + prefix));
            }
            IpAddr::V6(address) => ipv6.extend(entry(&address.octets(), prefix)),
        }
    }
    let padded = |mut entries: Vec<u8>, bytes: usize| {
        let count = u32::try_from(entries.len() / bytes).unwrap_or_default().to_ne_bytes();
        entries.resize(bytes * MOST, 0);
        (entries, count)
    };
    let ((ipv4, ipv4_count), (ipv6, ipv6_count)) = (padded(ipv4, 3 * 4), padded(ipv6, 3 * 16));
    let mark = mark.to_ne_bytes();
    let constants = [
        ("ipv4", ipv4.as_slice()),
        ("ipv4_count", &ipv4_count),
        ("ipv6", &ipv6),
        ("ipv6_count", &ipv6_count),
        ("mark", &mark),
    ];
    OBJECT.with(&constants, &[])
}

/// `struct own4` or `struct own6`: mask, subnet and address, in network byte order.
fn entry(address: &[u8], prefix: u8) -> Vec<u8> {
    let mask: Vec<u8> = (0..address.len())
        .map(|byte| u32::from(prefix).saturating_sub(8 * u32::try_from(byte).unwrap_or(u32::MAX)).min(8))
        .map(|bits| (0xff_u16 << (8 - bits)).to_le_bytes()[0])
        .collect();
    let subnet: Vec<u8> = address.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
    [&mask, &subnet, address].concat()
}

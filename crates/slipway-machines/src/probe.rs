//! Probes between machines: datagrams to the port of tunnels, which a machine hears even where the kernel's own tunnels have
//! the port.
//!
//! A raw socket gets a copy of each datagram that has passed the machine's firewall (`raw(7)`). The kernel's tunnels drop
//! a probe: it lacks the flag that a VXLAN header has (RFC 7348, section 5).

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover, set_socket_recv_buffer_size_force};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};
use slipway_engine::network::TUNNEL_PORT;

use crate::message::Packet;

/// Beginning of a probe. Its first byte has no flag of a VXLAN header.
const MARK: &[u8; 8] = b"SLIPWAY?";
/// Sizes of probes: packets with their IP header, bytes. Tunnels need 1500 by default, and machines may carry more.
const SIZES: [u16; 7] = [1280, 1400, 1450, 1492, 1500, 4000, 9000];
/// Probes of each size: one may be lost.
const TIMES: usize = 3;
/// Bytes of an IPv4 header without options, and of a UDP header.
const HEADERS: (usize, usize) = (20, 8);
/// Room for all that comes at once, bytes.
const ROOM: usize = 4 << 20;
/// A probe that has not come so long after another has is lost.
const QUIET: Duration = Duration::from_millis(300);
/// Longest time to listen.
const LONGEST: Duration = Duration::from_secs(3);

/// Hears probes of one kind.
#[derive(Debug)]
pub(crate) struct Ear {
    socket: OwnedFd,
    number: u64,
}

impl Ear {
    /// Listens from now on. `number` is that of the probes.
    pub(crate) fn open(number: u64) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP))?;
        set_socket_recv_buffer_size_force(&socket, ROOM)?;
        Ok(Self { socket, number })
    }

    /// All probes that have come, once no more do.
    pub(crate) fn heard(self) -> io::Result<Vec<Packet>> {
        let (mut heard, mut bytes) = (BTreeSet::new(), vec![0; usize::from(u16::MAX)]);
        let begin = Instant::now();
        let mut last = begin;
        loop {
            match recv(&self.socket, bytes.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(packet) = read(&bytes[..length], self.number) {
                        heard.insert(packet);
                        last = Instant::now();
                    }
                    if begin.elapsed() > LONGEST {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = (last + QUIET).min(begin + LONGEST).saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let left = Timespec::try_from(left).map_err(io::Error::other)?;
                    let _ = poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)], Some(&left));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(heard.into_iter().collect())
    }
}

/// Sends probes from one address to others.
pub(crate) fn send(number: u64, from: Ipv4Addr, to: &[Ipv4Addr]) -> io::Result<()> {
    let socket = UdpSocket::bind((from, 0))?;
    // No packet is to come in pieces, whatever the kernel knows of the path.
    set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
    for size in SIZES {
        let mut bytes = MARK.to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.resize(usize::from(size) - HEADERS.0 - HEADERS.1, 0);
        for &to in to {
            for _ in 0..TIMES {
                // One that cannot leave does not arrive, and that is the finding.
                let _ = socket.send_to(&bytes, (to, TUNNEL_PORT));
            }
        }
    }
    Ok(())
}

/// The probe that a packet is, with its IP header. Any program may have sent it.
fn read(packet: &[u8], number: u64) -> Option<Packet> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let from: [u8; 4] = *packet.get(12..)?.first_chunk()?;
    let (udp, payload) = packet.get(header.max(HEADERS.0)..)?.split_at_checked(HEADERS.1)?;
    let (mark, rest) = payload.split_first_chunk::<8>()?;
    let (own, _) = rest.split_first_chunk::<8>()?;
    let is_probe = mark == MARK && u64::from_be_bytes(*own) == number && udp[2..4] == TUNNEL_PORT.to_be_bytes();
    let bytes = u16::try_from(packet.len()).ok()?;
    (is_probe && SIZES.contains(&bytes)).then(|| Packet { from: from.into(), bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn probes_are_heard_with_their_size_and_sender() {
        let ear = Ear::open(5).expect("root may listen");
        let here = Ipv4Addr::LOCALHOST;
        send(6, here, &[here]).expect("sent");
        send(5, here, &[here]).expect("sent");
        let all: Vec<Packet> = SIZES.iter().map(|&bytes| Packet { from: here, bytes }).collect();
        assert_eq!(ear.heard().expect("heard"), all);
    }

    proptest! {
        #[test]
        fn other_packets_are_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(read(&bytes, 5), None);
        }
    }
}

//! Facts about a frame that a link needs. Every byte comes from a container: nothing is trusted, whatever is not
//! understood is `None`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipway_sys::tap::VnetHeader;

use slipway_lab::scenario::Direction;

/// Ethernet's: two addresses and a type.
const ETHERNET: usize = 14;
/// Bytes that a VLAN tag adds before the type (IEEE 802.1Q).
const VLAN: usize = 4;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const TYPE_IPV6: u16 = 0x86dd;

/// The other end of a frame: whom it is for, or whom it is from. Of ARP and neighbour discovery (RFC 4861, solicitations)
/// it is the node that is looked for or that asks.
#[must_use]
pub fn peer(frame: &[u8], direction: Direction) -> Option<IpAddr> {
    let mut at = ETHERNET - 2;
    // Two tags at most (IEEE 802.1ad).
    for _ in 0..2 {
        if matches!(u16_at(frame, at)?, TYPE_VLAN | TYPE_SERVICE_VLAN) {
            at += VLAN;
        }
    }
    let packet = frame.get(at + 2..)?;
    match (u16_at(frame, at)?, direction) {
        (TYPE_IPV4, Direction::Egress) => ipv4(packet, 16),
        (TYPE_IPV4, Direction::Ingress) => ipv4(packet, 12),
        // Protocol addresses of Ethernet and IPv4 (RFC 826).
        (TYPE_ARP, Direction::Egress) => ipv4(packet, 24),
        (TYPE_ARP, Direction::Ingress) => ipv4(packet, 14),
        (TYPE_IPV6, Direction::Egress) => solicited(packet).or_else(|| ipv6(packet, 24)),
        (TYPE_IPV6, Direction::Ingress) => ipv6(packet, 8),
        _ => None,
    }
}

/// Bytes of each of the packets that a frame becomes, in order: those of a large segment carry its headers each, as the
/// kernel counts them (`qdisc_pkt_len_init`, `net/core/dev.c`).
#[must_use]
pub fn packets(header: &VnetHeader, frame: &[u8]) -> impl ExactSizeIterator<Item = u32> + use<> {
    let length = frame.len();
    let (headers, size) = match header.headers(frame).map(|headers| headers.min(length)) {
        Some(headers) => (headers, usize::from(header.gso_size).max(1)),
        None => (0, length.max(1)),
    };
    let payload = length - headers;
    // One without payload is a packet too.
    let count = u32::try_from(payload.div_ceil(size).max(1)).unwrap_or(u32::MAX);
    (0..count).map(move |number| {
        let left = payload - (number as usize * size).min(payload);
        u32::try_from(headers + left.min(size)).unwrap_or(u32::MAX)
    })
}

/// Turns one bit over, behind the Ethernet header where there is anything: `place` is a share of those bits.
/// A checksum that was left to do is done first, so that the receiver can see the damage.
pub fn damage(read: &mut [u8], place: f64) {
    let Some((mut header, _)) = VnetHeader::parse(read) else { return };
    let (before, frame) = read.split_at_mut(VnetHeader::LEN);
    if header.complete_checksum(frame) {
        // Nor is it to be taken for verified any more.
        header.flags &= !VnetHeader::DATA_VALID;
        before.copy_from_slice(&header.to_bytes());
    }
    let from = if frame.len() > ETHERNET { ETHERNET } else { 0 };
    let bits = (frame.len() - from) * 8;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of at most half a million bits"
    )]
    let bit = (place * bits as f64) as usize;
    if let Some(byte) = frame.get_mut(from + bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// The target of a neighbour solicitation, which goes to a multicast address.
fn solicited(packet: &[u8]) -> Option<IpAddr> {
    const ICMPV6: u8 = 58;
    const SOLICITATION: u8 = 135;
    let is = *packet.get(6)? == ICMPV6 && *packet.get(24)? == 0xff && *packet.get(40)? == SOLICITATION;
    is.then(|| ipv6(packet, 48)).flatten()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn ipv4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes).into())
}

fn ipv6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    bytes.get(at..)?.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(tags: &[u16], ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_other_end_of_each_kind_of_frame() {
        let mut ipv4 = vec![0x45; 12];
        ipv4.extend([10, 64, 0, 1, 10, 64, 0, 2]);
        for tags in [&[][..], &[TYPE_VLAN], &[TYPE_SERVICE_VLAN, TYPE_VLAN]] {
            let frame = frame(tags, TYPE_IPV4, &ipv4);
            assert_eq!(peer(&frame, Direction::Egress), Some(address("10.64.0.2")));
            assert_eq!(peer(&frame, Direction::Ingress), Some(address("10.64.0.1")));
        }
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 64, 0, 1, 0, 0, 0, 0, 0, 0];
        arp.extend([10, 64, 0, 2]);
        let arp = frame(&[], TYPE_ARP, &arp);
        assert_eq!(peer(&arp, Direction::Egress), Some(address("10.64.0.2")));
        assert_eq!(peer(&arp, Direction::Ingress), Some(address("10.64.0.1")));

        let (from, to): (Ipv6Addr, Ipv6Addr) = ("fd53::1".parse().expect("one"), "fd53::2".parse().expect("one"));
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        ipv6.extend(from.octets());
        ipv6.extend(to.octets());
        let whole = frame(&[], TYPE_IPV6, &ipv6);
        assert_eq!(peer(&whole, Direction::Egress), Some(address("fd53::2")));
        assert_eq!(peer(&whole, Direction::Ingress), Some(address("fd53::1")));

        let group: Ipv6Addr = "ff02::1:ff00:2".parse().expect("one");
        ipv6[6] = 58;
        ipv6[24..40].copy_from_slice(&group.octets());
        ipv6.extend([135, 0, 0, 0, 0, 0, 0, 0]);
        ipv6.extend(to.octets());
        let solicitation = frame(&[], TYPE_IPV6, &ipv6);
        assert_eq!(peer(&solicitation, Direction::Egress), Some(address("fd53::2")));
    }

    #[test]
    fn damage_is_seen_by_the_receiver_even_where_the_checksum_was_still_to_do() {
        // UDP, 10.0.0.1:5 → 10.0.0.2:6, as the kernel leaves it to the network card: the pseudo-header's sum, 0x141d.
        let mut udp = vec![0u8; 34];
        udp.extend([0, 5, 0, 6, 0, 11]);
        udp.extend([0x14, 0x1d]);
        udp.extend(b"abc");
        let header =
            VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..VnetHeader::default() };
        let mut read = header.to_bytes().to_vec();
        read.extend(&udp);
        damage(&mut read, 0.999_9);
        let (header, frame) = VnetHeader::parse(&read).expect("long enough");
        assert_eq!(header.flags, 0, "to be sent as it is");
        // The sum of "abc" as it was, and the last byte as it is.
        assert_eq!(frame.last(), Some(&(b'c' ^ 0x80)));
        let mut sum: u32 = 0x141d;
        for word in [5u32, 6, 11, 0x6162, 0x6300] {
            sum += word;
        }
        sum = (sum & 0xffff) + (sum >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([frame[40], frame[41]])), !sum & 0xffff);
    }

    #[test]
    fn a_segments_packets_each_have_headers() {
        let mut segment = vec![0; 34 + 20 + 3 * 1460];
        segment[34 + 12] = 5 << 4;
        let header =
            VnetHeader { gso_type: VnetHeader::GSO_TCPV4, gso_size: 1460, csum_start: 34, ..VnetHeader::default() };
        assert_eq!(packets(&header, &segment[..segment.len() - 1000]).collect::<Vec<_>>(), [1514, 1514, 514]);
        assert_eq!(packets(&VnetHeader::default(), &segment[..60]).collect::<Vec<_>>(), [60]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), place in 0.0..1.0) {
            check_any(&mut bytes, place);
        }

        #[test]
        fn damage_is_one_bit(frame in proptest::collection::vec(any::<u8>(), 1..300), place in 0.0..1.0) {
            let mut read = VnetHeader::default().to_bytes().to_vec();
            read.extend(&frame);
            let before = read.clone();
            damage(&mut read, place);
            let turned: u32 = read.iter().zip(&before).map(|(now, then)| (now ^ then).count_ones()).sum();
            prop_assert_eq!(turned, 1);
        }
    }

    fn check_any(bytes: &mut [u8], place: f64) {
        let _ = (peer(bytes, Direction::Egress), peer(bytes, Direction::Ingress));
        if let Some((header, frame)) = VnetHeader::parse(bytes) {
            let packets = packets(&header, frame);
            assert_eq!(packets.len(), header.packets(frame));
            assert!(packets.map(|bytes| bytes as usize).sum::<usize>() >= frame.len());
        }
        damage(bytes, place);
    }
}

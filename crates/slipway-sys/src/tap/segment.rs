//! Cutting large segments where it matters, as the kernel would (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`
//! and `ipv6_gso_segment` in `net/ipv4/` and `net/ipv6/`).
//!
//! A link that loses one packet in a thousand need not cut every segment. It passes a segment whole, or in two parts
//! around the lost packet.

use std::ops::Range;

use super::VnetHeader;
use super::vnet::ones_complement_sum;

/// Ethernet's two addresses, before its type.
const TYPE: usize = 12;
/// Types of Ethernet frames (`include/uapi/linux/if_ether.h`).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLANS: [u16; 2] = [0x8100, 0x88a8];

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl VnetHeader {
    /// Some of the packets of a large segment, by their numbers from 0 on, as a frame of their own with its header
    /// before it, ready to write. It is a large segment again where they are several.
    ///
    /// `None` where there are no such packets, or the frame is not what its header says.
    #[must_use]
    pub fn part(&self, frame: &[u8], packets: Range<usize>) -> Option<Vec<u8>> {
        let size = usize::from(self.gso_size);
        let (headers, payload) = frame.split_at_checked(self.headers(frame)?)?;
        let from = packets.start.checked_mul(size)?;
        let to = packets.end.checked_mul(size)?.min(payload.len());
        let wanted = payload.get(from..to).filter(|wanted| !wanted.is_empty())?;

        let mut whole = [&[0; Self::LEN], headers, wanted].concat();
        let (before, part) = whole.split_at_mut(Self::LEN);
        let transport = usize::from(self.csum_start);
        number_network(part, transport, packets.start)?;
        add_to_sum(part.get_mut(transport + usize::from(self.csum_offset)..)?, payload.len(), wanted.len())?;
        let mut gso_type = self.gso_type;
        if gso_type == Self::GSO_UDP_L4 {
            put_u16(part, transport + 4, headers.len() - transport + wanted.len())?;
        } else {
            let sequence = part.get_mut(transport + 4..)?.first_chunk_mut::<4>()?;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(u32::try_from(from).ok()?).to_be_bytes();
            let flags = part.get_mut(transport + 13)?;
            if from > 0 {
                *flags &= !CWR;
                gso_type &= !Self::GSO_ECN;
            }
            if to < payload.len() {
                *flags &= !(FIN | PSH);
            }
        }
        let header = if wanted.len() > size {
            Self { gso_type, hdr_len: u16::try_from(headers.len()).ok()?, ..*self }
        } else {
            Self { gso_type: Self::GSO_NONE, gso_size: 0, hdr_len: 0, ..*self }
        };
        before.copy_from_slice(&header.to_bytes());
        Some(whole)
    }
}

/// Puts right what the IP header says of the packet's length, and which packet of a row it is.
fn number_network(part: &mut [u8], transport: usize, first: usize) -> Option<()> {
    let mut at = TYPE;
    while VLANS.contains(&get_u16(part, at)?) {
        at += 4;
    }
    let (kind, network) = (get_u16(part, at)?, at + 2);
    let length = part.len() - network;
    match kind {
        IPV4 => {
            put_u16(part, network + 2, length)?;
            let number = usize::from(get_u16(part, network + 4)?) + first;
            put_u16(part, network + 4, number & 0xffff)?;
            put_u16(part, network + 10, 0)?;
            let sum = !ones_complement_sum(part.get(network..transport)?);
            put_u16(part, network + 10, usize::from(sum))
        }
        IPV6 => put_u16(part, network + 4, length.checked_sub(40)?),
        _ => None,
    }
}

/// The field holds the sum of the pseudo-header, the length of the whole among it (RFC 1624, with nothing complemented).
fn add_to_sum(field: &mut [u8], before: usize, after: usize) -> Option<()> {
    let field = field.first_chunk_mut::<2>()?;
    let [b0, b1] = (!u16::try_from(before).ok()?).to_be_bytes();
    let [a0, a1] = u16::try_from(after).ok()?.to_be_bytes();
    *field = ones_complement_sum(&[field[0], field[1], b0, b1, a0, a1]).to_be_bytes();
    Some(())
}

fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn put_u16(bytes: &mut [u8], at: usize, value: usize) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = u16::try_from(value).ok()?.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NETWORK: usize = 14;
    const TRANSPORT: usize = 34;
    const PAYLOAD: usize = 66;
    const SIZE: usize = 1448;

    /// A segment of TCP over IPv4 with options, as the kernel gives it, that ends a connection.
    fn segment(length: usize) -> (VnetHeader, Vec<u8>) {
        let mut frame = vec![0; PAYLOAD];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[NETWORK] = 0x45;
        frame[NETWORK + 4..NETWORK + 6].copy_from_slice(&[0xff, 0xff]);
        frame[NETWORK + 12..TRANSPORT].copy_from_slice(&[10, 64, 0, 1, 10, 64, 0, 2]);
        frame[TRANSPORT + 4..TRANSPORT + 8].copy_from_slice(&u32::MAX.to_be_bytes());
        frame[TRANSPORT + 12] = 8 << 4;
        frame[TRANSPORT + 13] = CWR | PSH | FIN | 0x10;
        frame.extend((0..length).map(|i| u8::try_from(i % 251).expect("below 251")));
        put_u16(&mut frame, TRANSPORT + 16, usize::from(pseudo(32 + length))).expect("there");
        let header = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: VnetHeader::GSO_TCPV4 | VnetHeader::GSO_ECN,
            hdr_len: 66,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        (header, frame)
    }

    fn part(header: VnetHeader, frame: &[u8], packets: Range<usize>) -> (VnetHeader, Vec<u8>) {
        let part = header.part(frame, packets).expect("there");
        let (header, frame) = VnetHeader::parse(&part).expect("long enough");
        (header, frame.to_vec())
    }

    fn pseudo(length: usize) -> u16 {
        let [l0, l1] = u16::try_from(length).expect("fits").to_be_bytes();
        ones_complement_sum(&[10, 64, 0, 1, 10, 64, 0, 2, 0, 6, l0, l1])
    }

    #[test]
    fn one_packet_in_the_middle() {
        let (header, frame) = segment(3 * SIZE);
        let (mut header, mut part) = part(header, &frame, 1..2);
        assert_eq!((header.gso_type, header.gso_size), (VnetHeader::GSO_NONE, 0));
        assert_eq!(part[PAYLOAD..], frame[PAYLOAD + SIZE..PAYLOAD + 2 * SIZE]);
        assert_eq!(get_u16(&part, NETWORK + 2), Some(1500));
        assert_eq!(get_u16(&part, NETWORK + 4), Some(0), "the next number, which wraps");
        assert_eq!(ones_complement_sum(&part[NETWORK..TRANSPORT]), 0xffff, "the header's own sum is right");
        assert_eq!(part[TRANSPORT + 4..TRANSPORT + 8], 1447u32.to_be_bytes(), "the sequence number wraps");
        assert_eq!(part[TRANSPORT + 13], 0x10);
        assert!(header.complete_checksum(&mut part));
        let sum = ones_complement_sum(&[&pseudo(32 + SIZE).to_be_bytes()[..], &part[TRANSPORT..]].concat());
        assert_eq!(sum, 0xffff, "a receiver takes it");
    }

    #[test]
    fn first_and_last_keep_what_is_theirs() {
        let (header, frame) = segment(2 * SIZE + 1);
        let (first, cut) = part(header, &frame, 0..2);
        assert_eq!((first, cut[TRANSPORT + 13]), (header, CWR | 0x10));
        assert_eq!(get_u16(&cut, TRANSPORT + 16), Some(pseudo(32 + 2 * SIZE)));
        let (last, cut) = part(header, &frame, 1..3);
        assert_eq!((last.gso_type, cut[TRANSPORT + 13]), (VnetHeader::GSO_TCPV4, PSH | FIN | 0x10));
        assert_eq!(cut.len(), PAYLOAD + SIZE + 1);
        assert_eq!(header.part(&frame, 3..4), None);
        assert_eq!(header.part(&frame, 1..1), None);
    }

    #[test]
    fn datagrams_joined_have_lengths_of_their_own() {
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame.extend([7; 2500]);
        let header = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: VnetHeader::GSO_UDP_L4,
            hdr_len: 62,
            gso_size: 1000,
            csum_start: 54,
            csum_offset: 6,
        };
        let (_, part) = part(header, &frame, 2..3);
        assert_eq!((get_u16(&part, 14 + 4), get_u16(&part, 54 + 4)), (Some(508), Some(508)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200), from in 0..9usize, count in 0..9usize) {
            if let Some((header, frame)) = VnetHeader::parse(&bytes)
                && let Some(part) = header.part(frame, from..from + count)
            {
                prop_assert!(part.len() <= bytes.len());
            }
        }
    }
}

//! The header before every frame of a TAP device (`struct virtio_net_hdr`, `include/uapi/linux/virtio_net.h`; VIRTIO 1.3,
//! section 5.1.6).

/// The work that is left to do on a frame. Offsets count from the frame's first byte, that of its Ethernet header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`Self::NEEDS_CSUM`], [`Self::DATA_VALID`].
    pub flags: u8,
    /// The kind of large segment; [`Self::GSO_NONE`] for a packet.
    pub gso_type: u8,
    /// Bytes that the kernel is to hold in one piece, at least the headers of a large segment. A hint.
    pub hdr_len: u16,
    /// Payload bytes of each packet that a large segment becomes.
    pub gso_size: u16,
    /// Where checksumming starts: the transport header.
    pub csum_start: u16,
    /// Where the checksum goes, counted from `csum_start`. The field holds the pseudo-header's sum until then.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Bytes.
    pub const LEN: usize = 10;

    /// In `flags`: the checksum is not computed yet.
    pub const NEEDS_CSUM: u8 = 1;
    /// In `flags`: the checksum was verified.
    pub const DATA_VALID: u8 = 2;

    /// `gso_type` of a frame that is one packet.
    pub const GSO_NONE: u8 = 0;
    /// `gso_type` of TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// `gso_type` of TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// `gso_type` of UDP datagrams joined (`UDP_SEGMENT`, udp(7)).
    pub const GSO_UDP_L4: u8 = 5;
    /// Added to a TCP `gso_type`: the first packet tells of reduced congestion (RFC 3168, CWR).
    pub const GSO_ECN: u8 = 0x80;

    /// Splits what was read into header and frame. `None` where it is shorter than a header.
    #[must_use]
    pub fn parse(read: &[u8]) -> Option<(Self, &[u8])> {
        let (header, frame) = read.split_first_chunk::<{ Self::LEN }>()?;
        let &[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = header;
        let header = Self {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            csum_start: u16::from_le_bytes([s0, s1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
        };
        Some((header, frame))
    }

    /// As it is written before a frame.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_le_bytes();
        let [g0, g1] = self.gso_size.to_le_bytes();
        let [s0, s1] = self.csum_start.to_le_bytes();
        let [o0, o1] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// How many packets the frame becomes on a wire: one, unless it is a large segment.
    #[must_use]
    pub fn packets(&self, frame: &[u8]) -> usize {
        let Some(headers) = self.headers(frame) else { return 1 };
        let payload = frame.len().saturating_sub(headers);
        payload.div_ceil(usize::from(self.gso_size).max(1)).max(1)
    }

    /// Bytes of a large segment that each of its packets carries anew. `None` where it is none.
    #[must_use]
    pub fn headers(&self, frame: &[u8]) -> Option<usize> {
        let transport = usize::from(self.csum_start);
        match self.gso_type & !Self::GSO_ECN {
            // The upper four bits: length in words of four bytes (RFC 9293, data offset).
            Self::GSO_TCPV4 | Self::GSO_TCPV6 => {
                frame.get(transport + 12).map(|byte| transport + usize::from(byte >> 4) * 4)
            }
            Self::GSO_UDP_L4 => Some(transport + 8),
            _ => None,
        }
    }

    /// Computes the checksum that was left to do. Needed before a frame is damaged on purpose: else the damage is summed
    /// over and nobody can notice it. Not for large segments, whose packets get a checksum each.
    ///
    /// Returns false, with nothing changed, where the header points outside the frame.
    pub fn complete_checksum(&mut self, frame: &mut [u8]) -> bool {
        if self.flags & Self::NEEDS_CSUM == 0 {
            return true;
        }
        let start = usize::from(self.csum_start);
        let at = start + usize::from(self.csum_offset);
        if at + 2 > frame.len() {
            return false;
        }
        // Zero means "no checksum" to UDP; its complement is as good a sum to all (RFC 768).
        let sum = match !ones_complement_sum(&frame[start..]) {
            0 => u16::MAX,
            sum => sum,
        };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        (self.flags, self.csum_start, self.csum_offset) = (self.flags & !Self::NEEDS_CSUM, 0, 0);
        true
    }
}

/// The sum of RFC 1071, not complemented.
pub(super) fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let (words, last) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    sum += last.first().map_or(0, |&byte| u64::from(byte) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Folded: fits.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_little_endian_in_the_kernels_order() {
        let bytes = [1, 4, 0x36, 0, 0xa8, 0x05, 34, 0, 16, 0, 0xff];
        let (header, frame) = VnetHeader::parse(&bytes).expect("long enough");
        let expected = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: VnetHeader::GSO_TCPV6,
            hdr_len: 54,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        assert_eq!((header, frame), (expected, &[0xff][..]));
        assert_eq!(header.to_bytes(), bytes[..10]);
        assert_eq!(VnetHeader::parse(&bytes[..9]), None);
    }

    #[test]
    fn a_segment_is_as_many_packets_as_its_payload_fills() {
        let mut frame = vec![0; 34 + 32 + 3 * 1448 + 1];
        frame[34 + 12] = 8 << 4;
        let header =
            VnetHeader { gso_type: VnetHeader::GSO_TCPV4, gso_size: 1448, csum_start: 34, ..VnetHeader::default() };
        assert_eq!(header.packets(&frame), 4);
        assert_eq!(header.packets(&frame[..frame.len() - 1]), 3);
        assert_eq!(VnetHeader { gso_type: VnetHeader::GSO_UDP_L4, ..header }.packets(&[0; 34 + 8 + 1449]), 2);
        assert_eq!(VnetHeader::default().packets(&frame), 1);
    }

    #[test]
    fn a_completed_checksum_is_what_a_receiver_verifies() {
        // A UDP datagram 10.0.0.1:5 → 10.0.0.2:6 with "abc": the field holds the pseudo-header's sum, as the kernel leaves it.
        let mut frame = vec![0u8; 34];
        let pseudo = ones_complement_sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 11]);
        frame.extend([0, 5, 0, 6, 0, 11]);
        frame.extend(pseudo.to_be_bytes());
        frame.extend(b"abc");
        let mut header =
            VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..VnetHeader::default() };
        assert!(header.complete_checksum(&mut frame));
        assert_eq!(header, VnetHeader::default());
        let mut received = vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 11];
        received.extend(&frame[34..]);
        assert_eq!(ones_complement_sum(&received), 0xffff);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((mut header, frame)) = VnetHeader::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..], &bytes[..VnetHeader::LEN]);
                prop_assert!(header.packets(frame) >= 1);
                let mut frame = frame.to_vec();
                let before = (header, frame.clone());
                if !header.complete_checksum(&mut frame) {
                    prop_assert_eq!((header, frame), before);
                }
            }
        }
    }
}

//! Whatever a container sends, the wire reads no further than its end and takes it for at least what it is.
#![cfg_attr(fuzzing, no_main)]

use slipway_sys::tap::VnetHeader;
use slipway_wire::{Direction, frame};

slipway_fuzz::target!(|read: &[u8]| {
    let Some((header, bytes)) = VnetHeader::parse(read) else { return };
    for direction in [Direction::Egress, Direction::Ingress] {
        if let Some(peer) = frame::peer(bytes, direction) {
            let octets = match peer {
                std::net::IpAddr::V4(address) => address.octets().to_vec(),
                std::net::IpAddr::V6(address) => address.octets().to_vec(),
            };
            assert!(bytes.windows(octets.len()).any(|window| window == octets), "an address that is not in the frame");
        }
    }
    let packets = frame::packets(&header, bytes);
    assert!(packets.len() >= 1 && packets.map(|packet| packet as usize).sum::<usize>() >= bytes.len());
    let mut damaged = read.to_vec();
    frame::damage(&mut damaged, 0.5);
    assert!(damaged.len() == read.len() && (bytes.is_empty() || damaged != read));
});

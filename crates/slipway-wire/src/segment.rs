//! Large segments on a link: each packet has a fate of its own, and those that share one go on together.

use std::ops::Range;

use slipway_sys::tap::VnetHeader;

use crate::frame;
use crate::link::{Delivery, Link, Packet, Verdict};

/// Packets of a frame that go out together.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The frame's packets, counted from 0.
    pub packets: Range<u32>,
    /// The link's data about them, for when they [leave](Link::leave).
    pub packet: Packet,
    /// The last one's: together they come out when it does.
    pub delivery: Delivery,
}

/// Decides about the packets of a frame that comes at `now`, and gives what goes out in its order. Where something is drawn
/// for each packet, it is as if they had come one by one.
pub fn pass(link: &mut Link, now: u64, header: &VnetHeader, frame: &[u8], parts: &mut Vec<Part>) {
    let peer = link.peer(frame);
    let sizes = frame::packets(header, frame);
    // As many as bytes at most.
    let count = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
    if count == 1 || !link.is_per_packet() {
        let packet = Packet { peer, bytes: sizes.fold(0, u32::saturating_add), packets: count };
        return add(parts, 0..count, packet, link.pass(now, packet));
    }
    for (number, bytes) in (0..).zip(sizes) {
        let packet = Packet { peer, bytes, packets: 1 };
        add(parts, number..number + 1, packet, link.pass(now, packet));
    }
}

fn add(parts: &mut Vec<Part>, packets: Range<u32>, packet: Packet, verdict: Verdict) {
    if let Some(delivery) = verdict.copy {
        parts.push(Part { packets: packets.clone(), packet, delivery });
    }
    let Some(delivery) = verdict.itself else { return };
    match parts.last_mut() {
        Some(part) if part.packets.end == packets.start && delivery.joins(&part.delivery) => {
            part.packets.end = packets.end;
            part.packet.bytes = part.packet.bytes.saturating_add(packet.bytes);
            part.packet.packets += packet.packets;
            part.delivery = delivery;
        }
        _ => parts.push(Part { packets, packet, delivery }),
    }
}

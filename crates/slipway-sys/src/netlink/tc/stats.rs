//! Counts of queueing disciplines.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcMessage, TcStats2};

use super::Handle;

/// A queueing discipline of a device, and what it did since it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QdiscStats {
    /// The kind, by tc(8)'s name.
    pub kind: String,
    /// The handle of the discipline.
    pub handle: Handle,
    /// Its place.
    pub parent: Handle,
    /// Packets sent on.
    pub packets: u32,
    /// Bytes sent on.
    pub bytes: u64,
    /// Packets dropped: lost on purpose, or beyond the limit.
    pub drops: u32,
    /// Packets that wait.
    pub waiting: u32,
    /// Bytes that wait.
    pub backlog: u32,
}

pub(super) fn request() -> RouteNetlinkMessage {
    // The kernel dumps those of all devices whatever index is asked for.
    RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default())
}

pub(super) fn of_device(message: RouteNetlinkMessage, index: u32) -> Option<QdiscStats> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else { return None };
    let (header, attributes) = message.into_parts();
    if header.index != index.cast_signed() {
        return None;
    }
    let handle = Handle { major: header.handle.major, minor: header.handle.minor };
    let parent = Handle { major: header.parent.major, minor: header.parent.minor };
    let mut found =
        QdiscStats { kind: String::new(), handle, parent, packets: 0, bytes: 0, drops: 0, waiting: 0, backlog: 0 };
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(kind) => found.kind = kind,
            TcAttribute::Stats2(stats) => stats.iter().for_each(|stats| found.add(stats)),
            _ => {}
        }
    }
    Some(found)
}

impl QdiscStats {
    fn add(&mut self, stats: &TcStats2) {
        match stats {
            TcStats2::Basic(basic) => (self.packets, self.bytes) = (basic.packets, basic.bytes),
            TcStats2::Queue(queue) => {
                (self.drops, self.waiting, self.backlog) = (queue.drops, queue.qlen, queue.backlog);
            }
            _ => {}
        }
    }
}

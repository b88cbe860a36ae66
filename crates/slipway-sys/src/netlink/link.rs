//! Network devices as the kernel lists them.

use std::fmt;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use super::{Netlink, NetlinkError};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// An Ethernet address as people write it: `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy)]
pub struct MacText(pub Mac);

impl fmt::Display for MacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique in its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// The kind of device (`veth`, `bridge`, …). `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Its Ethernet address, where it has one.
    pub mac: Option<Mac>,
    /// Bytes.
    pub mtu: u32,
    /// The bridge that it is a port of.
    pub master: Option<u32>,
    /// Administratively up.
    pub up: bool,
    /// The wire is live (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Counts of packets and bytes.
    pub counters: Counters,
}

/// Packets and bytes that passed a device since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

impl Netlink {
    /// All devices of the socket's namespace.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let mut links = Vec::new();
        self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
            if let RouteNetlinkMessage::NewLink(message) = message {
                links.push(Link::from(message));
            }
        })?;
        Ok(links)
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// [`NetlinkError::NoDevice`] when there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        self.links()?.into_iter().find(|link| link.name == name).ok_or_else(|| NetlinkError::NoDevice(name.to_owned()))
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            up: message.header.flags.contains(LinkFlags::Up),
            carrier: message.header.flags.contains(LinkFlags::LowerUp),
            ..Self::default()
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Address(address) => link.mac = address.try_into().ok(),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Controller(master) => link.master = Some(master),
                LinkAttribute::Stats64(stats) => {
                    link.counters = Counters {
                        rx_packets: stats.rx_packets,
                        tx_packets: stats.tx_packets,
                        rx_bytes: stats.rx_bytes,
                        tx_bytes: stats.tx_bytes,
                        rx_dropped: stats.rx_dropped,
                        tx_dropped: stats.tx_dropped,
                    }
                }
                LinkAttribute::LinkInfo(info) => link.kind = info.iter().find_map(kind),
                _ => {}
            }
        }
        link
    }
}

fn kind(info: &LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(InfoKind::Other(name)) => Some(name.clone()),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

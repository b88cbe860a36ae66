//! A device's offloads and its link, as `ethtool(8)` sets them, by the kernel's `SIOCETHTOOL`
//! (include/uapi/linux/ethtool.h).

use std::io;
use std::os::fd::AsFd as _;

use super::Netlink;
use crate::device;

/// Work that the kernel hands to a device instead of doing it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Checksums of sent packets.
    TxChecksum,
    /// Cutting of large TCP segments.
    Tso,
    /// Cutting of large packets of any kind, as late as possible.
    Gso,
    /// Joining of received packets.
    Gro,
}

impl Offload {
    /// Every offload.
    pub const ALL: [Self; 4] = [Self::TxChecksum, Self::Tso, Self::Gso, Self::Gro];

    /// The commands that read and write its state.
    fn commands(self) -> (u32, u32) {
        match self {
            Self::TxChecksum => (0x16, 0x17), // ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM
            Self::Tso => (0x1e, 0x1f),        // ETHTOOL_GTSO, ETHTOOL_STSO
            Self::Gso => (0x23, 0x24),        // ETHTOOL_GGSO, ETHTOOL_SGSO
            Self::Gro => (0x2b, 0x2c),        // ETHTOOL_GGRO, ETHTOOL_SGRO
        }
    }
}

impl Netlink {
    /// Switches an offload of the device called `name` on or off.
    ///
    /// # Errors
    /// `ENODEV` without such a device, `EOPNOTSUPP` where its driver cannot switch it.
    pub fn set_offload(&self, name: &str, offload: Offload, on: bool) -> io::Result<()> {
        self.ethtool(name, offload.commands().1, u32::from(on)).map(drop)
    }

    /// Whether an offload of the device called `name` is on.
    ///
    /// # Errors
    /// `ENODEV` without such a device.
    pub fn offload(&self, name: &str, offload: Offload) -> io::Result<bool> {
        self.ethtool(name, offload.commands().0, 0).map(|value| value != 0)
    }

    /// Whether the device called `name` has a carrier. Any change that the kernel has seen but not yet acted on is acted on
    /// first (the kernel's `linkwatch_sync_dev`): a device that says yes can send at once.
    ///
    /// # Errors
    /// `ENODEV` without such a device.
    pub fn has_carrier(&self, name: &str) -> io::Result<bool> {
        const ETHTOOL_GLINK: u32 = 0x0a;
        self.ethtool(name, ETHTOOL_GLINK, 0).map(|value| value != 0)
    }

    /// Carries out a command whose structure is `struct ethtool_value`.
    fn ethtool(&self, name: &str, command: u32, data: u32) -> io::Result<u32> {
        let mut value = [command, data];
        device::ethtool(self.socket.as_fd(), name, &mut value)?;
        Ok(value[1])
    }
}

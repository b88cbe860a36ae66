//! A device's offloads and its link, as `ethtool(8)` sets them, by the kernel's `SIOCETHTOOL`
//! (include/uapi/linux/ethtool.h).

use std::io;
use std::os::fd::AsRawFd;

use super::Netlink;

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

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
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

    #[allow(unsafe_code)]
    fn ethtool(&self, name: &str, command: u32, data: u32) -> io::Result<u32> {
        let mut value = EthtoolValue { command, data };
        // SAFETY: `ifreq` is plain data of the kernel's; all zero is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the kernel reads and writes one `ifreq` and, for these commands, one `ethtool_value` at its data pointer;
        // both outlive the call and are borrowed by nobody else.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
    }
}

//! TAP devices: network devices whose frames a program reads and writes
//! (Documentation/networking/tuntap.rst, `include/uapi/linux/if_tun.h`).
//!
//! A [`VnetHeader`] precedes every frame, both ways. With it the kernel leaves checksums, and on request the cutting of
//! large segments, to the last receiver of the frame.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

pub use vnet::VnetHeader;

mod segment;
mod vnet;

const DEVICE: &str = "/dev/net/tun";

/// The largest a read can give: a header and the largest frame that the kernel makes (`GSO_LEGACY_MAX_SIZE`, and what
/// Ethernet and a VLAN tag add).
pub const FRAME_BYTES: usize = VnetHeader::LEN + 14 + 4 + 65_536;

/// A TAP device. It is gone when the last copy of its descriptor is closed.
///
/// Reads and writes do not block. A device without frames is not readable. The kernel drops frames that find its queue
/// full (the device's `tx_queue_len`, 500 frames unless changed). Writes take effect before they return.
#[derive(Debug)]
pub struct Tap(OwnedFd);

impl Tap {
    /// Makes a device in the calling thread's network namespace. It is down, and takes no frames until it is set up.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is empty or longer than 15 bytes, `EBUSY` or `EEXIST` where one of that name exists,
    /// `EPERM` without `CAP_NET_ADMIN`; a word on the device file where that cannot be opened.
    pub fn create(name: &str) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE).map_err(|error| {
                io::Error::new(error.kind(), format!("open {DEVICE}: {error} (try modprobe tun, as root)"))
            })?;
        let tap = Self(file.into());
        tap.attach(name)?;
        // Both are the kernel's defaults on the processors that are supported; said, because the header's layout hangs on them.
        tap.set_number(libc::TUNSETVNETHDRSZ, libc::c_int::try_from(VnetHeader::LEN).map_err(io::Error::other)?)?;
        tap.set_number(libc::TUNSETVNETLE, 1)?;
        tap.set_offload(false)?;
        Ok(tap)
    }

    /// Whether TCP and UDP segments larger than the MTU come whole. Where not, the kernel cuts them into packets first.
    /// Checksums are always left to do. Frames in the queue stay as they are.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub fn set_offload(&self, segments: bool) -> io::Result<()> {
        if !segments {
            return self.set_features(libc::TUN_F_CSUM);
        }
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        match self.set_features(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6) {
            // Kernels before 6.2 do not know UDP segments: there they are always cut.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.set_features(tcp),
            other => other,
        }
    }

    /// Reads one frame, its header first. A buffer of [`FRAME_BYTES`] holds any; in a smaller one the rest is cut off.
    ///
    /// # Errors
    /// `WouldBlock` where there is none.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, frame)?)
    }

    /// Writes one frame, its header first: the device receives it.
    ///
    /// # Errors
    /// `EIO` while the device is down, `EINVAL` where the header does not fit the frame.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        Ok(rustix::io::write(&self.0, frame).map(drop)?)
    }

    #[allow(unsafe_code)]
    fn attach(&self, name: &str) -> io::Result<()> {
        // SAFETY: `ifreq` is plain data of the kernel's; all zero is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte stays zero, which ends the name.
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device's name has 1 to 15 bytes"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // Exclusive: a device that is there was not made by us.
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
        request.ifr_ifru.ifru_flags = u16::try_from(flags).unwrap_or(u16::MAX).cast_signed();
        // SAFETY: the kernel reads and writes one `ifreq`, which outlives the call and is borrowed by nobody else.
        answer(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
    }

    #[allow(unsafe_code)]
    fn set_number(&self, request: libc::Ioctl, number: libc::c_int) -> io::Result<()> {
        // SAFETY: the requests given here read one `int`, which outlives the call.
        answer(unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const number) })
    }

    #[allow(unsafe_code)]
    fn set_features(&self, features: libc::c_uint) -> io::Result<()> {
        // SAFETY: this request takes its argument by value and touches no memory of ours.
        answer(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features)) })
    }
}

fn answer(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Tap> for OwnedFd {
    fn from(tap: Tap) -> Self {
        tap.0
    }
}

impl From<OwnedFd> for Tap {
    /// Takes over a device that another process made and passed on.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ns::{create_net, with_net};

    #[test]
    fn a_device_lives_as_long_as_its_descriptor() {
        let net = create_net().expect("these tests need root, to make network namespaces");
        let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("reads");
        with_net(net.as_fd(), || {
            let tap = Tap::create("eth0-out").expect("root may make one; this needs /dev/net/tun");
            assert!(devices().contains("eth0-out"));
            assert_eq!(Tap::create("eth0-out").expect_err("taken").raw_os_error(), Some(libc::EBUSY));
            tap.set_offload(true).expect("any kernel since 6.1 can");
            let nothing = tap.read(&mut [0; 64]).expect_err("nothing to read");
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            let down = tap.write(&[0; 64]).expect_err("the device is down");
            assert_eq!(down.raw_os_error(), Some(libc::EIO));
            drop(tap);
            assert!(!devices().contains("eth0-out"));
        })
        .expect("enters");
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["", "sixteen-bytes-xx"] {
            assert_eq!(Tap::create(name).expect_err("refused").kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}

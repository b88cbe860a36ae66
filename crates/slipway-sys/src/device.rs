//! Knobs of network devices: rings, channels, coalescing and features by the kernel's `SIOCETHTOOL`
//! (include/uapi/linux/ethtool.h), MTU and queue length by `netdevice(7)`.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCGIFMTU: u32 = 0x8921;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCSIFTXQLEN: u32 = 0x8943;
const SIOCETHTOOL: u32 = 0x8946;

/// `ETH_SS_FEATURES`: the set of features' names.
const FEATURE_NAMES: u32 = 4;
/// `ETH_SS_STATS`: the set of statistics' names.
const STATISTIC_NAMES: u32 = 1;
/// Statistics that a device may have. One with 256 queues has some 10,000.
const MOST_STATISTICS: usize = 16384;
/// `ETH_GSTRING_LEN`, bytes.
const NAME_BYTES: usize = 32;
/// Features that a kernel may have. It has some 70.
const MOST_FEATURES: usize = 256;

/// A socket that reads and sets knobs of the devices in the network namespace that it was made in.
#[derive(Debug)]
pub struct Devices {
    socket: OwnedFd,
}

/// Sizes of a device's rings, in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// The ring of received packets, descriptors.
    pub rx: u32,
    /// The largest for received packets.
    pub rx_max: u32,
    /// The ring of sent packets, descriptors.
    pub tx: u32,
    /// The largest for sent packets.
    pub tx_max: u32,
}

/// A device's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only send.
    pub tx: u32,
    /// Queues that do both.
    pub combined: u32,
    /// Most queues that do both.
    pub combined_max: u32,
}

/// The delay of a device's interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesce {
    /// For received packets, µs.
    pub rx_usecs: u32,
    /// For sent packets, µs.
    pub tx_usecs: u32,
    /// The driver adapts those for received packets.
    pub adaptive_rx: bool,
    /// The driver adapts those for sent packets.
    pub adaptive_tx: bool,
}

/// A feature of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name for it, such as `rx-gro`.
    pub name: String,
    /// It works now.
    pub active: bool,
    /// Somebody asked for it. It is active where what it depends on is active too.
    pub requested: bool,
    /// It can be switched.
    pub switchable: bool,
}

impl Devices {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Largest packet that the device called `name` sends, bytes.
    ///
    /// # Errors
    /// `ENODEV` without such a device, here and below.
    pub fn mtu(&self, name: &str) -> io::Result<u32> {
        self.number(SIOCGIFMTU, name, 0)
    }

    /// Sets the MTU, bytes.
    ///
    /// # Errors
    /// `EINVAL` beyond what the device can do.
    pub fn set_mtu(&self, name: &str, bytes: u32) -> io::Result<()> {
        self.number(SIOCSIFMTU, name, bytes).map(drop)
    }

    /// Packets that may wait in the device's queue.
    ///
    /// # Errors
    /// As [`mtu`](Self::mtu).
    pub fn queue_length(&self, name: &str) -> io::Result<u32> {
        self.number(SIOCGIFTXQLEN, name, 0)
    }

    /// Sets the length of the queue, packets.
    ///
    /// # Errors
    /// As [`mtu`](Self::mtu).
    pub fn set_queue_length(&self, name: &str, packets: u32) -> io::Result<()> {
        self.number(SIOCSIFTXQLEN, name, packets).map(drop)
    }

    /// Sizes of the rings.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has none.
    pub fn rings(&self, name: &str) -> io::Result<Rings> {
        let words = self.ring_words(name)?;
        Ok(Rings { rx: words[5], rx_max: words[1], tx: words[8], tx_max: words[4] })
    }

    /// Sets the sizes of the rings, descriptors. The driver may round them up.
    ///
    /// # Errors
    /// `EINVAL` beyond the greatest size.
    pub fn set_rings(&self, name: &str, rx: u32, tx: u32) -> io::Result<()> {
        let mut words = self.ring_words(name)?;
        (words[0], words[5], words[8]) = (0x11, rx, tx); // ETHTOOL_SRINGPARAM
        self.ethtool(name, &mut words)
    }

    /// `struct ethtool_ringparam`.
    fn ring_words(&self, name: &str) -> io::Result<[u32; 9]> {
        let mut words = [0; 9];
        words[0] = 0x10; // ETHTOOL_GRINGPARAM
        self.ethtool(name, &mut words)?;
        Ok(words)
    }

    /// Numbers of queues.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device cannot tell.
    pub fn channels(&self, name: &str) -> io::Result<Channels> {
        let words = self.channel_words(name)?;
        Ok(Channels { rx: words[5], tx: words[6], combined: words[8], combined_max: words[4] })
    }

    /// Sets the number of queues that both send and receive.
    ///
    /// # Errors
    /// `EINVAL` beyond the greatest number.
    pub fn set_combined(&self, name: &str, combined: u32) -> io::Result<()> {
        let mut words = self.channel_words(name)?;
        (words[0], words[8]) = (0x3d, combined); // ETHTOOL_SCHANNELS
        self.ethtool(name, &mut words)
    }

    /// `struct ethtool_channels`.
    fn channel_words(&self, name: &str) -> io::Result<[u32; 9]> {
        let mut words = [0; 9];
        words[0] = 0x3c; // ETHTOOL_GCHANNELS
        self.ethtool(name, &mut words)?;
        Ok(words)
    }

    /// Whether the device heeds pause frames, and whether it sends them.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has none.
    pub fn pause(&self, name: &str) -> io::Result<(bool, bool)> {
        // `struct ethtool_pauseparam`: command, negotiated, received, sent.
        let mut words = [0x12, 0, 0, 0]; // ETHTOOL_GPAUSEPARAM
        self.ethtool(name, &mut words)?;
        Ok((words[2] != 0, words[3] != 0))
    }

    /// The delay of interrupts.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has none.
    pub fn coalesce(&self, name: &str) -> io::Result<Coalesce> {
        let words = self.coalesce_words(name)?;
        let (adaptive_rx, adaptive_tx) = (words[10] != 0, words[11] != 0);
        Ok(Coalesce { rx_usecs: words[1], tx_usecs: words[5], adaptive_rx, adaptive_tx })
    }

    /// Sets the delay of interrupts. The driver may round it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has none, `EINVAL` beyond its bounds.
    pub fn set_coalesce(&self, name: &str, to: Coalesce) -> io::Result<()> {
        let mut words = self.coalesce_words(name)?;
        (words[0], words[1], words[5]) = (0x0f, to.rx_usecs, to.tx_usecs); // ETHTOOL_SCOALESCE
        (words[10], words[11]) = (u32::from(to.adaptive_rx), u32::from(to.adaptive_tx));
        self.ethtool(name, &mut words)
    }

    /// `struct ethtool_coalesce`.
    fn coalesce_words(&self, name: &str) -> io::Result<[u32; 23]> {
        let mut words = [0; 23];
        words[0] = 0x0e; // ETHTOOL_GCOALESCE
        self.ethtool(name, &mut words)?;
        Ok(words)
    }

    /// All features that this kernel knows, in its order.
    ///
    /// # Errors
    /// As [`mtu`](Self::mtu).
    pub fn features(&self, name: &str) -> io::Result<Vec<Feature>> {
        let names = self.feature_names(name)?;
        let mut words = vec![0; 2 + 4 * names.len().div_ceil(32)];
        (words[0], words[1]) = (0x3a, u32_of(names.len().div_ceil(32))?); // ETHTOOL_GFEATURES
        self.ethtool(name, &mut words)?;
        // Each block: available, requested, active, never changed.
        let bit = |at: usize, which: usize| words[2 + 4 * (at / 32) + which] >> (at % 32) & 1 == 1;
        let features = names.into_iter().enumerate().map(|(at, name)| {
            let switchable = bit(at, 0) && !bit(at, 3);
            Feature { name, active: bit(at, 2), requested: bit(at, 1), switchable }
        });
        Ok(features.filter(|feature| !feature.name.is_empty()).collect())
    }

    /// Asks for a feature, or no longer. It may stay as it is where others depend on it: read it again.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device, or the kernel, has no such feature that can be switched.
    pub fn set_feature(&self, name: &str, feature: &str, on: bool) -> io::Result<()> {
        let names = self.feature_names(name)?;
        let unknown = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let at = names.iter().position(|known| known == feature).ok_or_else(unknown)?;
        let blocks = names.len().div_ceil(32);
        let mut words = vec![0; 2 + 2 * blocks];
        (words[0], words[1]) = (0x3b, u32_of(blocks)?); // ETHTOOL_SFEATURES
        // Each block: valid, requested.
        words[2 + 2 * (at / 32)] = 1 << (at % 32);
        words[2 + 2 * (at / 32) + 1] = u32::from(on) << (at % 32);
        self.ethtool(name, &mut words)
    }

    /// Statistics of the device's driver by the driver's own names, as `ethtool -S` shows them: packets, bytes or events since
    /// the driver was loaded.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the device has none.
    pub fn statistics(&self, name: &str) -> io::Result<Vec<(String, u64)>> {
        let names = self.names(name, STATISTIC_NAMES, MOST_STATISTICS)?;
        // `struct ethtool_stats`: command, number, values of 64 bits. The driver writes as many as it has by now.
        let mut words = vec![0; 2 + 2 * MOST_STATISTICS];
        (words[0], words[1]) = (0x1d, u32_of(names.len())?); // ETHTOOL_GSTATS
        self.ethtool(name, &mut words)?;
        let values = words[2..].as_chunks::<2>().0.iter().map(|[one, other]| {
            let [one, other] = [one.to_ne_bytes(), other.to_ne_bytes()];
            u64::from_ne_bytes(std::array::from_fn(|at| if at < 4 { one[at] } else { other[at - 4] }))
        });
        Ok(names.into_iter().zip(values).filter(|(name, _)| !name.is_empty()).collect())
    }

    fn feature_names(&self, name: &str) -> io::Result<Vec<String>> {
        self.names(name, FEATURE_NAMES, MOST_FEATURES)
    }

    /// The names of a set of strings. The kernel writes as many as there are by then, so there is room for `most`.
    fn names(&self, name: &str, set: u32, most: usize) -> io::Result<Vec<String>> {
        // `struct ethtool_sset_info`: command, reserved, a mask of 64 bits, a number for each bit.
        let mut info = [0x37, 0, 0, 0, 0]; // ETHTOOL_GSSET_INFO
        let mask = (1_u64 << set).to_ne_bytes();
        for (word, bytes) in info[2..4].iter_mut().zip(mask.as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        self.ethtool(name, &mut info)?;
        let count = usize::try_from(info[4]).map_err(io::Error::other)?;
        // The kernel clears the bit of a set that the device has not.
        if info[2..4] == [0, 0] {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        if count > most {
            return Err(io::Error::other(format!("the device has more than the {most} names that Slipway reads")));
        }
        // `struct ethtool_gstrings`: command, set, number, names.
        let mut words = vec![0; 3 + most * NAME_BYTES / 4];
        (words[0], words[1], words[2]) = (0x1b, set, info[4]); // ETHTOOL_GSTRINGS
        self.ethtool(name, &mut words)?;
        let text: Vec<u8> = words[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = text.chunks(NAME_BYTES).take(count).map(|name| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        Ok(names.collect())
    }

    /// Reads or sets one number of a device.
    #[allow(unsafe_code)]
    fn number(&self, command: u32, name: &str, value: u32) -> io::Result<u32> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_mtu = i32::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the kernel reads and writes one `ifreq`, which outlives the call and is borrowed by nobody else.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), command.into(), &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: each of these commands leaves an `int` there; `ifr_mtu` and `ifr_qlen` share the place.
        let value = unsafe { request.ifr_ifru.ifru_mtu };
        u32::try_from(value).map_err(io::Error::other)
    }

    fn ethtool(&self, name: &str, words: &mut [u32]) -> io::Result<()> {
        ethtool(self.socket.as_fd(), name, words)
    }
}

/// Carries out an ethtool command by any socket: the first of `words`, which are its structure.
#[allow(unsafe_code)]
pub(crate) fn ethtool(socket: BorrowedFd<'_>, name: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: each caller in this crate gives the whole structure of its command, with the room that it promises in it. The
    // kernel writes no more. `words` and `request` outlive the call and are borrowed by nobody else.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL.into(), &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A question about the device called `name`.
#[allow(unsafe_code)]
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data of the kernel's; all zero is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

fn u32_of(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Netlink, NewLink, Peer, Request, Veth};
    use crate::ns::{create_net, with_net};

    #[test]
    fn knobs_of_a_veth_are_read_and_set() {
        let named = |name: &str| NewLink { name: name.to_owned(), ..NewLink::default() };
        let net = create_net().expect("a network namespace");
        with_net(net.as_fd(), || {
            let mut netlink = Netlink::open().expect("a socket");
            let veth = Veth { link: named("v0"), peer: Peer { name: "v1".to_owned(), ..Peer::default() } };
            netlink.run(&[Request::AddVeth(veth)]).expect("a veth");
            let devices = Devices::open().expect("a socket");
            devices.set_mtu("v0", 9000).expect("set");
            devices.set_queue_length("v0", 500).expect("set");
            assert_eq!((devices.mtu("v0").expect("read"), devices.queue_length("v0").expect("read")), (9000, 500));
            let statistics = devices.statistics("v0").expect("a veth has some");
            assert!(statistics.iter().any(|(name, value)| name == "peer_ifindex" && *value > 0), "{statistics:?}");
            let loopback = devices.statistics("lo").expect_err("it has none");
            assert_eq!(loopback.raw_os_error(), Some(libc::EOPNOTSUPP));
            let gro = || {
                let features = devices.features("v0").expect("read");
                features.into_iter().find(|feature| feature.name == "rx-gro").expect("every device has it")
            };
            let before = gro();
            devices.set_feature("v0", "rx-gro", !before.active).expect("set");
            assert_eq!(gro(), Feature { active: !before.active, requested: !before.active, ..before });
            assert!(devices.channels("v0").expect("a veth has channels").rx >= 1);
            let code = |error: io::Error| error.raw_os_error();
            assert_eq!(code(devices.rings("v0").expect_err("it has none")), Some(libc::EOPNOTSUPP));
            assert_eq!(code(devices.coalesce("none").expect_err("not there")), Some(libc::ENODEV));
            assert_eq!(code(devices.set_feature("v0", "none", true).expect_err("none")), Some(libc::EOPNOTSUPP));
            assert_eq!(code(devices.mtu("a-name-that-is-too-long").expect_err("none")), Some(libc::ENODEV));
        })
        .expect("entering works");
    }
}

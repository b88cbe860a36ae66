//! Facts of network interfaces, which the kernel gives by ethtool and netlink, and a recording keeps.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use slipway_sys::device::Devices;

use super::fact::Fact;
use super::losses;
use crate::setting::{Kernel as _, Key, Machine, NicKnob};

/// Answers about one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// Descriptors in the ring of received packets, and the largest ring.
    pub ring_rx: Fact<(u32, u32)>,
    /// Descriptors in the ring of sent packets, and the largest ring.
    pub ring_tx: Fact<(u32, u32)>,
    /// Queues that send and receive, and the most.
    pub channels: Fact<(u32, u32)>,
    /// µs before an interrupt for received packets.
    pub coalesce_rx_us: Fact<u32>,
    /// µs before an interrupt for sent packets.
    pub coalesce_tx_us: Fact<u32>,
    /// Whether the driver adapts the interrupts for received packets itself.
    pub adaptive_rx: Fact<bool>,
    /// Whether the driver adapts the interrupts for sent packets itself.
    pub adaptive_tx: Fact<bool>,
    /// Pause frames.
    pub pause: Fact<Pause>,
    /// Features by the kernel's name, and whether each is on.
    pub features: Fact<BTreeMap<String, bool>>,
    /// Features that are fixed by the driver.
    pub fixed: Vec<String>,
    /// The queueing discipline at the root.
    pub qdisc: Fact<String>,
    /// The driver's own counters of lost packets, by its names for them.
    pub losses: Fact<BTreeMap<String, u64>>,
}

/// Flow control by pause frames (IEEE 802.3x).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The interface heeds those that it receives.
    pub rx: bool,
    /// The interface sends them.
    pub tx: bool,
}

impl Default for Told {
    fn default() -> Self {
        fn untold<T>() -> Fact<T> {
            Fact::unknown("ethtool told nothing about it")
        }
        Self {
            ring_rx: untold(),
            ring_tx: untold(),
            channels: untold(),
            coalesce_rx_us: untold(),
            coalesce_tx_us: untold(),
            adaptive_rx: untold(),
            adaptive_tx: untold(),
            pause: untold(),
            features: untold(),
            fixed: Vec::new(),
            qdisc: untold(),
            losses: untold(),
        }
    }
}

/// Asks the kernel about these interfaces.
pub(super) fn ask(names: &[String]) -> BTreeMap<String, Told> {
    let Ok(devices) = Devices::open() else { return BTreeMap::new() };
    names.iter().map(|name| (name.clone(), ask_one(&devices, name))).collect()
}

fn ask_one(devices: &Devices, name: &str) -> Told {
    let rings = fact("rings", devices.rings(name));
    let coalesce = fact("coalescing", devices.coalesce(name));
    let features = fact("features", devices.features(name));
    let fixed = features.known().into_iter().flatten().filter(|feature| !feature.switchable);
    let qdisc = Key::nic(name, NicKnob::Qdisc).map_err(|error| error.to_string());
    let qdisc = qdisc.and_then(|key| Machine.read(&key).map_err(|error| error.to_string()));
    Told {
        ring_rx: rings.clone().map(|rings| (rings.rx, rings.rx_max)),
        ring_tx: rings.map(|rings| (rings.tx, rings.tx_max)),
        channels: fact("channels", devices.channels(name)).map(|channels| (channels.combined, channels.combined_max)),
        coalesce_rx_us: coalesce.clone().map(|coalesce| coalesce.rx_usecs),
        coalesce_tx_us: coalesce.clone().map(|coalesce| coalesce.tx_usecs),
        adaptive_rx: coalesce.clone().map(|coalesce| coalesce.adaptive_rx),
        adaptive_tx: coalesce.map(|coalesce| coalesce.adaptive_tx),
        pause: fact("pause frames", devices.pause(name)).map(|(rx, tx)| Pause { rx, tx }),
        fixed: fixed.map(|feature| feature.name.clone()).collect(),
        features: features.map(|all| all.into_iter().map(|feature| (feature.name, feature.active)).collect()),
        qdisc: match qdisc {
            Ok(kind) => Fact::Known(kind.trim_start_matches("default ").to_owned()),
            Err(reason) => Fact::unknown(reason),
        },
        losses: fact("statistics", devices.statistics(name))
            .map(|all| all.into_iter().filter(|(name, _)| losses::is_loss(name)).collect()),
    }
}

fn fact<T>(what: &str, answer: io::Result<T>) -> Fact<T> {
    match answer {
        Ok(value) => Fact::Known(value),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
            Fact::unknown(format!("its driver does not tell its {what}"))
        }
        Err(error) => Fact::unknown(format!("its {what}: {error}")),
    }
}

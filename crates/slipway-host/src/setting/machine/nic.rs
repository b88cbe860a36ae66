//! Knobs of network interfaces, as text.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::mount::MountAttrFlags;
use slipway_sys::device::Devices;
use slipway_sys::mount::detached_fs;

use super::super::key::NicKnob;
use super::qdisc;

/// Below this, the kernel takes an interface's IPv6 addresses away for good (RFC 8200, section 5), bytes.
const LEAST_MTU: u32 = 1280;

pub(super) fn read(name: &str, what: &NicKnob) -> io::Result<String> {
    let devices = Devices::open()?;
    Ok(match what {
        NicKnob::RingRx => devices.rings(name)?.rx.to_string(),
        NicKnob::RingTx => devices.rings(name)?.tx.to_string(),
        NicKnob::CoalesceRxUsecs => devices.coalesce(name)?.rx_usecs.to_string(),
        NicKnob::CoalesceTxUsecs => devices.coalesce(name)?.tx_usecs.to_string(),
        NicKnob::CoalesceAdaptiveRx => switch(devices.coalesce(name)?.adaptive_rx).to_owned(),
        NicKnob::CoalesceAdaptiveTx => switch(devices.coalesce(name)?.adaptive_tx).to_owned(),
        NicKnob::Feature(feature) => {
            let mut features = devices.features(name)?.into_iter();
            let found = features.find(|known| known.name == *feature).ok_or(io::ErrorKind::NotFound);
            let found = found.map_err(|_| io::Error::from(rustix::io::Errno::OPNOTSUPP))?;
            match (found.active, found.requested) {
                // As ethtool(8) shows it. The request decides what the feature does once it can.
                (active, requested) if active != requested && found.switchable => {
                    format!("{} [requested {}]", switch(active), switch(requested))
                }
                (active, _) => switch(active).to_owned(),
            }
        }
        NicKnob::ChannelsCombined => devices.channels(name)?.combined.to_string(),
        NicKnob::TxQueueLen => devices.queue_length(name)?.to_string(),
        NicKnob::Mtu => devices.mtu(name)?.to_string(),
        NicKnob::Qdisc => qdisc::read(name)?,
        NicKnob::Rps(_) | NicKnob::RpsFlows(_) | NicKnob::Xps(_) => {
            let sysfs = fresh_sysfs()?;
            super::read(&queue_path(&sysfs, name, what))?
        }
    })
}

pub(super) fn write(name: &str, what: &NicKnob, value: &str) -> io::Result<()> {
    let devices = Devices::open()?;
    match what {
        NicKnob::RingRx => devices.set_rings(name, number(value)?, devices.rings(name)?.tx),
        NicKnob::RingTx => devices.set_rings(name, devices.rings(name)?.rx, number(value)?),
        NicKnob::CoalesceRxUsecs
        | NicKnob::CoalesceTxUsecs
        | NicKnob::CoalesceAdaptiveRx
        | NicKnob::CoalesceAdaptiveTx => {
            let mut coalesce = devices.coalesce(name)?;
            match what {
                NicKnob::CoalesceRxUsecs => coalesce.rx_usecs = number(value)?,
                NicKnob::CoalesceTxUsecs => coalesce.tx_usecs = number(value)?,
                NicKnob::CoalesceAdaptiveRx => coalesce.adaptive_rx = on(value)?,
                _ => coalesce.adaptive_tx = on(value)?,
            }
            devices.set_coalesce(name, coalesce)
        }
        NicKnob::Feature(feature) => {
            let requested = value.split_once(" [requested ").and_then(|(_, rest)| rest.strip_suffix(']'));
            devices.set_feature(name, feature, on(requested.unwrap_or(value))?)
        }
        NicKnob::ChannelsCombined => devices.set_combined(name, number(value)?),
        NicKnob::TxQueueLen => devices.set_queue_length(name, number(value)?),
        NicKnob::Mtu => match number(value)? {
            mtu if mtu < LEAST_MTU => Err(io::Error::other("IPv6 needs 1280 bytes, and its addresses would be lost")),
            mtu => devices.set_mtu(name, mtu),
        },
        NicKnob::Qdisc => qdisc::write(name, value),
        NicKnob::Rps(_) | NicKnob::RpsFlows(_) | NicKnob::Xps(_) => {
            let sysfs = fresh_sysfs()?;
            super::write(&queue_path(&sysfs, name, what), value)
        }
    }
}

/// The file of a queue, in a sysfs that shows this network namespace: the one at `/sys` shows the one in which it was mounted.
fn queue_path(sysfs: &OwnedFd, name: &str, what: &NicKnob) -> PathBuf {
    let file = match what {
        NicKnob::RpsFlows(queue) => format!("rx-{queue}/rps_flow_cnt"),
        NicKnob::Xps(queue) => format!("tx-{queue}/xps_cpus"),
        NicKnob::Rps(queue) => format!("rx-{queue}/rps_cpus"),
        _ => String::new(),
    };
    PathBuf::from(format!("/proc/self/fd/{}/class/net/{name}/queues/{file}", sysfs.as_raw_fd()))
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn on(value: &str) -> io::Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(io::Error::other("it is `on` or `off`")),
    }
}

fn number(value: &str) -> io::Result<u32> {
    value.parse().map_err(|_| io::Error::other("it takes a number"))
}

/// A sysfs of this thread's network namespace, attached nowhere.
fn fresh_sysfs() -> io::Result<OwnedFd> {
    let flags =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    detached_fs("sysfs", flags).map_err(|error| error.source)
}

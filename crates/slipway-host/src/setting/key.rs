//! Names of settings, in one textual form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of an interface (`IFNAMSIZ`, its end mark not counted).
const LONGEST_INTERFACE: usize = 15;
/// Longest name of anything else, bytes.
const LONGEST: usize = 128;

/// One setting of a machine. Its textual form is what [`Display`](fmt::Display) writes and [`FromStr`] reads:
/// `sysctl net.core.rmem_max`, `nic eth0 ring-rx`, `block sda readahead`, `cpu governor`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Key {
    /// A kernel parameter by its name in `sysctl(8)`. A `/` within it stands for a dot in an interface's name.
    Sysctl(String),
    /// A setting of a network interface.
    Nic {
        /// The interface.
        name: String,
        /// The knob.
        what: NicKnob,
    },
    /// The processors that serve an interrupt, as a list such as `0-3,8`.
    Irq {
        /// Its number in `/proc/interrupts`.
        irq: u32,
    },
    /// A setting of a block device.
    Block {
        /// The device, such as `sda`.
        name: String,
        /// The knob.
        what: BlockKnob,
    },
    /// The frequency governor of all processors.
    CpuGovernor,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    TransparentHugePages,
    /// A kernel module that provides a congestion control or a queueing discipline: `loaded` or `absent`.
    Module(String),
}

/// A knob of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NicKnob {
    /// Descriptors in the ring of received packets.
    RingRx,
    /// Descriptors in the ring of sent packets.
    RingTx,
    /// Microseconds before an interrupt for received packets.
    CoalesceRxUsecs,
    /// Microseconds before an interrupt for sent packets.
    CoalesceTxUsecs,
    /// Whether the driver adapts the interrupts for received packets itself: `on` or `off`.
    CoalesceAdaptiveRx,
    /// Whether the driver adapts the interrupts for sent packets itself: `on` or `off`.
    CoalesceAdaptiveTx,
    /// A feature by the kernel's name for it, such as `rx-gro`: `on` or `off`.
    Feature(String),
    /// Queues that both send and receive.
    ChannelsCombined,
    /// Packets that may wait in the interface's queue.
    TxQueueLen,
    /// Largest packet, bytes.
    Mtu,
    /// The queueing discipline at the root, by its kind.
    Qdisc,
    /// The processors that handle packets of a receive queue, as a mask.
    Rps(u16),
    /// Flows that receive flow steering remembers for a receive queue.
    RpsFlows(u16),
    /// The processors that use a send queue, as a mask.
    Xps(u16),
}

/// A knob of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKnob {
    /// The scheduler, such as `none`.
    Scheduler,
    /// KiB read ahead.
    ReadAheadKib,
    /// Requests that may wait.
    NrRequests,
}

/// A text that names no setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The form is unknown.
    #[error(
        "read `{0}` as the name of a setting\nHint: names look like `sysctl net.core.rmem_max`, `nic eth0 ring-rx`, `block sda readahead`, `irq 24`, `cpu governor`, `thp`, `module tcp_bbr`"
    )]
    Form(String),
    /// A name in it that no such thing can have.
    #[error("use `{0}` as the name of {1}")]
    Name(String, &'static str),
    /// A kernel parameter that Slipway does not set.
    #[error("set `{0}`: {1}")]
    NotForTuning(String, &'static str),
}

/// Knobs whose name is one word.
const NIC_KNOBS: &[(&str, NicKnob)] = &[
    ("ring-rx", NicKnob::RingRx),
    ("ring-tx", NicKnob::RingTx),
    ("coalesce-rx-usecs", NicKnob::CoalesceRxUsecs),
    ("coalesce-tx-usecs", NicKnob::CoalesceTxUsecs),
    ("coalesce-adaptive-rx", NicKnob::CoalesceAdaptiveRx),
    ("coalesce-adaptive-tx", NicKnob::CoalesceAdaptiveTx),
    ("channels-combined", NicKnob::ChannelsCombined),
    ("txqueuelen", NicKnob::TxQueueLen),
    ("mtu", NicKnob::Mtu),
    ("qdisc", NicKnob::Qdisc),
];

const BLOCK_KNOBS: &[(&str, BlockKnob)] = &[
    ("scheduler", BlockKnob::Scheduler),
    ("readahead", BlockKnob::ReadAheadKib),
    ("nr-requests", BlockKnob::NrRequests),
];

/// Parameters outside `net` and `vm` that have to do with the transfer of data. Others can run programs or open holes
/// (`kernel.core_pattern`, `kernel.modprobe`), and a journal is not to be trusted with those.
const OTHERS: &[&str] = &[
    "fs.aio-max-nr",
    "fs.file-max",
    "fs.nr_open",
    "fs.pipe-max-size",
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
    "kernel.numa_balancing",
    "kernel.nmi_watchdog",
    "kernel.pid_max",
    "kernel.sched_autogroup_enabled",
    "kernel.sched_min_granularity_ns",
    "kernel.sched_migration_cost_ns",
    "kernel.sched_wakeup_granularity_ns",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.threads-max",
    "kernel.timer_migration",
];

/// Parameters of which a write does something else than keep a value.
const DEEDS: &[&str] = &["flush", "drop_caches", "compact_memory", "stat_refresh", "ip_forward", "forwarding"];

impl Key {
    /// A kernel parameter.
    ///
    /// # Errors
    /// For a name that leads elsewhere, and for parameters that are none of a tuner's business.
    pub fn sysctl(name: &str) -> Result<Self, KeyError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/@:+".contains(&byte);
        let segments: Vec<&str> = name.split('.').collect();
        let sound = |segment: &&str| {
            let path = segment.replace('/', ".");
            !path.is_empty() && path != "." && path != ".." && segment.bytes().all(word)
        };
        if name.len() > LONGEST || segments.len() < 2 || !segments.iter().all(sound) {
            return Err(KeyError::Name(shown(name), "a kernel parameter"));
        }
        let last = segments.last().copied().unwrap_or_default();
        if DEEDS.contains(&last) {
            return Err(KeyError::NotForTuning(name.to_owned(), "a write to it does more than keep a value"));
        }
        if !matches!(segments[0], "net" | "vm") && !OTHERS.contains(&name) {
            return Err(KeyError::NotForTuning(name.to_owned(), "it has nothing to do with the transfer of data"));
        }
        Ok(Self::Sysctl(name.to_owned()))
    }

    /// A setting of a network interface.
    ///
    /// # Errors
    /// For a name that no interface, or no feature, can have.
    pub fn nic(name: &str, what: NicKnob) -> Result<Self, KeyError> {
        let sound = !name.is_empty()
            && name.len() <= LONGEST_INTERFACE
            && name != "."
            && name != ".."
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
        if !sound {
            return Err(KeyError::Name(shown(name), "a network interface"));
        }
        if let NicKnob::Feature(feature) = &what
            && !is_plain(feature)
        {
            return Err(KeyError::Name(shown(feature), "a feature"));
        }
        Ok(Self::Nic { name: name.to_owned(), what })
    }

    /// A setting of a block device.
    ///
    /// # Errors
    /// For a name that no block device can have.
    pub fn block(name: &str, what: BlockKnob) -> Result<Self, KeyError> {
        let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-!".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(byte) {
            return Err(KeyError::Name(shown(name), "a block device"));
        }
        Ok(Self::Block { name: name.to_owned(), what })
    }

    /// A kernel module.
    ///
    /// # Errors
    /// For one that provides neither a congestion control nor a queueing discipline.
    pub fn module(name: &str) -> Result<Self, KeyError> {
        if !is_plain(name) {
            return Err(KeyError::Name(shown(name), "a kernel module"));
        }
        if !name.starts_with("tcp_") && !name.starts_with("sch_") {
            return Err(KeyError::NotForTuning(
                format!("module {name}"),
                "Slipway loads congestion controls (tcp_…) and queueing disciplines (sch_…) only",
            ));
        }
        Ok(Self::Module(name.to_owned()))
    }

    /// The interface that the setting belongs to, if it does.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Nic { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// A short name of letters, digits, `_` and `-`.
fn is_plain(name: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST && !name.starts_with('-') && name.bytes().all(byte)
}

/// The beginning of a text from a file, without bytes that a terminal acts on.
fn shown(text: &str) -> String {
    text.chars().take(LONGEST).map(|char| if char.is_control() { '?' } else { char }).collect()
}

impl fmt::Display for NicKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(name) => write!(f, "feature {name}"),
            Self::Rps(queue) => write!(f, "rps {queue}"),
            Self::RpsFlows(queue) => write!(f, "rps-flows {queue}"),
            Self::Xps(queue) => write!(f, "xps {queue}"),
            knob => f.write_str(NIC_KNOBS.iter().find(|(_, known)| known == knob).map_or("", |(word, _)| word)),
        }
    }
}

impl fmt::Display for BlockKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BLOCK_KNOBS.iter().find(|(_, known)| known == self).map_or("", |(word, _)| word))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => write!(f, "sysctl {name}"),
            Self::Nic { name, what } => write!(f, "nic {name} {what}"),
            Self::Irq { irq } => write!(f, "irq {irq}"),
            Self::Block { name, what } => write!(f, "block {name} {what}"),
            Self::CpuGovernor => f.write_str("cpu governor"),
            Self::TransparentHugePages => f.write_str("thp"),
            Self::Module(name) => write!(f, "module {name}"),
        }
    }
}

impl Key {
    /// The unit of its value, in words. `None` for values without one.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        match self {
            Self::Sysctl(name) => match name.as_str() {
                "vm.min_free_kbytes" => Some("KiB"),
                "net.ipv4.udp_mem" | "net.ipv4.tcp_mem" => Some("pages"),
                "net.core.netdev_max_backlog" => Some("packets"),
                "net.core.busy_poll" | "net.core.busy_read" => Some("µs"),
                name if name.ends_with("mem") || name.contains("mem_") || name.ends_with("optmem_max") => Some("bytes"),
                name if name.starts_with("vm.dirty_") && name.ends_with("_ratio") => Some("% of memory"),
                name if name.ends_with("_ns") => Some("ns"),
                _ => None,
            },
            Self::Nic { what, .. } => match what {
                NicKnob::RingRx | NicKnob::RingTx => Some("descriptors"),
                NicKnob::CoalesceRxUsecs | NicKnob::CoalesceTxUsecs => Some("µs"),
                NicKnob::Mtu => Some("bytes"),
                NicKnob::TxQueueLen => Some("packets"),
                _ => None,
            },
            Self::Block { what: BlockKnob::ReadAheadKib, .. } => Some("KiB"),
            _ => None,
        }
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let form = || KeyError::Form(shown(text));
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["sysctl", name] => Self::sysctl(name),
            ["nic", name, word] => {
                let knob = NIC_KNOBS.iter().find(|(known, _)| *known == word).ok_or_else(form)?;
                Self::nic(name, knob.1.clone())
            }
            ["nic", name, word, of] => {
                let queue = || of.parse().map_err(|_| form());
                let knob = match word {
                    "feature" => NicKnob::Feature(of.to_owned()),
                    "rps" => NicKnob::Rps(queue()?),
                    "rps-flows" => NicKnob::RpsFlows(queue()?),
                    "xps" => NicKnob::Xps(queue()?),
                    _ => return Err(form()),
                };
                Self::nic(name, knob)
            }
            ["irq", irq] => irq.parse().map(|irq| Self::Irq { irq }).map_err(|_| form()),
            ["block", name, word] => {
                let knob = BLOCK_KNOBS.iter().find(|(known, _)| *known == word).ok_or_else(form)?;
                Self::block(name, knob.1)
            }
            ["cpu", "governor"] => Ok(Self::CpuGovernor),
            ["thp"] => Ok(Self::TransparentHugePages),
            ["module", name] => Self::module(name),
            _ => Err(form()),
        }
    }
}

impl TryFrom<String> for Key {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

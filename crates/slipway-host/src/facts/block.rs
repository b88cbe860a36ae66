//! Disks, and arrays of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cpu::flag;
use super::fact::Fact;
use super::mounts::{self, Mount};
use super::source::Source;

/// The kind of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockKind {
    /// Flash memory behind PCI Express.
    Nvme,
    /// Flash memory behind SATA, SAS or another bus.
    Ssd,
    /// Magnetic.
    Hdd,
    /// A software array of others.
    Raid,
    /// A device of the device mapper.
    Mapped,
    /// A disk of a virtual machine.
    Virtual,
}

impl BlockKind {
    /// The kind's name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
            Self::Raid => "raid",
            Self::Mapped => "mapped",
            Self::Virtual => "virtual",
        }
    }
}

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// Its kind.
    pub kind: Fact<BlockKind>,
    /// The model's name.
    pub model: Fact<String>,
    /// Its size, bytes.
    pub size: Fact<u64>,
    /// The scheduler of its requests.
    pub scheduler: Fact<String>,
    /// Schedulers that it could have.
    pub schedulers: Fact<String>,
    /// KiB that the kernel reads ahead.
    pub readahead_kib: Fact<u64>,
    /// Requests that may wait.
    pub requests: Fact<u64>,
    /// The largest request, KiB.
    pub largest_kib: Fact<u64>,
    /// Its cache of writes: `write back` or `write through`.
    pub cache: Fact<String>,
    /// The level of an array, such as `raid6`.
    pub raid: Fact<String>,
    /// Bytes that an array puts on a disk at once.
    pub raid_chunk: Fact<u64>,
    /// Devices that it is made of.
    pub parts: Vec<String>,
    /// File systems on it, or on its partitions.
    pub mounts: Vec<Mount>,
}

/// Prefixes of names of disks. Loops, memory and optical drives are none of a tuner's business.
const KINDS: [(&str, Option<BlockKind>); 8] = [
    ("nvme", Some(BlockKind::Nvme)),
    ("md", Some(BlockKind::Raid)),
    ("dm-", Some(BlockKind::Mapped)),
    ("vd", Some(BlockKind::Virtual)),
    ("xvd", Some(BlockKind::Virtual)),
    ("sd", None),
    ("hd", None),
    ("mmcblk", Some(BlockKind::Ssd)),
];

pub(super) fn gather(source: &Source) -> Vec<Block> {
    let mounts = mounts::gather(source);
    let is_disk = |name: &str| {
        let sound = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-!".contains(&byte));
        sound && KINDS.iter().any(|(prefix, _)| name.starts_with(prefix))
    };
    source.list("/sys/block", is_disk).into_iter().map(|name| block(source, name, &mounts)).collect()
}

fn block(source: &Source, name: String, mounts: &BTreeMap<String, Vec<Mount>>) -> Block {
    let folder = format!("/sys/block/{name}");
    let text = |file: &str| source.read(&format!("{folder}/{file}"));
    let partitions = source.list(&folder, |part| part.len() > name.len() && part.starts_with(&name));
    let devices = std::iter::once(folder.clone()).chain(partitions.iter().map(|part| format!("{folder}/{part}")));
    let devices = devices.filter_map(|folder| source.read(&format!("{folder}/dev")).known().cloned());
    let rotates = flag(text("queue/rotational"));
    Block {
        kind: kind(&name, rotates),
        model: text("device/model"),
        // The kernel counts in sectors of 512 bytes, whatever the disk's own are.
        size: text("size").parse::<u64>().map(|sectors| sectors.saturating_mul(512)),
        scheduler: source.chosen(&format!("{folder}/queue/scheduler")),
        schedulers: text("queue/scheduler").map(|all| all.replace(['[', ']'], "")),
        readahead_kib: text("queue/read_ahead_kb").parse(),
        requests: text("queue/nr_requests").parse(),
        largest_kib: text("queue/max_sectors_kb").parse(),
        cache: text("queue/write_cache"),
        raid: text("md/level"),
        raid_chunk: text("md/chunk_size").parse(),
        parts: source.list(&format!("{folder}/slaves"), |_| true),
        mounts: devices.filter_map(|device| mounts.get(&device).cloned()).flatten().collect(),
        name,
    }
}

fn kind(name: &str, rotates: Fact<bool>) -> Fact<BlockKind> {
    match KINDS.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        Some((_, Some(kind))) => Fact::Known(*kind),
        _ => rotates.map(|rotates| if rotates { BlockKind::Hdd } else { BlockKind::Ssd }),
    }
}

//! A group's limits as the kernel reports them, and how often they took effect.

use serde::Serialize;

use super::DiskLimits;
use super::control::Folder;
use super::group::{Group, Version};
use crate::block::{Device, Statistics};

/// Limits of a group as the kernel has them; `None` is no limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct InForce {
    /// Processor time, cores.
    pub cpu: Option<f64>,
    /// Over which it is counted, µs.
    pub cpu_period_us: Option<u64>,
    /// Processors.
    pub cpuset: Option<String>,
    /// Memory, bytes.
    pub memory: Option<u64>,
    /// Memory, soft, bytes.
    pub memory_soft: Option<u64>,
    /// Swap beyond `memory`, bytes.
    pub swap: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// The disk.
    pub disk: Option<DiskLimits>,
}

/// How often and how long a group was stopped by its processor limit (`cpu.stat`), since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Throttled {
    /// Periods in which it had something to do.
    pub periods: u64,
    /// Those in which its quota was used up.
    pub throttled: u64,
    /// Time that it then waited, summed over processors, ns.
    pub time_ns: u64,
}

/// Version 1 says no limit by a count of bytes that no machine has (`PAGE_COUNTER_MAX`).
const UNLIMITED: u64 = 1 << 62;

impl Group {
    /// The limits, and those on `device`.
    #[must_use]
    pub fn in_force(&self, device: Option<Device>) -> InForce {
        let text = |file: &str| self.places.iter().find_map(|place| place.folder.try_read(file).ok());
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok().filter(|&number| number < UNLIMITED);
        let (quota, period) = match text("cpu.max") {
            Some(max) => {
                let mut words = max.split_whitespace().map(|word| word.parse::<u32>().ok());
                (words.next().flatten(), words.next().flatten())
            }
            None => (
                number("cpu.cfs_quota_us").and_then(|quota| quota.try_into().ok()),
                number("cpu.cfs_period_us").and_then(|period| period.try_into().ok()),
            ),
        };
        let cpu = quota.zip(period);
        let memory = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
        let both = number("memory.memsw.limit_in_bytes");
        InForce {
            cpu: cpu.map(|(quota, period)| f64::from(quota) / f64::from(period)),
            cpu_period_us: cpu.map(|(_, period)| period.into()),
            cpuset: text("cpuset.cpus").map(|list| list.trim().to_owned()).filter(|list| !list.is_empty()),
            memory,
            memory_soft: number("memory.high").or_else(|| number("memory.soft_limit_in_bytes")),
            swap: number("memory.swap.max").or_else(|| both?.checked_sub(memory?)),
            pids: number("pids.max"),
            disk: device.and_then(|device| self.disk_in_force(device)),
        }
    }

    fn disk_in_force(&self, device: Device) -> Option<DiskLimits> {
        self.places.iter().find_map(|place| match place.part.version {
            Version::V1 => place
                .folder
                .has("blkio.throttle.read_bps_device")
                .then(|| DiskLimits::read_legacy(&place.folder, device)),
            Version::V2 => Some(DiskLimits::parse_unified(&place.folder.try_read("io.max").ok()?, device)),
        })
    }

    /// Whether the kernel counts the group's memory for itself. If not, what its processes use stays counted where it was,
    /// also when the group gets a limit later.
    #[must_use]
    pub fn counts_memory(&self) -> bool {
        let files = ["memory.current", "memory.usage_in_bytes"];
        self.places.iter().any(|place| files.iter().any(|file| place.folder.has(file)))
    }

    /// How much the processor limit was felt; `None` where the group has none.
    #[must_use]
    pub fn throttled(&self) -> Option<Throttled> {
        self.places.iter().find_map(|place| Throttled::parse(&place.folder.try_read("cpu.stat").ok()?))
    }

    /// Data that the group has read from and written to `device`; `None` where that is not counted.
    #[must_use]
    pub fn disk_use(&self, device: Device) -> Option<Statistics> {
        self.places.iter().find_map(|place| {
            if let Ok(stat) = place.folder.try_read("io.stat") {
                return Some(unified_statistics(&stat, device));
            }
            let read = |file: &str| place.folder.try_read(file).ok();
            let (bytes, operations) = (read("blkio.throttle.io_service_bytes")?, read("blkio.throttle.io_serviced")?);
            Some(legacy_statistics(&bytes, &operations, device))
        })
    }

    /// Programs that the kernel killed for want of memory within the limit; `None` where there is none.
    #[must_use]
    pub fn memory_kills(&self) -> Option<u64> {
        let file = |name: &str| self.places.iter().find_map(|place| place.folder.try_read(name).ok());
        let text = file("memory.events").or_else(|| file("memory.oom_control"))?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    }
}

impl Throttled {
    /// Version 1 counts in ns (`throttled_time`), version 2 in µs (`throttled_usec`).
    fn parse(stat: &str) -> Option<Self> {
        let value =
            |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse::<u64>().ok());
        Some(Self {
            periods: value("nr_periods")?,
            throttled: value("nr_throttled")?,
            time_ns: value("throttled_time").or_else(|| Some(value("throttled_usec")? * 1_000))?,
        })
    }
}

impl DiskLimits {
    pub(super) fn read_legacy(folder: &Folder, device: Device) -> Self {
        let value = |file: &str| {
            let text = folder.try_read(&format!("blkio.throttle.{file}_device")).unwrap_or_default();
            text.lines().find_map(|line| line.strip_prefix(&device.to_string())?.strip_prefix(' ')?.parse::<u64>().ok())
        };
        let count = |file: &str| value(file).and_then(|count| count.try_into().ok());
        Self {
            device,
            read: value("read_bps"),
            write: value("write_bps"),
            read_iops: count("read_iops"),
            write_iops: count("write_iops"),
        }
    }

    fn parse_unified(max: &str, device: Device) -> Self {
        let line = line_of(max, device).unwrap_or_default();
        let value =
            |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok());
        let count = |key: &str| value(key).and_then(|count| count.try_into().ok());
        Self {
            device,
            read: value("rbps"),
            write: value("wbps"),
            read_iops: count("riops"),
            write_iops: count("wiops"),
        }
    }
}

fn line_of(text: &str, device: Device) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(&device.to_string())?.strip_prefix(' '))
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`; no line where nothing happened yet.
fn unified_statistics(stat: &str, device: Device) -> Statistics {
    let line = line_of(stat, device).unwrap_or_default();
    let value = |key: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok()).unwrap_or(0)
    };
    Statistics { reads: value("rios"), read: value("rbytes"), writes: value("wios"), written: value("wbytes") }
}

/// `8:0 Read 1`, `8:0 Write 2`, and more kinds.
fn legacy_statistics(bytes: &str, operations: &str, device: Device) -> Statistics {
    let value = |text: &str, kind: &str| {
        let prefix = format!("{device} {kind} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    };
    Statistics {
        reads: value(operations, "Read"),
        read: value(bytes, "Read"),
        writes: value(operations, "Write"),
        written: value(bytes, "Write"),
    }
}

#[cfg(test)]
mod tests;

//! A node's limits, and their control files.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CgroupError, Controller};
use crate::block::Device;

/// Limits of one node; `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Processor time in cores: 0.5 is half of one.
    pub cpu: Option<f64>,
    /// Over which stretch of time `cpu` is counted, 1 ms to 1 s. A short one spreads the pauses of a limited program evenly,
    /// a long one lets it run in bursts. `None`: 5 ms, longer for small shares and those near a whole core.
    pub cpu_period: Option<Duration>,
    /// Processors in the kernel's list form (`0-3,6`).
    pub cpuset: Option<String>,
    /// Bytes. Beyond it, programs are killed.
    pub memory: Option<u64>,
    /// Bytes. Version 1 pushes a group back to it when the machine runs short (`memory.soft_limit_in_bytes`), version 2
    /// whenever the group is beyond it (`memory.high`).
    pub memory_soft: Option<u64>,
    /// Bytes of swap beyond `memory`, which it takes. `None`: no swap where `memory` is given, since a node that swaps
    /// measures the disk.
    pub swap: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// A group's limits for one block device.
    pub disk: Option<DiskLimits>,
}

/// Limits on one block device; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLimits {
    /// The device. A whole device: the kernel does not count on partitions.
    pub device: Device,
    /// Bytes read in a second.
    pub read: Option<u64>,
    /// Bytes written in a second.
    pub write: Option<u64>,
    /// Reads in a second.
    pub read_iops: Option<u32>,
    /// Writes in a second.
    pub write_iops: Option<u32>,
}

impl DiskLimits {
    /// None yet.
    #[must_use]
    pub fn none(device: Device) -> Self {
        Self { device, read: None, write: None, read_iops: None, write_iops: None }
    }

    /// True if there is no limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::none(self.device)
    }
}

/// The period of a processor limit that names none. The shorter, the less does a program that computes in bursts get
/// away with. But the kernel grants no less than 1 ms in a period, and notices at its ticks (4 ms where `CONFIG_HZ` is
/// 250) that a quota is used up. Where less than half a tick of a period is left to make up for that, a program that
/// always computes gets less than its share (docs/benchmarks.md, "Processor limits by period").
fn period(cores: f64) -> Duration {
    // Of the processor that a program with one thread more than whole cores has to share.
    let share = cores / cores.ceil();
    let rest = (LEAST_REST / (1.0 - share)).min(0.1);
    let seconds = (0.001 / cores).max(rest).max(0.005);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).min(LONGEST_PERIOD)
}

/// Time of a period that a share leaves, s.
const LEAST_REST: f64 = 0.0025;
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// Shortest quota and bounds of the period that the kernel takes, µs (`kernel/sched/core.c`, `min_cfs_quota_period`).
const SHORTEST_QUOTA: u128 = 1_000;
const PERIODS: std::ops::RangeInclusive<u128> = 1_000..=1_000_000;
/// Processors that run now, in list form (`Documentation/ABI/testing/sysfs-devices-system-cpu`).
const ONLINE: &str = "/sys/devices/system/cpu/online";

impl Limits {
    /// The controllers that these limits take, each with the limit's name.
    pub(super) fn needs(&self) -> impl Iterator<Item = (Controller, &'static str)> {
        [
            self.cpu.map(|_| (Controller::Cpu, "cpu")),
            self.cpuset.as_ref().map(|_| (Controller::Cpuset, "cpuset")),
            self.memory.map(|_| (Controller::Memory, "memory")),
            self.memory_soft.map(|_| (Controller::Memory, "memory_soft")),
            self.pids.map(|_| (Controller::Pids, "pids")),
            self.disk.filter(|disk| !disk.is_none()).map(|_| (Controller::Io, "disk")),
        ]
        .into_iter()
        .flatten()
    }

    /// Refuses what the kernel would.
    ///
    /// # Errors
    /// The first limit that cannot be.
    pub fn check(&self) -> Result<(), CgroupError> {
        self.quota()?;
        if self.swap.is_some() && self.memory.is_none() {
            let reason = "swap is counted beyond memory, and memory has no limit. Hint: give memory one too".to_owned();
            return Err(CgroupError::BadLimit { limit: "swap", reason });
        }
        // Version 2 takes processors that are not there, and lets the group run on all instead.
        match (&self.cpuset, fs::read_to_string(ONLINE)) {
            (Some(wanted), Ok(online)) => check_cpuset(wanted, online.trim()),
            _ => Ok(()),
        }
    }

    /// Quota and period, µs.
    pub(super) fn quota(&self) -> Result<Option<(u128, u128)>, CgroupError> {
        let bad = |reason: String| CgroupError::BadLimit { limit: "cpu", reason };
        let Some(cores) = self.cpu else {
            return Ok(None);
        };
        let asked = self.cpu_period.unwrap_or_else(|| period(cores));
        let period = asked.as_micros();
        if !PERIODS.contains(&period) {
            return Err(bad(format!("a period of {period} µs is outside the kernel's 1 ms to 1 s")));
        }
        let quota = Duration::try_from_secs_f64(cores * asked.as_secs_f64())
            .map_err(|_| bad(format!("{cores} cores is not a quantity")))?
            // Clear of the rounding of a product such as 0.07 × 100 ms.
            .saturating_add(Duration::from_nanos(10))
            .as_micros();
        if quota < SHORTEST_QUOTA {
            return Err(bad(format!(
                "{cores} cores is {quota} µs in each {period} µs, and the kernel counts no finer than 1000 µs. Hint: {}",
                if self.cpu_period.is_some() { "a longer period, at most 1 s" } else { "0.1 % of a core is the least" }
            )));
        }
        Ok(Some((quota, period)))
    }
}

/// Refuses processors that are not among those `online`.
fn check_cpuset(wanted: &str, online: &str) -> Result<(), CgroupError> {
    let is_there = |(first, last): (u32, u32)| ranges(online).flatten().any(|(low, high)| low <= first && last <= high);
    if ranges(wanted).all(|range| range.is_some_and(is_there)) {
        return Ok(());
    }
    let reason = format!("of {wanted} not all are there. Hint: this machine runs on processors {online}");
    Err(CgroupError::BadLimit { limit: "cpuset", reason })
}

/// First and last of each part of a list such as `0-3,6`; `None` for one that is none.
fn ranges(list: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    list.split(',').map(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(cpu: f64, period_ms: u64) -> Limits {
        Limits { cpu: Some(cpu), cpu_period: Some(Duration::from_millis(period_ms)), ..Limits::default() }
    }

    #[test]
    fn cores_become_quota_and_period() {
        assert_eq!(limits(0.5, 100).quota().expect("fine"), Some((50_000, 100_000)));
        assert_eq!(limits(2.25, 10).quota().expect("fine"), Some((22_500, 10_000)));
        assert_eq!(Limits::default().quota().expect("fine"), None);
    }

    #[test]
    fn a_period_is_chosen_where_none_is_given() {
        let chosen = |cpu| Limits { cpu: Some(cpu), ..Limits::default() }.quota();
        for (cores, quota, period) in [
            (0.25, 1_250, 5_000),
            (0.5, 2_500, 5_000),
            (0.75, 7_500, 10_000),
            (1.0, 100_000, 100_000),
            (1.75, 35_000, 20_000),
            (0.1, 1_000, 10_000),
        ] {
            assert_eq!(chosen(cores).expect("fine"), Some((quota, period)), "{cores}");
        }
        assert_eq!(chosen(0.002).expect("fine"), Some((1_000, 500_000)));
        assert!(chosen(0.000_5).expect_err("too small").to_string().contains("0.1 %"));
        for not_a_quantity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            chosen(not_a_quantity).expect_err("refused");
        }
    }

    #[test]
    fn swap_takes_memory() {
        let limits = Limits { swap: Some(1), ..Limits::default() };
        assert!(limits.check().expect_err("refused").to_string().contains("Hint"));
    }

    #[test]
    fn processors_must_be_there() {
        for wanted in ["0", "0-3", "1-2,6"] {
            check_cpuset(wanted, "0-3,6").expect("there");
        }
        for wanted in ["4", "2-4", "0,7", "3-6", "x", ""] {
            let error = check_cpuset(wanted, "0-3,6").expect_err("not there").to_string();
            assert!(error.contains("processors 0-3,6"), "{error}");
        }
    }

    #[test]
    fn what_the_kernel_would_refuse_is_explained() {
        for (wrong, word) in [
            (limits(0.005, 100), "longer period"),
            (limits(1.0, 2_000), "1 ms to 1 s"),
            (limits(-1.0, 100), "not a quantity"),
            (limits(f64::NAN, 100), "not a quantity"),
        ] {
            let error = wrong.quota().expect_err("refused").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}

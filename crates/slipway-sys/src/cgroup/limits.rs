//! What a node may use, and the files that say so.

use std::fs;
use std::time::Duration;

use super::control::Folder;
use super::{CgroupError, Controller};

/// Limits of one node; `None` is no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Processor time in cores: 0.5 is half of one.
    pub cpu: Option<f64>,
    /// Over which stretch of time `cpu` is counted, 1 ms to 1 s. A short one spreads the pauses of a limited program evenly,
    /// a long one lets it run in bursts.
    pub cpu_period: Duration,
    /// Processors in the kernel's list form (`0-3,6`).
    pub cpuset: Option<String>,
    /// Bytes. Swap does not add to it: a node that swaps measures the disk.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu: None, cpu_period: Duration::from_millis(100), cpuset: None, memory: None, pids: None }
    }
}

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
            self.pids.map(|_| (Controller::Pids, "pids")),
        ]
        .into_iter()
        .flatten()
    }

    /// Refuses what the kernel would.
    pub(super) fn check(&self) -> Result<(), CgroupError> {
        self.quota()?;
        // Version 2 takes processors that are not there, and lets the group run on all instead.
        match (&self.cpuset, fs::read_to_string(ONLINE)) {
            (Some(wanted), Ok(online)) => check_cpuset(wanted, online.trim()),
            _ => Ok(()),
        }
    }

    /// Writes one controller's limit into a fresh version 2 folder.
    pub(super) fn write_unified(&self, folder: &Folder, controller: Controller) -> Result<(), CgroupError> {
        match controller {
            Controller::Cpu => match self.quota()? {
                Some((quota, period)) => folder.write("cpu.max", &format!("{quota} {period}")),
                None => Ok(()),
            },
            Controller::Cpuset => write_some(folder, "cpuset.cpus", self.cpuset.as_ref()),
            Controller::Memory => {
                write_some(folder, "memory.max", self.memory.as_ref())?;
                if self.memory.is_some() && folder.has("memory.swap.max") {
                    folder.write("memory.swap.max", "0")?;
                }
                Ok(())
            }
            Controller::Pids => write_some(folder, "pids.max", self.pids.as_ref()),
            Controller::Freezer => Ok(()),
        }
    }

    /// Writes one controller's limit into a fresh version 1 folder.
    pub(super) fn write_legacy(&self, folder: &Folder, controller: Controller) -> Result<(), CgroupError> {
        match controller {
            Controller::Cpu => match self.quota()? {
                Some((quota, period)) => {
                    folder.write("cpu.cfs_period_us", &period.to_string())?;
                    folder.write("cpu.cfs_quota_us", &quota.to_string())
                }
                None => Ok(()),
            },
            Controller::Cpuset => write_some(folder, "cpuset.cpus", self.cpuset.as_ref()),
            Controller::Memory => {
                write_some(folder, "memory.limit_in_bytes", self.memory.as_ref())?;
                // Memory and swap together; there only where the kernel counts swap.
                if self.memory.is_some() && folder.has("memory.memsw.limit_in_bytes") {
                    write_some(folder, "memory.memsw.limit_in_bytes", self.memory.as_ref())?;
                }
                Ok(())
            }
            Controller::Pids => write_some(folder, "pids.max", self.pids.as_ref()),
            Controller::Freezer => Ok(()),
        }
    }

    /// Quota and period, µs.
    fn quota(&self) -> Result<Option<(u128, u128)>, CgroupError> {
        let bad = |reason: String| CgroupError::BadLimit { limit: "cpu", reason };
        let Some(cores) = self.cpu else {
            return Ok(None);
        };
        let period = self.cpu_period.as_micros();
        if !PERIODS.contains(&period) {
            return Err(bad(format!("a period of {period} µs is outside the kernel's 1 ms to 1 s")));
        }
        let quota = Duration::try_from_secs_f64(cores * self.cpu_period.as_secs_f64())
            .map_err(|_| bad(format!("{cores} cores is not a quantity")))?
            .as_micros();
        if quota < SHORTEST_QUOTA {
            return Err(bad(format!(
                "{cores} cores is {quota} µs in each {period} µs, and the kernel counts no finer than 1000 µs. Hint: a longer period, at most 1 s"
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

fn write_some(folder: &Folder, file: &str, value: Option<&impl ToString>) -> Result<(), CgroupError> {
    value.map_or(Ok(()), |value| folder.write(file, &value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(cpu: f64, period_ms: u64) -> Limits {
        Limits { cpu: Some(cpu), cpu_period: Duration::from_millis(period_ms), ..Limits::default() }
    }

    #[test]
    fn cores_become_quota_and_period() {
        assert_eq!(limits(0.5, 100).quota().expect("fine"), Some((50_000, 100_000)));
        assert_eq!(limits(2.25, 10).quota().expect("fine"), Some((22_500, 10_000)));
        assert_eq!(Limits::default().quota().expect("fine"), None);
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

//! The files that say what a group may use, in both versions.

use super::control::Folder;
use super::group::Version;
use super::limits::DiskLimits;
use super::{CgroupError, Controller, Limits};

/// The new content of one control file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    /// `None` is no limit.
    pub(super) value: Option<String>,
    /// The content that means no limit.
    pub(super) unlimited: String,
    /// Later kernels have it, or only some.
    optional: bool,
}

impl Setting {
    fn new(file: &'static str, value: Option<impl ToString>, unlimited: &str) -> Self {
        Self { file, value: value.map(|value| value.to_string()), unlimited: unlimited.to_owned(), optional: false }
    }

    fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(super) fn write(&self, folder: &Folder) -> Result<(), CgroupError> {
        // A file that is not there limits nothing.
        if (self.optional || self.value.is_none()) && !folder.has(self.file) {
            return Ok(());
        }
        folder.write(self.file, self.value.as_deref().unwrap_or(&self.unlimited))
    }
}

impl Limits {
    /// All files of one controller, in an order in which a fresh folder takes them.
    pub(super) fn settings(&self, version: Version, controller: Controller) -> Result<Vec<Setting>, CgroupError> {
        Ok(match (version, controller) {
            (_, Controller::Freezer) => Vec::new(),
            (_, Controller::Pids) => vec![Setting::new("pids.max", self.pids, "max")],
            // An empty list is not to be had in version 1, where a fresh folder has its parent's.
            (_, Controller::Cpuset) => {
                self.cpuset.iter().map(|list| Setting::new("cpuset.cpus", Some(list), "")).collect()
            }
            (Version::V2, Controller::Cpu) => {
                let quota = self.quota()?.map(|(quota, period)| format!("{quota} {period}"));
                vec![Setting::new("cpu.max", quota, "max")]
            }
            (Version::V1, Controller::Cpu) => {
                let (quota, period) = self.quota()?.unzip();
                let period = period.map(|period| Setting::new("cpu.cfs_period_us", Some(period), ""));
                period.into_iter().chain([Setting::new("cpu.cfs_quota_us", quota, "-1")]).collect()
            }
            (Version::V2, Controller::Memory) => vec![
                Setting::new("memory.max", self.memory, "max"),
                Setting::new("memory.swap.max", self.memory.map(|_| self.swap.unwrap_or(0)), "max").optional(),
                Setting::new("memory.high", self.memory_soft, "max"),
            ],
            (Version::V1, Controller::Memory) => vec![
                Setting::new("memory.limit_in_bytes", self.memory, "-1"),
                // Memory and swap together; there only where the kernel counts swap.
                Setting::new(MEMORY_AND_SWAP, self.memory_and_swap(), "-1").optional(),
                Setting::new("memory.soft_limit_in_bytes", self.memory_soft, "-1"),
                // Buffers of TCP and UDP are counted apart from all other memory, and only under a limit of their own.
                Setting::new(SOCKETS, self.memory, "-1").optional(),
            ],
            (Version::V2, Controller::Io) => self.disk.iter().map(DiskLimits::unified).collect(),
            (Version::V1, Controller::Io) => self.disk.iter().flat_map(DiskLimits::legacy).collect(),
        })
    }

    /// Writes one controller's limits into a fresh folder.
    pub(super) fn write(&self, folder: &Folder, version: Version, controller: Controller) -> Result<(), CgroupError> {
        let settings = self.settings(version, controller)?;
        settings.iter().filter(|setting| setting.value.is_some()).try_for_each(|setting| setting.write(folder))
    }

    /// Replaces one controller's limits in a folder that is in use.
    pub(super) fn replace(&self, folder: &Folder, version: Version, controller: Controller) -> Result<(), CgroupError> {
        let mut settings = self.settings(version, controller)?;
        if controller == Controller::Memory {
            self.make_room(folder, version)?;
            // In version 1 memory may at no time be more than memory and swap together.
            let now: u64 = folder.try_read(MEMORY_AND_SWAP).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            if version == Version::V1 && self.memory_and_swap().is_none_or(|asked| asked > now) {
                settings.swap(0, 1);
            }
            // Full buffers cannot be thrown away, so they may refuse (`EBUSY`): before anything is changed.
            if settings.last().is_some_and(|setting| setting.file == SOCKETS) {
                settings.rotate_right(1);
            }
        }
        settings.iter().try_for_each(|setting| setting.write(folder))
    }

    fn memory_and_swap(&self) -> Option<u64> {
        self.memory.map(|memory| memory.saturating_add(self.swap.unwrap_or(0)))
    }

    /// Refuses a memory limit below the group's use, after the kernel has written back and dropped all it can: version
    /// 1 does so by itself (`EBUSY`), version 2 would kill.
    fn make_room(&self, folder: &Folder, version: Version) -> Result<(), CgroupError> {
        let file = if version == Version::V2 { "memory.current" } else { "memory.usage_in_bytes" };
        let used = || -> Result<u64, CgroupError> { Ok(folder.read(file)?.trim().parse().unwrap_or(0)) };
        let Some(limit) = self.memory else { return Ok(()) };
        let mut over = used()?.saturating_sub(limit);
        if over > 0 {
            // Version 2's file came with Linux 5.19; version 1's throws away all that it can.
            // What it did is seen by what is used then.
            let _ = match version {
                Version::V1 => folder.try_write("memory.force_empty", "0"),
                Version::V2 => folder.try_write("memory.reclaim", &over.to_string()),
            };
            over = used()?.saturating_sub(limit);
        }
        if over > 0 {
            let reason = format!(
                "{limit} bytes is less than the {} in use now, and a lower limit kills nothing. Hint: end programs first, or give it at least that",
                limit + over
            );
            return Err(CgroupError::BadLimit { limit: "memory", reason });
        }
        Ok(())
    }
}

const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";
pub(super) const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";

impl DiskLimits {
    /// `io.max` (`Documentation/admin-guide/cgroup-v2.rst`).
    fn unified(&self) -> Setting {
        let word = |value: Option<String>| value.unwrap_or_else(|| "max".to_owned());
        let line = format!(
            "{} rbps={} wbps={} riops={} wiops={}",
            self.device,
            word(self.read.map(|rate| rate.to_string())),
            word(self.write.map(|rate| rate.to_string())),
            word(self.read_iops.map(|rate| rate.to_string())),
            word(self.write_iops.map(|rate| rate.to_string())),
        );
        Setting::new("io.max", Some(line), "")
    }

    /// `blkio.throttle.*` (`Documentation/admin-guide/cgroup-v1/blkio-controller.rst`).
    pub(super) fn legacy(&self) -> [Setting; 4] {
        let setting = |file, value: Option<u64>| {
            let value = value.map(|value| format!("{} {value}", self.device));
            Setting::new(file, value, &format!("{} 0", self.device))
        };
        [
            setting("blkio.throttle.read_bps_device", self.read),
            setting("blkio.throttle.write_bps_device", self.write),
            setting("blkio.throttle.read_iops_device", self.read_iops.map(u64::from)),
            setting("blkio.throttle.write_iops_device", self.write_iops.map(u64::from)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::block::Device;

    const DISK: Device = Device { major: 8, minor: 16 };

    /// A folder that looks like a group's, with these files.
    fn group(files: &[(&str, &str)]) -> (tempfile::TempDir, Folder) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let opened = Folder::open(folder.path()).expect("opened").expect("there");
        (folder, opened)
    }

    fn says(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).expect("it is there")
    }

    fn values(limits: &Limits, version: Version, controller: Controller) -> Vec<String> {
        let settings = limits.settings(version, controller).expect("possible");
        settings.into_iter().map(|one| format!("{} {}", one.file, one.value.unwrap_or(one.unlimited))).collect()
    }

    #[test]
    fn each_version_has_its_words() {
        let disk = DiskLimits { write: Some(1 << 20), read_iops: Some(100), ..DiskLimits::none(DISK) };
        let limits = Limits {
            cpu: Some(0.5),
            memory: Some(4096),
            memory_soft: Some(2048),
            swap: Some(1024),
            disk: Some(disk),
            ..Limits::default()
        };
        assert_eq!(values(&limits, Version::V2, Controller::Cpu), ["cpu.max 2500 5000"]);
        assert_eq!(values(&limits, Version::V1, Controller::Cpu), ["cpu.cfs_period_us 5000", "cpu.cfs_quota_us 2500"]);
        let memory = ["memory.max 4096", "memory.swap.max 1024", "memory.high 2048"];
        assert_eq!(values(&limits, Version::V2, Controller::Memory), memory);
        let memory = [
            "memory.limit_in_bytes 4096",
            "memory.memsw.limit_in_bytes 5120",
            "memory.soft_limit_in_bytes 2048",
            "memory.kmem.tcp.limit_in_bytes 4096",
        ];
        assert_eq!(values(&limits, Version::V1, Controller::Memory), memory);
        assert_eq!(
            values(&limits, Version::V2, Controller::Io),
            ["io.max 8:16 rbps=max wbps=1048576 riops=100 wiops=max"]
        );
        let blkio = values(&limits, Version::V1, Controller::Io);
        assert_eq!(blkio[0], "blkio.throttle.read_bps_device 8:16 0");
        assert_eq!(blkio[1], "blkio.throttle.write_bps_device 8:16 1048576");
    }

    #[test]
    fn a_limit_taken_away_is_written_as_none() {
        let (place, folder) = group(&[("cpu.max", "2500 5000"), ("cpu.cfs_quota_us", "2500"), ("pids.max", "7")]);
        for (version, controller) in
            [(Version::V2, Controller::Cpu), (Version::V1, Controller::Cpu), (Version::V2, Controller::Pids)]
        {
            Limits::default().replace(&folder, version, controller).expect("written");
        }
        let now = ["cpu.max", "cpu.cfs_quota_us", "pids.max"].map(|file| says(place.path(), file)[..3].to_owned());
        assert_eq!(now, ["max", "-10", "max"], "written over what was there: a control file has no length");
    }

    #[test]
    fn memory_is_not_lowered_below_what_is_used() {
        let files = [
            ("memory.current", "8192\n"),
            ("memory.max", "max"),
            ("memory.reclaim", ""),
            ("memory.swap.max", ""),
            ("memory.high", ""),
        ];
        let (place, folder) = group(&files);
        let lower = Limits { memory: Some(4096), ..Limits::default() };
        let error = lower.replace(&folder, Version::V2, Controller::Memory).expect_err("in use").to_string();
        assert!(error.contains("8192") && error.contains("Hint"), "{error}");
        assert_eq!(says(place.path(), "memory.max"), "max", "as it was");
        assert_eq!(says(place.path(), "memory.reclaim"), "4096", "it was tried");
        let higher = Limits { memory: Some(16384), ..Limits::default() };
        higher.replace(&folder, Version::V2, Controller::Memory).expect("fits");
        assert_eq!(
            (says(place.path(), "memory.max"), says(place.path(), "memory.swap.max")),
            ("16384".into(), "0".into())
        );
    }
}

//! Block devices: which one carries a file, and loop devices, which make one of a file (`loop(4)`).

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod loop_device;

pub use loop_device::{LoopDevice, attached, free};

/// A block device's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Device {
    /// The driver's.
    pub major: u32,
    /// The driver's for this one.
    pub minor: u32,
}

impl Device {
    /// The whole disk that carries `path`; `None` where no block device does, as for a tmpfs.
    ///
    /// # Errors
    /// When the path cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        let device = rustix::fs::stat(path)?.st_dev;
        let device = Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device) };
        // The folder of a partition lies in that of its disk (`Documentation/ABI/stable/sysfs-block`).
        let Ok(folder) = fs::canonicalize(device.folder()) else { return Ok(None) };
        if !folder.join("partition").exists() {
            return Ok(Some(device));
        }
        let whole = folder.parent().and_then(|disk| fs::read_to_string(disk.join("dev")).ok());
        Ok(whole.and_then(|text| text.trim().parse().ok()))
    }

    /// The device's counts so far; `None` where the device is gone.
    #[must_use]
    pub fn statistics(self) -> Option<Statistics> {
        Statistics::parse(&fs::read_to_string(self.folder().join("stat")).ok()?)
    }

    /// The time in which a request was under way, since the start; `None` where the device is gone or nobody counts.
    #[must_use]
    pub fn busy(self) -> Option<Duration> {
        busy(&fs::read_to_string(self.folder().join("stat")).ok()?)
    }

    /// Bytes that the kernel reads ahead on the device (`queue/read_ahead_kb`); `None` where the device has no queue.
    #[must_use]
    pub fn readahead(self) -> Option<u64> {
        let text = fs::read_to_string(self.folder().join("queue/read_ahead_kb")).ok()?;
        text.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Sets the bytes that the kernel reads ahead on the device, for every program: whole KiB.
    ///
    /// # Errors
    /// `EACCES` without root, `ENOENT` where the device has no queue.
    pub fn set_readahead(self, bytes: u64) -> io::Result<()> {
        fs::write(self.folder().join("queue/read_ahead_kb"), (bytes / 1024).to_string())
    }

    /// Whether the device is a loop device, a file as a disk.
    #[must_use]
    pub fn is_loop(self) -> bool {
        self.folder().join("loop").exists()
    }

    /// Bounds what may wait in the page cache to be written to the device, bytes: whoever writes more waits for it. Counted
    /// for this device alone, however much memory is free (`Documentation/ABI/testing/sysfs-class-bdi`).
    ///
    /// # Errors
    /// `ENOENT` before Linux 6.2.
    pub fn limit_waiting(self, most: Option<u64>) -> io::Result<()> {
        let (file, value) = match most {
            Some(bytes) => ("max_bytes", bytes),
            None => ("max_ratio", 100),
        };
        fs::write(self.waiting(file), value.to_string())?;
        fs::write(self.waiting("strict_limit"), if most.is_some() { "1" } else { "0" })
    }

    /// Whether [`Device::limit_waiting`] can.
    #[must_use]
    pub fn limits_waiting(self) -> bool {
        self.waiting("strict_limit").exists()
    }

    fn waiting(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/class/bdi/{self}/{file}"))
    }

    /// The device's folder in sysfs.
    fn folder(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{self}"))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

/// Not `MAJOR:MINOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a block device is written MAJOR:MINOR")]
pub struct NotADevice;

impl FromStr for Device {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let (major, minor) = text.split_once(':').ok_or(NotADevice)?;
        Ok(Self { major: major.parse().map_err(|_| NotADevice)?, minor: minor.parse().map_err(|_| NotADevice)? })
    }
}

impl TryFrom<String> for Device {
    type Error = NotADevice;

    fn try_from(text: String) -> Result<Self, NotADevice> {
        text.parse()
    }
}

/// Data written to and read from a device, or one group's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Statistics {
    /// Reads done.
    pub reads: u64,
    /// Bytes read.
    pub read: u64,
    /// Writes done.
    pub writes: u64,
    /// Bytes written.
    pub written: u64,
}

impl Statistics {
    /// `Documentation/block/stat.rst`: sectors there are 512 bytes, whatever the device's own are.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [reads, _, read, _, writes, _, written, ..] = fields[..] else { return None };
        Some(Self { reads, read: read * 512, writes, written: written * 512 })
    }
}

/// Field 10 of `Documentation/block/stat.rst`, milliseconds.
fn busy(stat: &str) -> Option<Duration> {
    stat.split_whitespace().nth(9)?.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_found_and_a_tmpfs_has_none() {
        assert_eq!(Device::of(Path::new("/proc")).expect("it is there"), None);
        assert_eq!(Device::of(Path::new("/dev/shm")).expect("it is there"), None);
        Device::of(Path::new("/nowhere")).expect_err("it is not there");
    }

    #[test]
    fn numbers_are_read_and_written() {
        let device = Device { major: 254, minor: 16 };
        assert_eq!("254:16".parse(), Ok(device));
        assert_eq!(device.to_string(), "254:16");
        for wrong in ["", ":", "7", "7:", "a:b", "7:-1", "7:1:2"] {
            assert_eq!(wrong.parse::<Device>(), Err(NotADevice), "{wrong}");
        }
    }

    #[test]
    fn sectors_are_512_bytes() {
        let stat =
            "     100        0      800       12       50        3     1600       40        0       52       52\n";
        let expected = Statistics { reads: 100, read: 409_600, writes: 50, written: 819_200 };
        assert_eq!(Statistics::parse(stat), Some(expected));
        assert_eq!(Statistics::parse(""), None);
        assert_eq!((busy(stat), busy("")), (Some(Duration::from_millis(52)), None));
    }
}

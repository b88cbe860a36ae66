//! Loop devices (`loop(4)`): a file as a block device.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::Device;

// `include/uapi/linux/loop.h`.
const LOOP_CTL_GET_FREE: u16 = 0x4C82;
const LOOP_CONFIGURE: u16 = 0x4C0A;
const LOOP_CLR_FD: u16 = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

nix::ioctl_none_bad!(loop_ctl_get_free, LOOP_CTL_GET_FREE);
nix::ioctl_none_bad!(loop_clr_fd, LOOP_CLR_FD);
nix::ioctl_write_ptr_bad!(loop_configure, LOOP_CONFIGURE, LoopConfig);

/// `struct loop_config`, with the `struct loop_info64` in it.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// Device, inode, rdevice, offset, size limit.
    numbers: [u64; 5],
    /// Number, encryption type, size of its key.
    kinds: [u32; 3],
    flags: u32,
    /// File name, cipher name, key, initialisation.
    names: [u8; 64 + 64 + 32 + 16],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304, "as <linux/loop.h> has it");

/// A loop device, attached to its file for as long as this is open, it is mounted, or anybody else has it open.
#[derive(Debug)]
pub struct LoopDevice {
    _open: File,
    /// The device's major and minor number.
    pub device: Device,
    /// The device's file in `/dev`.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a free loop device to `file`. It reads and writes past the page cache where the file's file system can do
    /// that, so that nothing is cached twice.
    ///
    /// # Errors
    /// As `loop(4)`: `ENOENT` or `EACCES` on `/dev/loop-control` where there are no loop devices to be had.
    pub fn attach(file: &File) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        loop {
            // SAFETY: the descriptor is open, and the request takes no argument.
            let number = unsafe { loop_ctl_get_free(control.as_raw_fd()) }?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let open = OpenOptions::new().read(true).write(true).open(&path)?;
            let found = open.metadata()?;
            if !found.file_type().is_block_device() {
                return Err(io::Error::other(format!("{} is not a block device", path.display())));
            }
            let config = LoopConfig {
                fd: file.as_raw_fd().cast_unsigned(),
                block_size: 0,
                numbers: [0; 5],
                kinds: [0; 3],
                flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                names: [0; 176],
                reserved: [0; 8],
            };
            // SAFETY: both descriptors are open, and the structure is that of the request, alive through the call.
            match unsafe { loop_configure(open.as_raw_fd(), &raw const config) } {
                Ok(_) => {
                    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
                    return Ok(Self { _open: open, device: Device { major, minor }, path });
                }
                // Somebody else took it between the two requests; there is another.
                Err(nix::errno::Errno::EBUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Loop devices that are attached to a file below `folder`, with the file.
///
/// # Errors
/// When sysfs cannot be listed.
pub fn attached(folder: &Path) -> io::Result<Vec<(Device, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?.path();
        // A device that is free has no such file, and one that is freed meanwhile no longer.
        let Ok(file) = fs::read_to_string(entry.join("loop/backing_file")) else { continue };
        // The kernel says so of a file that has no name any more.
        let file = Path::new(file.trim_end_matches('\n').trim_end_matches(" (deleted)")).to_owned();
        let device = fs::read_to_string(entry.join("dev")).ok().and_then(|text| text.trim().parse().ok());
        if let Some(device) = device.filter(|_| file.starts_with(folder)) {
            found.push((device, file));
        }
    }
    Ok(found)
}

/// Frees a loop device: now, or when the last who uses it lets go.
///
/// # Errors
/// When it cannot be opened. That it is free already is fine.
pub fn free(device: Device) -> io::Result<()> {
    let folder = fs::canonicalize(device.folder())?;
    let open = File::open(Path::new("/dev").join(folder.file_name().unwrap_or_default()))?;
    // SAFETY: the descriptor is open, and the request takes no argument.
    match unsafe { loop_clr_fd(open.as_raw_fd()) } {
        Ok(_) | Err(nix::errno::Errno::ENXIO) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

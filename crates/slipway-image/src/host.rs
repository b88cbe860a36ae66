//! This machine's own root as an image.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::Part;
use super::error::ImageError;

/// Where a node has its own, or what is no business of a node.
const NOT_SHARED: &[&str] = &["/proc", "/sys", "/dev", "/run", "/tmp", "/boot"];

/// Folders where container engines mount their containers' roots.
const ENGINES: &[&str] =
    &["/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/slipway"];

/// File systems that hold files although no block device is under them (`/proc/filesystems` calls them `nodev`).
const WITHOUT_DEVICE: &[&str] =
    &["9p", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs", "zfs"];

/// The machine's root, and the directories in it that are file systems of their own.
pub(super) fn part(store: &Path) -> Result<Part, ImageError> {
    let read = |path: &str| fs::read(path).map_err(ImageError::io("read", Path::new(path)));
    let with_device = filesystems(&String::from_utf8_lossy(&read("/proc/filesystems")?));
    let mut extra_binds = mounts(&read("/proc/self/mountinfo")?, &with_device);
    // Containers have single files mounted too (/etc/hosts): a node has its own of those.
    extra_binds.retain(|path| path.is_dir() && !path.starts_with(store));
    Ok(Part { lowers: vec![PathBuf::from("/")], config: None, extra_binds })
}

/// Names of the file systems that lie on block devices.
fn filesystems(text: &str) -> HashSet<String> {
    text.lines().filter_map(|line| line.strip_prefix('\t')).map(str::to_owned).collect()
}

/// Mount points below `/` whose files a node should see, parents first (`proc_pid_mountinfo(5)`).
fn mounts(mountinfo: &[u8], with_device: &HashSet<String>) -> Vec<PathBuf> {
    let mut found: Vec<(PathBuf, bool)> = Vec::new();
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(point) = fields.nth(4) else { continue };
        let kind = fields.skip_while(|field| *field != b"-").nth(1);
        let kind = String::from_utf8_lossy(kind.unwrap_or_default());
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        let real = with_device.contains(&*kind) || WITHOUT_DEVICE.contains(&&*kind);
        // A later mount over the same place, or over a place above, hides earlier ones.
        found.retain(|(earlier, _)| !earlier.starts_with(&point));
        found.push((point, real));
    }
    let mut seen: Vec<_> =
        found.into_iter().filter(|(point, real)| *real && is_shared(point)).map(|(point, _)| point).collect();
    seen.sort();
    seen
}

fn is_shared(point: &Path) -> bool {
    let kept_out = |folder: &&&str| point.starts_with(folder);
    point != Path::new("/") && NOT_SHARED.iter().chain(ENGINES).find(kept_out).is_none()
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(byte));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_file_systems_in_shared_places_are_bound() {
        let text = b"\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:5 / /proc rw - proc proc rw
24 22 254:1 / /usr rw,relatime shared:1 - ext4 /dev/vdb rw
25 22 0:30 / /home rw - nfs4 server:/home rw
26 22 0:31 / /data\\040two rw master:1 propagate_from:2 - xfs /dev/vdc rw
27 22 0:32 / /srv rw - tmpfs tmpfs rw
28 22 254:3 / /mnt/old/deep rw - ext4 /dev/vdd rw
29 22 0:33 / /mnt/old rw - tmpfs over rw
30 22 254:4 / /boot/efi rw - vfat /dev/vde rw
31 22 254:5 / /var/lib/docker/x rw - ext4 /dev/vdf rw
32 24 254:6 / /usr/local rw - ext4 /dev/vdg rw
";
        let kinds = filesystems("nodev\tproc\n\text4\n\txfs\n\tvfat\nnodev\ttmpfs\n");
        let expected = ["/data two", "/home", "/usr", "/usr/local"];
        assert_eq!(mounts(text, &kinds), expected.map(PathBuf::from));
    }

    #[test]
    fn any_bytes_are_a_mountinfo() {
        assert!(mounts(b"\\\n - \\9 \n1 2 3 4 \\77", &HashSet::new()).is_empty());
    }
}

//! Limits that change while a node runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use super::control::Folder;
use super::control::check_name;
use super::group::{PATIENCE, Part, Version, pids, stuck};
use super::hierarchy::make_below;
use super::{CgroupError, Controller, DiskLimits, Hierarchy, Limits, TOP};

impl Hierarchy {
    /// Replaces the limits of a node that has a group, as far as `which` has them. Its processes go on meanwhile, and from
    /// the first file on that is written the new limit holds.
    ///
    /// A version 1 controller in which the node had no folder gets one, and the node's processes move there. It does
    /// not count memory that they use already.
    ///
    /// # Errors
    /// When a limit is impossible, needs a controller that is missing here, or memory is to be less than what is in use:
    /// then all is as before. When the kernel refuses.
    pub fn set_limits(
        &self,
        lab: &str,
        node: &str,
        limits: &Limits,
        which: &BTreeSet<Controller>,
    ) -> Result<(), CgroupError> {
        check_name(lab)?;
        check_name(node)?;
        let needed = self.needed(limits)?;
        // Memory first: what is in use can refuse it.
        let memory_first = which.iter().copied().filter(|&one| one == Controller::Memory);
        for controller in memory_first.chain(which.iter().copied().filter(|&one| one != Controller::Memory)) {
            let parts = self.parts(&BTreeSet::from([controller]));
            let Some((mount, part)) = parts.into_iter().find(|(_, part)| part.controllers.contains(&controller)) else {
                continue;
            };
            if needed.contains(&controller) {
                let folder = node_folder(&mount, &part, lab, node)?;
                limits.replace(&folder, part.version, controller)?;
                if part.version == Version::V1 {
                    self.gather(lab, node, &folder)?;
                }
            } else if let Some(folder) = Folder::open(&mount.join(TOP).join(lab).join(node))? {
                limits.replace(&folder, part.version, controller)?;
            }
        }
        Ok(())
    }

    /// Limits a block device for all users. They include the kernel's own threads, which write back data that programs
    /// left in the page cache: version 1 applies the root group's limits to the whole machine. False where that is not
    /// possible: version 2 has no such file in its root, and counts data written back to its owner.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limit_device(&self, limits: &DiskLimits) -> Result<bool, CgroupError> {
        let Some(root) = self.legacy_root(Controller::Io)? else { return Ok(false) };
        limits.legacy().iter().try_for_each(|setting| setting.write(&root))?;
        Ok(true)
    }

    /// Whether [`Hierarchy::limit_device`] can.
    #[must_use]
    pub fn limits_devices(&self) -> bool {
        self.legacy.contains_key(&Controller::Io)
    }

    /// True if the calling process, and its children, are in the root group that [`Hierarchy::limit_device`] limits:
    /// groups of version 1 do not hold the groups below them.
    #[must_use]
    pub fn is_held_by_device_limits(&self) -> bool {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        in_root(&groups, Controller::Io.legacy_name())
    }

    /// The limits that [`Hierarchy::limit_device`] has set; `None` where that is not to be had.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn device_limits(&self, device: crate::block::Device) -> Result<Option<DiskLimits>, CgroupError> {
        Ok(self.legacy_root(Controller::Io)?.map(|root| DiskLimits::read_legacy(&root, device)))
    }

    fn legacy_root(&self, controller: Controller) -> Result<Option<Folder>, CgroupError> {
        self.legacy.get(&controller).map_or(Ok(None), |mount| Folder::open(mount))
    }

    /// Moves every process of the node into `folder`. A child that a process starts before it has moved itself shows in
    /// the next look. Children after that are in the folder from birth, so this ends.
    fn gather(&self, lab: &str, node: &str, folder: &Folder) -> Result<(), CgroupError> {
        let Some(record) = self.open_node(lab, node)? else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let inside: BTreeSet<i32> = pids(folder)?.into_iter().collect();
            let outside: Vec<i32> =
                record.pids()?.into_iter().filter(|pid| *pid > 0 && !inside.contains(pid)).collect();
            if outside.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(stuck(folder, "move every process of the node into"));
            }
            for pid in outside {
                match folder.try_write("cgroup.procs", &pid.to_string()) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    moved => moved.map_err(super::failed("move a process into", folder.path()))?,
                }
            }
        }
    }
}

/// The node's folder below a mount, made if it is not there.
fn node_folder(mount: &Path, part: &Part, lab: &str, node: &str) -> Result<Folder, CgroupError> {
    let lab = make_below(mount, lab, part)?;
    let gone = || super::failed("make", &lab.path().join(node))(std::io::ErrorKind::NotFound.into());
    let folder = lab.make(node)?.ok_or_else(gone)?;
    part.adopt(&lab, &folder)?;
    Ok(folder)
}

/// `proc_pid_cgroup(5)`: `7:blkio:/user.slice`.
fn in_root(groups: &str, controller: &str) -> bool {
    let group = groups.lines().find_map(|line| {
        let (names, group) = line.split_once(':')?.1.split_once(':')?;
        names.split(',').any(|name| name == controller).then_some(group)
    });
    group == Some("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_group_is_told_from_others() {
        let groups = |blkio: &str| format!("8:pids:/\n7:rdma,blkio:{blkio}\n0::/\n");
        assert!(in_root(&groups("/"), "blkio"));
        assert!(!in_root(&groups("/user.slice"), "blkio"));
        assert!(!in_root("0::/\n", "blkio"));
    }
}

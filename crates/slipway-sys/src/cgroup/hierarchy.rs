//! The mounted hierarchies of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control::{Folder, check_name};
use super::controller::Controller;
use super::group::{Group, Part};
use super::{CgroupError, Limits, TOP, failed};

/// The versions that a machine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Version 2 beside version 1 controllers.
    Hybrid,
}

/// Where control groups are mounted, and which version has which controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    unified: Option<Unified>,
    pub(super) legacy: BTreeMap<Controller, PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Unified {
    path: PathBuf,
    controllers: BTreeSet<Controller>,
}

impl Hierarchy {
    /// Looks at this machine.
    ///
    /// # Errors
    /// When no hierarchy is mounted that can record who is in a node.
    pub fn detect() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(failed("read", path))?;
        let controllers = match unified_mount(&mounts) {
            Some(mount) => {
                let path = mount.join("cgroup.controllers");
                fs::read_to_string(&path).map_err(failed("read", &path))?
            }
            None => String::new(),
        };
        Self::parse(&mounts, &controllers)
    }

    /// The pure part of [`Hierarchy::detect`]: `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`) and version 2's root
    /// `cgroup.controllers`.
    ///
    /// # Errors
    /// As [`Hierarchy::detect`].
    pub fn parse(mountinfo: &str, controllers: &str) -> Result<Self, CgroupError> {
        let unified = unified_mount(mountinfo).map(|path| {
            let offered: BTreeSet<&str> = controllers.split_whitespace().collect();
            let controllers = Controller::ALL.into_iter().filter(|one| offered.contains(one.name())).collect();
            Unified { path, controllers }
        });
        let mut legacy = BTreeMap::new();
        for mount in mounts(mountinfo).filter(|mount| mount.kind == "cgroup") {
            for controller in Controller::ALL {
                if mount.options.split(',').any(|option| option == controller.legacy_name()) {
                    legacy.entry(controller).or_insert_with(|| mount.path.clone());
                }
            }
        }
        match (&unified, legacy.contains_key(&Controller::Freezer)) {
            (None, false) if legacy.is_empty() => Err(CgroupError::NoHierarchy),
            (None, false) => Err(CgroupError::NoFreezer),
            _ => Ok(Self { unified, legacy }),
        }
    }

    /// The same, with everything made below a folder `top` that this process is in, as with a batch system's job. Hierarchies
    /// where it is in none of that name stay as they are.
    ///
    /// In version 1 that is below the process's own group: the batch system accounts for a job by the groups of its steps. In
    /// version 2 a group with processes has no controllers for groups below it, so it is below `top` itself.
    ///
    /// # Errors
    /// When the process's own groups cannot be read.
    pub fn below(self, top: &str) -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/cgroup");
        let own = fs::read_to_string(path).map_err(failed("read", path))?;
        Ok(self.below_in(top, &own))
    }

    /// The pure part of [`Hierarchy::below`]: `own` is `/proc/self/cgroup` (`cgroups(7)`).
    #[must_use]
    pub fn below_in(mut self, top: &str, own: &str) -> Self {
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let Some(folder) = up_to(top, group) else { continue };
            if controllers.is_empty() {
                self.unified.iter_mut().for_each(|unified| unified.path.push(&folder));
            }
            for (controller, path) in &mut self.legacy {
                if controllers.split(',').any(|one| one == controller.legacy_name()) {
                    path.push(group.trim_start_matches('/'));
                }
            }
        }
        self
    }

    /// The versions in use.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match (&self.unified, self.legacy.is_empty()) {
            (Some(_), true) => Mode::V2,
            (Some(_), false) => Mode::Hybrid,
            (None, _) => Mode::V1,
        }
    }

    /// Controllers that limits can use, whichever version has them.
    #[must_use]
    pub fn controllers(&self) -> BTreeSet<Controller> {
        let unified = self.unified.iter().flat_map(|unified| unified.controllers.iter().copied());
        unified.chain(self.legacy.keys().copied()).filter(|&one| one != Controller::Freezer).collect()
    }

    /// Makes the lab's folders, with what its nodes' limits need made ready in the folders above. Fine if they exist.
    ///
    /// # Errors
    /// When a limit is impossible, or needs a controller that is missing here: before anything is made. When the kernel refuses.
    pub fn create_lab<'a>(
        &self,
        lab: &str,
        limits: impl IntoIterator<Item = &'a Limits>,
    ) -> Result<Group, CgroupError> {
        check_name(lab)?;
        let mut needed = BTreeSet::new();
        for limits in limits {
            needed.append(&mut self.needed(limits)?);
        }
        let mut parts = Vec::new();
        for (mount, part) in self.parts(&needed) {
            let folder = make_below(&mount, lab, &part)?;
            parts.push(part.at(folder));
        }
        Ok(Group::new(parts))
    }

    /// The controllers that the limits need.
    ///
    /// # Errors
    /// When a limit is impossible, or needs a controller that is missing here.
    pub(super) fn needed(&self, limits: &Limits) -> Result<BTreeSet<Controller>, CgroupError> {
        limits.check()?;
        let (mut needed, offered) = (BTreeSet::new(), self.controllers());
        for (controller, limit) in limits.needs() {
            if !offered.contains(&controller) {
                return Err(CgroupError::NoController { limit, reason: why_missing(controller) });
            }
            needed.insert(controller);
        }
        Ok(needed)
    }

    /// The lab's folders as they are; `None` when it has none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_lab(&self, lab: &str) -> Result<Option<Group>, CgroupError> {
        check_name(lab)?;
        self.open(&Path::new(TOP).join(lab))
    }

    /// A node's folders as they are; `None` when it has none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_node(&self, lab: &str, node: &str) -> Result<Option<Group>, CgroupError> {
        check_name(lab)?;
        check_name(node)?;
        self.open(&Path::new(TOP).join(lab).join(node))
    }

    fn open(&self, below: &Path) -> Result<Option<Group>, CgroupError> {
        let (mut parts, mut absent) = (Vec::new(), Vec::new());
        for (mount, part) in self.parts(&self.controllers()) {
            let path = mount.join(below);
            match Folder::open(&path)? {
                Some(folder) => parts.push(part.at(folder)),
                None => absent.push(path),
            }
        }
        Ok((!parts.is_empty()).then(|| Group::opened(parts, absent)))
    }

    /// Labs that have a folder in any hierarchy, running or left behind by a crash.
    ///
    /// # Errors
    /// When a hierarchy cannot be read.
    pub fn find_all(&self) -> Result<BTreeSet<String>, CgroupError> {
        let mut labs = BTreeSet::new();
        for (mount, _) in self.parts(&self.controllers()) {
            if let Some(top) = Folder::open(&mount.join(TOP))? {
                labs.extend(top.children()?);
            }
        }
        Ok(labs)
    }

    /// Removes [`TOP`] itself where no lab is left in it.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than a lab being there.
    pub fn remove_top(&self) -> Result<(), CgroupError> {
        for (mount, _) in self.parts(&self.controllers()) {
            let top = mount.join(TOP);
            match fs::remove_dir(&top) {
                Ok(()) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBUSY | libc::ENOTEMPTY)) => {}
                Err(error) => return Err(failed("remove", &top)(error)),
            }
        }
        Ok(())
    }

    /// The hierarchies to use for these controllers: the membership record first, then one for each version 1 mount
    /// (several controllers may share one).
    pub(super) fn parts(&self, needed: &BTreeSet<Controller>) -> Vec<(PathBuf, Part)> {
        let mut parts: Vec<(PathBuf, Part)> = Vec::new();
        let mut wanted = needed.clone();
        if let Some(unified) = &self.unified {
            let mut controllers: BTreeSet<_> = needed.intersection(&unified.controllers).copied().collect();
            // Buffered writes are counted for whom the page is: without the memory controller, for nobody
            // (cgroup-v2.rst, "Writeback").
            if controllers.contains(&Controller::Io) {
                controllers.extend(unified.controllers.get(&Controller::Memory));
            }
            parts.push((unified.path.clone(), Part::unified(controllers)));
        } else {
            wanted.insert(Controller::Freezer);
        }
        let first_legacy = (self.unified.is_none()).then_some(Controller::Freezer);
        for controller in first_legacy.into_iter().chain(wanted) {
            let Some(mount) = self.legacy.get(&controller) else {
                continue;
            };
            if let Some((_, part)) = parts.iter_mut().find(|(path, _)| path == mount) {
                part.controllers.insert(controller);
            } else {
                parts.push((mount.clone(), Part::legacy(controller)));
            }
        }
        parts
    }
}

/// Makes `slipway/<lab>` below a mount. Another lab that goes down may remove `slipway` between the two steps, having
/// seen it empty. Then this makes both again; that lab is gone by then, so this ends.
pub(super) fn make_below(mount: &Path, lab: &str, part: &Part) -> Result<Folder, CgroupError> {
    loop {
        let root = Folder::open(mount)?.ok_or(CgroupError::NoHierarchy)?;
        part.prepare_children(&root)?;
        let Some(top) = root.make(TOP)? else { continue };
        part.adopt(&root, &top)?;
        part.prepare_children(&top)?;
        let Some(made) = top.make(lab)? else { continue };
        part.adopt(&top, &made)?;
        part.prepare_children(&made)?;
        return Ok(made);
    }
}

/// The beginning of a group's path, up to the folder of this name; relative to the mount.
fn up_to(top: &str, group: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty()).collect();
    let end = parts.iter().position(|&part| part == top)?;
    // Of a group outside of this control group namespace only the way up is known.
    (!parts.contains(&"..")).then(|| parts[..=end].iter().collect())
}

fn why_missing(controller: Controller) -> String {
    let name = controller.legacy_name();
    let state = fs::read_to_string("/proc/cgroups").ok().and_then(|table| {
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        Some(line.split_whitespace().nth(3)? == "1")
    });
    match state {
        Some(true) => format!(
            "the kernel has the {name} controller, but no hierarchy mounts it. Hint: mkdir -p /sys/fs/cgroup/{name} && mount -t cgroup -o {name} none /sys/fs/cgroup/{name}"
        ),
        Some(false) => {
            format!("the {name} controller is turned off. Hint: boot with cgroup_enable={name}")
        }
        None => format!("this kernel has no {name} controller. Hint: leave the limit out"),
    }
}

struct Mount {
    path: PathBuf,
    kind: String,
    options: String,
}

fn unified_mount(mountinfo: &str) -> Option<PathBuf> {
    mounts(mountinfo).find(|mount| mount.kind == "cgroup2").map(|mount| mount.path)
}

/// The lines of mountinfo that concern control groups.
fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount> {
    mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let path = before.split(' ').nth(4)?;
        let mut after = after.split(' ');
        let kind = after.next().filter(|kind| kind.starts_with("cgroup"))?;
        let options = after.nth(1)?;
        Some(Mount { path: unescape(path), kind: kind.to_owned(), options: options.to_owned() })
    })
}

/// mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(path: &str) -> PathBuf {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        out.push_str(plain);
        let code = escaped.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            out.push(char::from(code));
            rest = &escaped[3..];
        } else {
            out.push('\\');
            rest = escaped;
        }
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests;

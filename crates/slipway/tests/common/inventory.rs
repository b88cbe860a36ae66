//! What is there of a place's labs, on the whole machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Place;

/// Everything that a lab makes and that could be left: compare one taken before with one taken after. Only what belongs to
/// the place is in it, so that tests beside this one do not show; interfaces of the machine itself are all in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Processes with the place's folder in their environment, or in a control group of its labs.
    pub processes: BTreeSet<String>,
    /// Network namespaces that those processes are in, other than the machine's.
    pub namespaces: BTreeSet<String>,
    /// Control groups of its labs.
    pub cgroups: BTreeSet<PathBuf>,
    /// Mounts of the machine that lie in the place's folder, and namespaces that are bound anywhere.
    pub mounts: BTreeSet<String>,
    /// Interfaces of the machine's own network namespace.
    pub interfaces: BTreeSet<String>,
    /// Files of its labs: state, locks, scratch.
    pub files: BTreeSet<PathBuf>,
}

impl Inventory {
    pub fn of(place: &Place) -> Self {
        let mut found = Self::default();
        let folder = place.path().to_string_lossy().into_owned();
        let home = fs::read_link("/proc/self/ns/net").expect("/proc is mounted");
        for process in entries(Path::new("/proc")).filter(|path| path.join("ns").exists()) {
            // One that ends meanwhile reads as nothing.
            let bytes = fs::read(process.join("environ")).unwrap_or_default();
            let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            let of_lab = String::from_utf8_lossy(&bytes).contains(&format!("SLIPWAY_STATE={folder}"))
                || groups.contains(&format!("/slipway/{}", place.prefix));
            // A `slipway` that a test itself runs in the background is the test's business.
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            // A process that has ended has no program any more. A node's PID 1 has one, and no environment.
            if of_lab && fs::read_link(process.join("exe")).is_ok() {
                found.processes.insert(format!("{} {}", process.display(), name.trim()));
                found.namespaces.extend(
                    fs::read_link(process.join("ns/net"))
                        .ok()
                        .filter(|net| *net != home)
                        .map(|net| net.display().to_string()),
                );
            }
        }
        let hierarchies = entries(Path::new("/sys/fs/cgroup")).chain([PathBuf::from("/sys/fs/cgroup")]);
        for group in hierarchies.flat_map(|hierarchy| entries(&hierarchy.join("slipway"))) {
            if group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&place.prefix)) {
                found.cgroups.insert(group);
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        found.mounts = mounts
            .lines()
            // `ip netns` has a place of its own, which others may be using meanwhile.
            .filter(|line| line.contains(&folder) || line.contains(" nsfs ") && !line.contains(" /run/netns/"))
            .map(str::to_owned)
            .collect();
        found.interfaces = entries(Path::new("/sys/class/net")).map(|path| path.display().to_string()).collect();
        for place in ["state", "state/.locks", "scratch"].map(|name| place.path().join(name)) {
            found.files.extend(entries(&place).filter(|path| !path.ends_with(".locks")));
        }
        found
    }
}

/// What is in a folder; nothing where there is none.
pub fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

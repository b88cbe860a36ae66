//! Mounted file systems (`/proc/self/mountinfo`, proc(5)).

use std::collections::BTreeMap;

use serde::Serialize;

use super::source::Source;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The folder.
    pub at: String,
    /// The kind, such as `ext4`.
    pub kind: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// ext4's way with data: `ordered`, `writeback` or `journal`.
    #[must_use]
    pub fn journal(&self) -> Option<&str> {
        let told = self.options.iter().find_map(|option| option.strip_prefix("data="));
        // The kernel leaves the default out.
        (self.kind == "ext4").then(|| told.unwrap_or("ordered"))
    }
}

/// Mounts by the number of their device, each device's first few.
pub(super) fn gather(source: &Source) -> BTreeMap<String, Vec<Mount>> {
    const MOST: usize = 16;
    let mut mounts: BTreeMap<String, Vec<Mount>> = BTreeMap::new();
    let text = source.read("/proc/self/mountinfo");
    for line in text.known().map(String::as_str).unwrap_or_default().lines().take(4096) {
        let Some((device, mount)) = mount(line) else { continue };
        let of_device = mounts.entry(device.to_owned()).or_default();
        // Containers bind one file system to many places.
        if of_device.len() < MOST {
            of_device.push(mount);
        }
    }
    mounts
}

fn mount(line: &str) -> Option<(&str, Mount)> {
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let (device, root, at, options) = (place.next()?, place.next()?, place.next()?, place.next()?);
    if root != "/" {
        return None;
    }
    let mut system = system.split(' ');
    let (kind, super_options) = (system.next()?, system.nth(1).unwrap_or_default());
    let options = options.split(',').chain(super_options.split(',')).filter(|option| !option.is_empty());
    let options: std::collections::BTreeSet<String> = options.map(str::to_owned).collect();
    Some((device, Mount { at: at.to_owned(), kind: kind.to_owned(), options: options.into_iter().collect() }))
}

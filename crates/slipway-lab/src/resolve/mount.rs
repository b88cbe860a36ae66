//! Bind mounts.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use slipway_document::de::Spanned;
use slipway_document::errors::Report;

use super::node::Group;
use crate::file::{Mount as Written, MountSettings};
use crate::model::{Mount, Node};

/// Slipway's own mounts in every node; no other mount may lie over them.
const KEPT: [&str; 4] = ["/proc", "/sys", "/dev", "/run/slipway"];

/// Sets every node's mounts.
pub(super) fn mounts(groups: &[Group], base_dir: &Path, nodes: &mut [Node], report: &mut Report) {
    let mut rest = nodes;
    for group in groups {
        let mounts = of_group(group.spec.mounts.as_deref().unwrap_or_default(), base_dir, report);
        let (mine, others) = rest.split_at_mut(group.count.min(rest.len()));
        rest = others;
        for node in mine {
            node.mounts.clone_from(&mounts);
        }
    }
}

fn of_group(written: &[Written], base_dir: &Path, report: &mut Report) -> Vec<Mount> {
    let mut targets = HashSet::new();
    let mut mounts = Vec::new();
    for written in written {
        let Some(parts) = parts(written, report) else { continue };
        let Some(mount) = mount(&parts, base_dir, report) else { continue };
        if !targets.insert(mount.target.clone()) {
            let message = format!("{} is mounted on twice", mount.target.display());
            report.add(parts.target.at, message, "keep one of the two mounts");
        }
        mounts.push(mount);
    }
    mounts
}

/// A mount as the file has it.
struct Parts {
    source: Spanned<String>,
    target: Spanned<String>,
    writable: bool,
    shared: bool,
}

fn parts(written: &Written, report: &mut Report) -> Option<Parts> {
    let text = match written {
        Written::Settings(MountSettings { source, target, writable, shared }) => {
            let (writable, shared) = (writable.unwrap_or(true), shared.unwrap_or(false));
            return Some(Parts { source: source.clone(), target: target.clone(), writable, shared });
        }
        Written::Text(text) => text,
    };
    let mut parts = text.value.split(':');
    let part = |value: &str| Spanned { value: value.to_owned(), ..text.clone() };
    if let (Some(source), Some(target), option @ (None | Some("ro" | "rw")), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    {
        let writable = option != Some("ro");
        return Some(Parts { source: part(source), target: part(target), writable, shared: false });
    }
    let help = "write `source:target` or `source:target:ro`; a path with a `:` needs the keys `source` and `target`";
    report.add(text.at, "this is no mount", help);
    None
}

fn mount(parts: &Parts, base_dir: &Path, report: &mut Report) -> Option<Mount> {
    let Parts { source, target, writable, shared } = parts;
    let from = path(source, base_dir, report);
    let to = Path::new(&target.value);
    let climbs = to.components().any(|part| part == Component::ParentDir);
    let help = if !to.is_absolute() || climbs || target.value.contains('\0') {
        Some("write an absolute path in the node, without `..`")
    } else if to == Path::new("/") {
        Some("a node's root is its `image`: choose a folder below it")
    } else if KEPT.iter().any(|kept| to.starts_with(kept)) {
        Some("choose another folder; /proc, /sys, /dev and /run/slipway are the node's own")
    } else {
        None
    };
    if let Some(help) = help {
        report.add(target.at, format!("nothing can be mounted on `{}`", target.value), help);
        return None;
    }
    Some(Mount { source: from?, target: to.components().collect(), writable: *writable, shared: *shared })
}

/// A path on the machine, relative to the lab file's folder.
pub(super) fn path(written: &Spanned<String>, base_dir: &Path, report: &mut Report) -> Option<PathBuf> {
    if written.value.is_empty() || written.value.contains('\0') {
        report.add(written.at, "this is no path", "write a path; a relative one is relative to the lab file");
        return None;
    }
    Some(base_dir.join(&written.value).components().collect())
}

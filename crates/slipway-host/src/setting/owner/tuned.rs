//! The active profile of tuned(8), and those that it includes.

use std::path::{Path, PathBuf};

use super::files::{dotted, sections, text};
use super::{Claim, Claimed, Owner};
use crate::setting::key::BlockKnob;
use crate::setting::persist::is_ours;

/// Profiles that are followed, against circles.
const MOST: usize = 16;

pub(super) fn claims(root: &Path) -> Vec<Claim> {
    let active = text(&root.join("etc/tuned/active_profile")).unwrap_or_default();
    let mut waiting: Vec<String> = active.split_whitespace().map(str::to_owned).collect();
    // Unless it is told not to, tuned has the files of sysctl.d take effect again after its own parameters.
    let main = text(&root.join("etc/tuned/tuned-main.conf")).unwrap_or_default();
    let told =
        sections(&main).into_iter().rfind(|(_, key, _)| *key == "reapply_sysctl").map(|(_, _, value)| value.to_owned());
    let reapplies = told.is_none_or(|value| matches!(value.to_lowercase().as_str(), "1" | "y" | "yes" | "t" | "true"));
    let mut claims = Vec::new();
    for _ in 0..MOST {
        let Some(profile) = waiting.pop() else { break };
        let Some((path, text)) = find(root, &profile) else { continue };
        let ours = is_ours(&text);
        for (section, key, value) in sections(&text) {
            if (section, key) == ("main", "include") {
                waiting.extend(value.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned));
            }
            let Some(what) = claimed(section, key).filter(|_| !ours) else { continue };
            let who = format!("tuned, profile {profile}");
            let later = !(reapplies && matches!(what, Claimed::Sysctl(_)));
            let value = Some(value.trim_matches('"').to_owned());
            let owner = Owner { who, file: Some(path.clone()), value, later };
            claims.push(Claim { what, owner });
        }
    }
    claims
}

fn claimed(section: &str, key: &str) -> Option<Claimed> {
    Some(match (section, key) {
        ("sysctl", name) => Claimed::Sysctl(dotted(name)),
        ("cpu", "governor") => Claimed::CpuGovernor,
        ("vm", "transparent_hugepages" | "transparent_hugepage") => Claimed::TransparentHugePages,
        ("disk", "readahead") => Claimed::Block(BlockKnob::ReadAheadKib),
        ("disk", "elevator") => Claimed::Block(BlockKnob::Scheduler),
        ("net", "mtu") => Claimed::Nic(None, "mtu"),
        ("net", "txqueuelen") => Claimed::Nic(None, "queue length"),
        ("net", "features") => Claimed::Nic(None, "feature"),
        ("net", "coalesce") => Claimed::Nic(None, "coalesce"),
        ("net", "channels") => Claimed::Nic(None, "channels"),
        ("net", "ring") => Claimed::Nic(None, "ring"),
        _ => return None,
    })
}

/// The file of a profile. An administrator's goes before the distribution's.
fn find(root: &Path, profile: &str) -> Option<(PathBuf, String)> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if profile.is_empty() || !profile.bytes().all(sound) {
        return None;
    }
    let folders = ["etc/tuned", "etc/tuned/profiles", "usr/lib/tuned", "usr/lib/tuned/profiles"];
    let mut paths = folders.iter().map(|folder| root.join(folder).join(profile).join("tuned.conf"));
    paths.find_map(|path| text(&path).map(|text| (path, text)))
}

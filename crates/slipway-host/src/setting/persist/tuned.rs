//! A profile of tuned(8), where tuned is installed. Nothing takes effect before somebody chooses it with `tuned-adm`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::super::persisted::TUNED;
use crate::setting::journal::Entry;
use crate::setting::key::{BlockKnob, Key, NicKnob};

/// The name of the profile.
pub(super) const NAME: &str = "slipway";
/// Largest file with the names of active profiles, bytes.
const LARGEST: u64 = 4096;

/// Whether tuned is installed below `root`.
pub(super) fn is_installed(root: &Path) -> bool {
    ["usr/sbin/tuned", "usr/lib/tuned"].iter().any(|path| root.join(path).exists())
}

/// Whether the profile is the active one, or among them.
pub(super) fn is_active(root: &Path) -> bool {
    active(root).iter().any(|name| name == NAME)
}

/// The profiles that Slipway's includes: those that were active when it was first written, as `known` has them.
pub(super) fn included(root: &Path, known: Option<&str>) -> Option<String> {
    if let Some(known) = known {
        return known.lines().find_map(|line| line.strip_prefix("include=")).map(str::to_owned);
    }
    let names: Vec<String> = active(root).into_iter().filter(|name| name != NAME).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Names of the active profiles. Anything that no profile can be called is left out.
fn active(root: &Path) -> Vec<String> {
    let path = root.join("etc/tuned/active_profile");
    if !fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST) {
        return Vec::new();
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let sound = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    text.split_whitespace().filter(sound).map(str::to_owned).collect()
}

/// The profile after its header. Empty where tuned has an option for none of the settings.
pub(super) fn body(path: &str, entries: &[Entry], include: Option<&str>) -> String {
    let mut sections: BTreeMap<String, BTreeMap<&'static str, Vec<String>>> = BTreeMap::new();
    let mut sysctls = String::new();
    for entry in entries.iter().filter(|entry| path == TUNED && entry.persisted) {
        let Some(value) = &entry.wrote else { continue };
        match (&entry.key, option(&entry.key)) {
            // tuned takes each dot for a folder, so it cannot name the parameter of an interface with a dot.
            (Key::Sysctl(name), _) if !name.contains('/') => {
                let _ = writeln!(sysctls, "{name}={value}");
            }
            (_, Some((section, option, word))) => {
                let value = [word, value.split(' ').next().unwrap_or_default()].join(" ");
                let values = sections.entry(section).or_default().entry(option).or_default();
                values.push(value.trim().to_owned());
            }
            _ => {}
        }
    }
    if sysctls.is_empty() && sections.is_empty() {
        return String::new();
    }
    let mut text = "[main]\nsummary=Settings that slipway tune applied\n".to_owned();
    if let Some(include) = include {
        let _ = writeln!(text, "include={include}");
    }
    if !sysctls.is_empty() {
        let _ = write!(text, "\n[sysctl]\n{sysctls}");
    }
    for (section, options) in sections {
        let _ = writeln!(text, "\n[{section}]");
        if let Some((kind, device)) = section.split_once('_') {
            let _ = writeln!(text, "type={kind}\ndevices={device}");
        }
        for (option, values) in options {
            let _ = writeln!(text, "{option}={}", values.join(" "));
        }
    }
    text
}

/// The section of a setting, tuned's option for it, and the word before its value there.
fn option(key: &Key) -> Option<(String, &'static str, &'static str)> {
    if super::text::obstacle(key).is_some() {
        return None;
    }
    let (section, option, word) = match key {
        Key::CpuGovernor => ("cpu".to_owned(), "governor", ""),
        Key::TransparentHugePages => ("vm".to_owned(), "transparent_hugepages", ""),
        Key::Block { name, what } => {
            let option = match what {
                BlockKnob::ReadAheadKib => "readahead",
                BlockKnob::Scheduler => "elevator",
                BlockKnob::NrRequests => return None,
            };
            (format!("disk_{name}"), option, "")
        }
        Key::Nic { name, what } => {
            let (option, word) = match what {
                NicKnob::RingRx => ("ring", "rx"),
                NicKnob::RingTx => ("ring", "tx"),
                NicKnob::CoalesceRxUsecs => ("coalesce", "rx-usecs"),
                NicKnob::CoalesceTxUsecs => ("coalesce", "tx-usecs"),
                NicKnob::CoalesceAdaptiveRx => ("coalesce", "adaptive-rx"),
                NicKnob::CoalesceAdaptiveTx => ("coalesce", "adaptive-tx"),
                NicKnob::ChannelsCombined => ("channels", "combined"),
                NicKnob::TxQueueLen => ("txqueuelen", ""),
                NicKnob::Mtu => ("mtu", ""),
                // tuned has other names for features, and no option for the rest.
                NicKnob::Feature(_) | NicKnob::Qdisc | NicKnob::Rps(_) | NicKnob::RpsFlows(_) | NicKnob::Xps(_) => {
                    return None;
                }
            };
            (format!("net_{name}"), option, word)
        }
        Key::Sysctl(_) | Key::Irq { .. } | Key::Module(_) => return None,
    };
    Some((section, option, word))
}

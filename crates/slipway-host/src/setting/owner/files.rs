//! Configuration files of others.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::{Claim, Claimed, Owner};
use crate::setting::persist::is_ours;

/// Largest file that is read, bytes.
const LARGEST: u64 = 256 << 10;
/// The name of Slipway's own file.
const OUR_SYSCTLS: &str = "90-slipway.conf";
/// Most files of a folder.
const MOST: usize = 1000;

/// A file's text; `None` where it is none, or too long.
pub(super) fn text(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Files of a folder whose names end so, in order, with their text.
fn folder(path: &Path, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(MOST).map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.to_str().is_some_and(|name| endings.iter().any(|ending| name.ends_with(ending))))
        .collect();
    files.sort_unstable();
    files.into_iter().filter_map(|path| text(&path).map(|text| (path, text))).collect()
}

/// Lines of a file with sections, as (section, key, value).
pub(super) fn sections(text: &str) -> Vec<(&str, &str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            found.push((section, key.trim(), value.trim()));
        }
    }
    found
}

fn claim(what: Claimed, who: &str, file: &Path, value: &str, later: bool) -> Claim {
    let value = (!value.is_empty()).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "));
    Claim { what, owner: Owner { who: who.to_owned(), file: Some(file.to_owned()), value, later } }
}

/// sysctl.d(5).
pub(super) fn sysctl(root: &Path) -> Vec<Claim> {
    let folders = ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"];
    let mut files: Vec<(PathBuf, String)> =
        folders.iter().flat_map(|name| folder(&root.join(name), &[".conf"])).collect();
    let old = root.join("etc/sysctl.conf");
    files.extend(text(&old).map(|text| (old.clone(), text)));
    let others = files.iter().filter(|(_, text)| !is_ours(text));
    let lines = others.flat_map(|(path, text)| text.lines().map(move |line| (path, line.trim())));
    lines
        .filter(|(_, line)| !line.starts_with(['#', ';']))
        .filter_map(|(path, line)| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().trim_start_matches('-').trim();
            // Files take effect in the order of their names, whatever their folders are; sysctl.conf is the last.
            let later = path.file_name().is_none_or(|name| *path == old || name > OsStr::new(OUR_SYSCTLS));
            Some(claim(Claimed::Sysctl(dotted(name)), "sysctl.d", path, value, later))
        })
        .collect()
}

/// The name of a parameter with dots as separators: the first separator says which of the two forms a name has.
pub(super) fn dotted(name: &str) -> String {
    if name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/')) {
        let swap = |char| match char {
            '/' => '.',
            '.' => '/',
            other => other,
        };
        return name.chars().map(swap).collect();
    }
    name.to_owned()
}

/// systemd.link(5) and systemd.network(5). A file that does not name one interface may mean any.
pub(super) fn networkd(root: &Path) -> Vec<Claim> {
    let folders =
        ["etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network"];
    let files = folders.iter().flat_map(|name| folder(&root.join(name), &[".link", ".network"]));
    let mut claims = Vec::new();
    for (path, text) in files {
        let lines = sections(&text);
        let name =
            lines.iter().find(|(section, key, _)| *section == "Match" && matches!(*key, "Name" | "OriginalName"));
        let name = name.map(|(_, _, name)| (*name).to_owned()).filter(|name| !name.contains(['*', '?', '[', ' ', '!']));
        for (section, key, value) in lines {
            let kind = match (section, key) {
                ("Link", "MTUBytes") => "mtu",
                ("Link", "TransmitQueueLength") => "queue length",
                ("Link", "RxBufferSize" | "TxBufferSize") => "ring",
                ("Link", "CombinedChannels") => "channels",
                ("Link", key) if key.ends_with("Offload") => "feature",
                ("Link", key) if key.contains("Coalesce") => "coalesce",
                (section, _) if section.contains("Queueing") || section.contains("QueueDiscipline") => "qdisc",
                _ => continue,
            };
            // udev follows .link files before Slipway's rules, and networkd brings an interface up after both.
            let later = path.extension().is_some_and(|ending| ending == "network");
            claims.push(claim(Claimed::Nic(name.clone(), kind), "systemd-networkd", &path, value, later));
        }
    }
    claims
}

/// nm-settings-keyfile(5). A connection without an interface may be of any.
pub(super) fn network_manager(root: &Path) -> Vec<Claim> {
    let folders = ["etc/NetworkManager/system-connections", "run/NetworkManager/system-connections"];
    let files = folders.iter().flat_map(|name| folder(&root.join(name), &[".nmconnection"]));
    let mut claims = Vec::new();
    for (path, text) in files {
        let lines = sections(&text);
        let name = lines.iter().find(|(section, key, _)| (*section, *key) == ("connection", "interface-name"));
        let name = name.map(|(_, _, name)| (*name).to_owned());
        for (section, key, value) in lines {
            let kind = match (section, key) {
                ("ethernet" | "802-3-ethernet", "mtu") => "mtu",
                ("ethtool", key) => match key.split('-').next() {
                    Some("ring") => "ring",
                    Some("coalesce") => "coalesce",
                    Some("feature") => "feature",
                    Some("channels") => "channels",
                    _ => continue,
                },
                ("tc", _) => "qdisc",
                _ => continue,
            };
            claims.push(claim(Claimed::Nic(name.clone(), kind), "NetworkManager", &path, value, true));
        }
    }
    claims
}

/// irqbalance(1), where it runs: it moves interrupts as it likes.
pub(super) fn irqbalance(root: &Path) -> Option<Claim> {
    let processes = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let mut processes =
        processes.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let runs = processes.any(|entry| text(&entry.path().join("comm")).is_some_and(|comm| comm.trim() == "irqbalance"));
    let owner = Owner { who: "irqbalance, which runs".to_owned(), file: None, value: None, later: true };
    runs.then_some(Claim { what: Claimed::Irq, owner })
}

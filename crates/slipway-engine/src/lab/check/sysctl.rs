//! Kernel settings of nodes, tried where nobody lives.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::ns::{create_net, with_net};

use super::Remarks;
use crate::node::user::make_net;

/// The kernel's answer to a setting.
enum Verdict {
    Good,
    Missing,
    Refused(io::Error),
}

/// Whether a node may change its network, which then lacks some settings; and the node's own.
type Kind<'a> = (bool, &'a BTreeMap<String, String>);

/// Sets the settings of each kind of node in a network namespace that is gone afterwards, as a node does before it has
/// interfaces. Where none can be made, or `/proc/sys` cannot be written here, it shows when the lab is up.
pub(super) fn check(lab: &Lab, remarks: &mut Remarks) {
    let mut known: Vec<(Kind<'_>, Vec<Verdict>)> = Vec::new();
    for node in lab.nodes.iter().filter(|node| !node.sysctls.is_empty()) {
        // Such a node has its host's network, which has other settings.
        if node.interfaces.iter().any(|interface| lab.networks[interface.network].driver == DriverKind::Host) {
            continue;
        }
        let kind: Kind<'_> = (node.rules_its_network(), &node.sysctls);
        if !known.iter().any(|(settings, _)| *settings == kind) {
            let net = if kind.0 { make_net().map(|owned| owned.net) } else { create_net() };
            let Ok(verdicts) = net.and_then(|net| with_net(net.as_fd(), || all(&node.sysctls))) else {
                return;
            };
            known.push((kind, verdicts));
        }
        let Some((_, verdicts)) = known.iter().find(|(settings, _)| *settings == kind) else { continue };
        let of_host = &lab.hosts[node.host];
        for ((name, value), verdict) in node.sysctls.iter().zip(verdicts) {
            let (message, help) = match verdict {
                Verdict::Good => continue,
                Verdict::Missing => (
                    format!("set {name}: a node on this kernel has no such setting"),
                    "settings of interfaces are written for all: `net.ipv4.conf.default.…`; some belong to the whole machine, or to a module that is not loaded",
                ),
                Verdict::Refused(error) => (
                    format!("set {name} to `{value}`: {error}"),
                    "write a value that this kernel takes (`sysctl -a` shows present ones)",
                ),
            };
            if of_host.tune.get(name) == Some(value) {
                remarks.add(&["hosts", &of_host.name, "tune", name], message, help);
            } else {
                remarks.add(&["nodes", &node.name, "sysctls", name], message, help);
            }
        }
    }
}

fn all(settings: &BTreeMap<String, String>) -> Vec<Verdict> {
    settings.iter().map(|(name, value)| one(name, value)).collect()
}

fn one(name: &str, value: &str) -> Verdict {
    let path = PathBuf::from("/proc/sys").join(name.replace('.', "/"));
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Verdict::Missing,
        Err(_) => return Verdict::Good,
        Ok(_) => {}
    }
    // Of System V IPC this is the machine's own namespace.
    if !name.starts_with("net.") {
        return Verdict::Good;
    }
    match fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
    {
        Err(error) if error.kind() != io::ErrorKind::ReadOnlyFilesystem => Verdict::Refused(error),
        _ => Verdict::Good,
    }
}

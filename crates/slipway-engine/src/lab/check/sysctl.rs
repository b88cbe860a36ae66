//! Kernel settings of nodes, tried where nobody lives.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::ns::{create_net, with_net};

use super::Remarks;
use crate::node::user::make_net;
use crate::sysctl::{Verdict, attempt};

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
    settings.iter().map(|(name, value)| attempt(name, value)).collect()
}

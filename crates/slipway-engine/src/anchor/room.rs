//! What an anchor takes of things that the kernel gives a process, or a user, only so many of.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipway_lab::model::Lab;

/// Descriptors beside those of nodes and hosts: sockets of requests, and of nodes that are being made.
const BESIDE: u64 = 256;
/// The namespaces and netlink sockets of a virtual host, and its router.
const OF_HOST: u64 = 16;
/// The namespaces of which each node has one, as in `user.max_net_namespaces`.
const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/// The descriptors that the anchor of this lab needs: one for each node, and two more for a program whose output it logs.
fn descriptors(lab: &Lab) -> u64 {
    let logged = |node: &slipway_lab::model::Node| u64::from(node.command.is_some()) + u64::from(node.sshd);
    let of_nodes: u64 = lab.nodes.iter().filter(|node| lab.is_here(node.host)).map(|node| 1 + 2 * logged(node)).sum();
    of_nodes + OF_HOST * lab.hosts.ids().filter(|&host| lab.is_here(host)).count() as u64 + BESIDE
}

/// Lets this process have the descriptors that the lab needs.
///
/// # Errors
/// `EPERM` beyond its hard limit without `CAP_SYS_RESOURCE`, and for anybody beyond `fs.nr_open`.
pub(super) fn take(lab: &Lab) -> io::Result<()> {
    let (limit, need) = (getrlimit(Resource::Nofile), descriptors(lab));
    let raised = |now: Option<u64>| now.map(|now| now.max(need));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: raised(limit.current), maximum: raised(limit.maximum) })?)
}

/// The things that this machine has too few of for the lab: each with the next step.
pub(crate) fn lacking(lab: &Lab) -> Vec<(String, String)> {
    let (before, need, nodes) = (getrlimit(Resource::Nofile), descriptors(lab), lab.nodes_here().len() as u64);
    let mut lacking = Vec::new();
    if take(lab).is_err() {
        let may = before.maximum.unwrap_or(u64::MAX);
        let message = format!("make {nodes} nodes: that takes {need} open files, and this process may open {may}");
        lacking.push((
            message,
            format!("raise the hard limit: `ulimit -Hn {need}`, or LimitNOFILE={need} of the service"),
        ));
    } else {
        // To lower a limit takes no right.
        let _ = setrlimit(Resource::Nofile, before);
    }
    let bound = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    for kind in NAMESPACES {
        let name = format!("user/max_{kind}_namespaces");
        let Some(most) = bound(&format!("/proc/sys/{name}")).filter(|most| *most < nodes) else { continue };
        let setting = name.replace('/', ".");
        let message = format!("make {nodes} nodes: each has a namespace of kind {kind}, and {setting} allows {most}");
        lacking.push((message, format!("raise it: `sysctl {setting}={}`", 2 * nodes)));
    }
    if let Some(most) = bound("/proc/sys/kernel/pid_max").filter(|most| *most <= nodes) {
        let message = format!("make {nodes} nodes: each has a process, and kernel.pid_max allows {most}");
        lacking.push((message, "raise it: `sysctl kernel.pid_max=4194304`".to_owned()));
    }
    lacking
}

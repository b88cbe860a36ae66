//! Making the lab: shared files, the fabric between hosts, then every node.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::MountFlags;
use rustix::process::getpid;
use slipway_lab::id::List;
use slipway_lab::model::Lab;
use slipway_sys::clone::SingleThread;
use slipway_sys::mount::{attach, detached, make_private, mount_fs, set_flags};
use slipway_sys::process::ProcessId;

use super::birth::Nodes;
use super::error::AnchorError;
use super::orphan::Watch;
use super::{Blueprint, Report, Reporter};
use crate::exec::ssh;
use crate::node::rootfs::{hide_machine, lies_on_the_machine};
use crate::protocol::State;
use crate::state::{LabDir, NodeState};

/// Builds everything. On error the caller exits, and with it goes all that was made in the kernel.
#[tracing::instrument(level = "info", skip_all, fields(lab = %blueprint.lab.name), err(level = "debug"))]
pub(super) fn build(
    alone: SingleThread,
    blueprint: &Blueprint,
    watch: &mut Watch,
    reporter: &mut Reporter,
) -> Result<Nodes, AnchorError> {
    let Blueprint { lab, dir, .. } = blueprint;
    let state = State {
        anchor: ProcessId::of(getpid()).map_err(AnchorError::system("name the anchor"))?,
        ready: false,
        since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        nodes: lab.nodes.iter().map(|_| NodeState::STOPPED).collect(),
        networks: List::new(),
        tunings: blueprint.tunings.clone(),
        routers: Vec::new(),
    };
    // Before anything else exists: whoever finds the lab half made finds its anchor.
    blueprint.write(&state)?;
    own_mounts(dir, &blueprint.agent)?;
    if blueprint.images.iter().any(lies_on_the_machine) {
        hide_machine(dir)?;
    }
    shared_files(lab, dir)?;
    ssh::prepare(lab, dir)?;
    let mut nodes = Nodes::prepare(alone, blueprint, state)?;
    // Before any program runs that could take its port.
    watch.open(lab, |host| nodes.host_net(host))?;
    let all = lab.nodes_here();
    nodes.start(alone, blueprint, &all, |ready| reporter.say(&Report::Nodes(ready)))?;
    nodes.state.ready = true;
    blueprint.write(&nodes.state)?;
    Ok(nodes)
}

/// A mount namespace of the lab's own, with what no other process of the machine sees: the tmpfs that nodes write to,
/// and the agent's program where nodes find it.
#[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
fn own_mounts(dir: &LabDir, program: &Path) -> Result<(), AnchorError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(AnchorError::MountNamespace)?;
    let agent = dir.join("node/agent");
    fs::write(&agent, "").map_err(AnchorError::system("make the launch agent's place"))?;
    let mount = || {
        make_private()?;
        mount_fs("tmpfs", &dir.join("rw"), MountFlags::NODEV, "mode=700")?;
        attach(detached(program, false)?.as_fd(), &agent)?;
        // Root in a node must not be able to change this machine's program, its mode least of all.
        set_flags(&agent, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV)
    };
    Ok(mount()?)
}

#[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
fn shared_files(lab: &Lab, dir: &LabDir) -> Result<(), AnchorError> {
    let resolv = "# Nodes find each other in /etc/hosts. Nothing outside the lab answers here.\n";
    for (name, text) in [("hosts", hosts(lab).as_str()), ("resolv.conf", resolv)] {
        let path = dir.join("etc").join(name);
        fs::write(&path, text).map_err(AnchorError::system(format!("write {}", path.display())))?;
    }
    Ok(())
}

/// `hosts(5)` for all nodes. A node's bare name is its first address; `NODE.NETWORK` is each of them. As with
/// `ip6-localhost`, IPv6 has names of its own, so that a server which listens on IPv4 alone is found at once.
fn hosts(lab: &Lab) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n");
    for node in &lab.nodes {
        for (i, interface) in node.interfaces.iter().enumerate() {
            let network = &lab.networks[interface.network].name;
            let name = &node.name;
            let _ = write!(text, "{} ", interface.ipv4);
            let _ = if i == 0 { writeln!(text, "{name} {name}.{network}") } else { writeln!(text, "{name}.{network}") };
            if let Some(ipv6) = interface.ipv6 {
                let _ = write!(text, "{ipv6} ");
                let _ = if i == 0 {
                    writeln!(text, "ip6-{name} ip6-{name}.{network}")
                } else {
                    writeln!(text, "ip6-{name}.{network}")
                };
            }
        }
    }
    text
}

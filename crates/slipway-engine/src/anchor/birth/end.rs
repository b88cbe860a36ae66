//! The ends of inits, and so of nodes.

use std::collections::BTreeSet;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use rustix::process::{Pid, Signal, kill_process};
use slipway_lab::id::NodeId;
use slipway_sys::clone::SingleThread;
use slipway_sys::process::ProcessId;

use super::{Blueprint, Nodes};
use crate::state::{NodeStatus, ProgramEnd};

impl Nodes {
    /// Ends every node and collects its init, so that a machine whose PID 1 is slow to reap sees no zombies.
    pub(in crate::anchor) fn end(&mut self, alone: SingleThread, blueprint: &Blueprint) {
        let all: Vec<NodeId> = self.slots.ids().collect();
        self.kill(alone, blueprint, &all);
        self.bypasses.end();
        self.links.end();
    }

    /// Ends the inits of `which`, and so every process in their PID namespaces.
    #[tracing::instrument(level = "debug", skip_all, fields(nodes = which.len()))]
    pub(super) fn kill(&mut self, alone: SingleThread, blueprint: &Blueprint, which: &[NodeId]) {
        for &index in which {
            // It is nobody else: an init that has ended keeps its number until this process collects it.
            if let Some(init) = self.state.nodes[index].init.and_then(|init| Pid::from_raw(init.pid)) {
                // Gone already is what is wanted.
                let _ = kill_process(init, Signal::KILL);
            }
        }
        self.bypasses.died(which);
        let mut ending = BTreeSet::new();
        for &index in which {
            let node = &mut self.state.nodes[index];
            node.status = NodeStatus::Stopped;
            ending.extend(node.init.take().map(|init| init.pid));
        }
        // Collect any child, not the inits alone. An init ends after all others in its node are collected
        // (`pid_namespaces(7)`), and the node's command is this process's child too.
        while !ending.is_empty() {
            match waitpid(None, None) {
                Ok(status) => {
                    let pid = status.pid().map_or(0, nix::unistd::Pid::as_raw);
                    if !ending.remove(&pid) {
                        self.ended(alone, blueprint, status);
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Notes that a child ended: a node's init, and so the node, or a node's command.
    pub(in crate::anchor) fn ended(&mut self, alone: SingleThread, blueprint: &Blueprint, status: WaitStatus) {
        let Some(pid) = status.pid().map(nix::unistd::Pid::as_raw) else { return };
        let is = |process: Option<ProcessId>| process.is_some_and(|process| process.pid == pid);
        if self.links.ended(pid) {
            return;
        }
        if self.bypasses.helper_ended(&blueprint.lab, status) {
            self.write_routers(blueprint);
            return;
        }
        if let Some(helper) = self.fabric.helper(&blueprint.lab, pid) {
            tracing::error!(?status, "{helper} ended: its networks pass nothing any more");
            return;
        }
        if let Some(index) = self.state.nodes.position(|node| is(node.init)) {
            tracing::info!(node = %blueprint.lab.nodes[index].name, ?status, "its init ended: the node is dead");
            let node = &mut self.state.nodes[index];
            (node.status, node.init, node.command) = (NodeStatus::Dead, None, None);
            // Its network outlives it, and the kernel in it would go on to answer pings. A link that cannot be silenced is
            // no reason to end the lab.
            let _ = self.bury(alone, blueprint, &[index]);
        } else if let Some(node) = self.state.nodes.iter_mut().find(|node| is(node.command)) {
            node.command = None;
            node.ended = match status {
                WaitStatus::Exited(_, code) => Some(ProgramEnd { code, signal: None }),
                WaitStatus::Signaled(_, signal, _) => {
                    Some(ProgramEnd { code: 128 + signal as i32, signal: Some(signal as i32) })
                }
                _ => None,
            };
        } else {
            return;
        }
        // Readers look at the processes too; a full disk must not end the lab.
        let _ = blueprint.write(&self.state);
    }
}

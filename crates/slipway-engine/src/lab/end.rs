//! The end of nodes that is asked for, and their moves while they do not run.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use slipway_lab::id::{HostId, NodeId};
use slipway_sys::process::ProcessId;

use super::{LabError, Running};
use crate::protocol;

impl Running {
    /// Stops nodes: SIGTERM to every program in them, `grace` for them to end, then all is ended and the links go silent.
    /// Files and links are kept for the next start.
    pub fn stop(&self, nodes: &[NodeId], grace: Duration) -> Result<(), LabError> {
        self.ask_to_end(nodes, grace)?;
        self.ask(protocol::Halt { nodes: nodes.to_vec() })
    }

    /// Has a node that does not run on another virtual host, from its next start on. This value still has it on its former one.
    ///
    /// # Errors
    /// It runs, or something ties it to its host.
    pub fn relocate(&self, node: NodeId, host: HostId) -> Result<(), LabError> {
        self.ask(protocol::Relocate { node, host })
    }

    /// SIGTERM to every program in these nodes, and at most `grace` until they have ended.
    pub(super) fn ask_to_end(&self, nodes: &[NodeId], grace: Duration) -> Result<(), LabError> {
        let deadline = Instant::now() + grace;
        let mut programs = Vec::new();
        for &node in nodes {
            let init = self.state.nodes[node].init;
            let pids = self.group(node)?.map(|group| group.pids()).transpose()?.unwrap_or_default();
            for pid in pids.into_iter().filter(|&pid| init.is_none_or(|init| init.pid != pid)).filter_map(Pid::from_raw)
            {
                // One that ends between the listing and here is one less to wait for.
                if let Ok(program) = ProcessId::of(pid)
                    && let Ok(Some(pidfd)) = program.open()
                {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::TERM);
                    programs.push(pidfd);
                }
            }
        }
        for pidfd in &programs {
            let left = deadline.saturating_duration_since(Instant::now());
            if !slipway_sys::process::wait_for_end(pidfd, left).map_err(|source| self.anchor_error(source))? {
                break;
            }
        }
        Ok(())
    }
}

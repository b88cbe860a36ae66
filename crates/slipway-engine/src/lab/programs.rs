//! Nodes' own programs (`command` in the lab file): whether they run, and how they ended.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use slipway_lab::id::NodeId;

use super::{LabError, Running};
use crate::protocol::ReadState;
use crate::state::ProgramEnd;

/// A node's own program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProgram {
    /// `running`, `ended`, or `none` while its node does not run and the program never ended by itself.
    pub status: String,
    /// Seen from the machine.
    pub pid: Option<i32>,
    /// Exit code and signal, once it has ended.
    #[serde(flatten)]
    pub end: Option<ProgramEnd>,
}

impl Running {
    pub(super) fn own_program(&self, node: NodeId) -> Option<OwnProgram> {
        self.lab.nodes[node].command.as_ref()?;
        let state = &self.state.nodes[node];
        let pid = state.command.filter(|process| process.is_alive()).map(|process| process.pid);
        let status = match (pid, state.ended) {
            (Some(_), _) => "running",
            (None, Some(_)) => "ended",
            (None, None) => "none",
        };
        Some(OwnProgram { status: status.to_owned(), pid, end: state.ended.filter(|_| pid.is_none()) })
    }

    /// Nodes whose own program ends within `patience`, or has ended, and how. Returns as soon as all have.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn early_ends(&mut self, patience: Duration) -> Result<Vec<(NodeId, ProgramEnd)>, LabError> {
        let with: Vec<NodeId> = self.lab.nodes.ids().filter(|&node| self.lab.nodes[node].command.is_some()).collect();
        if with.is_empty() {
            return Ok(Vec::new());
        }
        let commands = with.iter().filter_map(|&node| self.state.nodes[node].command);
        let open = commands.map(slipway_sys::process::ProcessId::open).collect::<Result<Vec<_>, _>>();
        let mut running: Vec<_> = open.map_err(|error| self.anchor_error(error))?.into_iter().flatten().collect();
        let deadline = Instant::now() + patience;
        while !running.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut on: Vec<PollFd<'_>> = running.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)).collect();
            let left = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut on, Some(&left)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(self.anchor_error(error.into())),
            }
            let ended: Vec<bool> = on.iter().map(|one| !one.revents().is_empty()).collect();
            let mut ended = ended.into_iter();
            running.retain(|_| !ended.next().unwrap_or(false));
        }
        // The anchor sees to those that have ended before it answers.
        self.state = self.ask(ReadState {})?;
        Ok(with.into_iter().filter_map(|node| Some((node, self.state.nodes[node].ended?))).collect())
    }
}

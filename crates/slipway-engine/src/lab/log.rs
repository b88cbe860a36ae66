//! The output of nodes' own programs, read from the anchor.

use std::io;
use std::os::fd::OwnedFd;

use slipway_lab::id::NodeId;

use super::{LabError, Running};
use crate::protocol::{FollowLog, ReadLog};

/// Reads what a node's own programs printed, from the oldest that is kept.
#[derive(Debug)]
pub struct NodeLog<'a> {
    running: &'a Running,
    node: NodeId,
    /// Where the next piece begins, bytes.
    next: u64,
    bell: Option<OwnedFd>,
}

impl Running {
    /// The output of a node's own program. `follow`: one can wait for more.
    ///
    /// # Errors
    /// When there is no such program, or the anchor cannot be asked.
    pub fn log(&self, node: NodeId, follow: bool) -> Result<NodeLog<'_>, LabError> {
        let model = &self.lab.nodes[node];
        if model.command.is_none() && !model.sshd {
            return Err(LabError::NoProgram(model.name.clone()));
        }
        // Before anything is read, so that nothing is missed.
        let bell = if follow { Some(self.ask_for_descriptor(FollowLog { node })?) } else { None };
        Ok(NodeLog { running: self, node, next: 0, bell })
    }
}

impl NodeLog<'_> {
    /// Adds what there is now.
    ///
    /// # Errors
    /// When the anchor cannot be asked, or cannot read it.
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<(), LabError> {
        loop {
            let piece = self.running.ask(ReadLog { node: self.node, from: self.next })?;
            self.next = piece.from + piece.bytes.len() as u64;
            into.extend_from_slice(&piece.bytes);
            if piece.bytes.is_empty() || self.next >= piece.end {
                return Ok(());
            }
        }
    }

    /// Waits until there is more. False when nothing more can come.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn wait(&self) -> io::Result<bool> {
        let Some(bell) = &self.bell else { return Ok(false) };
        let mut rung = [0; 4096];
        loop {
            match rustix::io::read(bell, &mut rung) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other? > 0),
            }
        }
    }
}

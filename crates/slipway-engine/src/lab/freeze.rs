//! Programs of nodes that stand still. The anchor sees to the interfaces.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipway_lab::id::NodeId;

use super::{LabError, Running};
use crate::fast::is_fast;
use crate::protocol::{self, HoldAnswers};

/// How long a freeze of programs waits for an anchor that is busy, as with a start of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until it has time.
    Full,
    /// A tenth of a second: the freeze is to come at its time. A program may lose an answer then.
    Short,
}

/// [`Patience::Short`].
const SHORT: Duration = Duration::from_millis(100);

impl Running {
    /// Stops every process of these nodes, or none where one cannot be stopped. Gives those that were not frozen already.
    pub(crate) fn stop_programs(&self, nodes: &[NodeId], patience: Patience) -> Result<Vec<NodeId>, LabError> {
        self.hold_answers(nodes, patience)?;
        let mut stopped = Vec::with_capacity(nodes.len());
        let mut stop = |node: NodeId| {
            let group = self.need_group(node)?;
            if !group.is_frozen()? {
                // One that was stopped half-way goes on too.
                stopped.push(node);
                group.freeze()?;
            }
            Ok::<_, LabError>(())
        };
        match nodes.iter().try_for_each(|&node| stop(node)) {
            Ok(()) => Ok(stopped),
            Err(error) => Err(self.with_programs_back(error, &stopped)),
        }
    }

    /// Has routers answer none of these programs while they stop.
    fn hold_answers(&self, nodes: &[NodeId], patience: Patience) -> Result<(), LabError> {
        let nodes: Vec<NodeId> =
            nodes.iter().copied().filter(|&node| is_fast(&self.lab, &self.lab.nodes[node])).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let pending = protocol::begin(&self.dir.control(), HoldAnswers { nodes });
        let pending = pending.map_err(|error| self.call_error(error))?;
        let short = Timespec { tv_sec: 0, tv_nsec: SHORT.subsec_nanos().into() };
        if patience == Patience::Short && poll(&mut [PollFd::new(&pending, PollFlags::IN)], Some(&short)) == Ok(0) {
            return Ok(());
        }
        pending.wait().and_then(|reply| Ok(reply.outcome?)).map_err(|error| self.call_error(error))
    }

    /// Lets every process of these nodes go on. All are tried; the first failure is told.
    pub(crate) fn let_programs_go_on(&self, nodes: &[NodeId]) -> Result<(), LabError> {
        let thaw = |&node: &NodeId| Ok::<_, LabError>(self.need_group(node)?.thaw()?);
        nodes.iter().map(thaw).fold(Ok(()), Result::and)
    }

    /// Lets nodes go on that were stopped for a freeze, and gives its failure.
    pub(crate) fn with_programs_back(&self, failure: LabError, stopped: &[NodeId]) -> LabError {
        match self.let_programs_go_on(stopped) {
            Ok(()) => failure,
            Err(undo) => LabError::Refused(format!("{failure}\nand to let programs go on: {undo}")),
        }
    }
}

//! Orders to a running lab, as commands and other programs give them.

use std::os::fd::{AsFd, BorrowedFd};

use slipway_lab::scenario::{Kill, Order};

use super::freeze::Patience;
use super::{LabError, Running};
use crate::protocol::{self, Change, Ended, Lift, Pending};

/// What came of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// Fast connections that it ended, since they would not have kept what holds now.
    pub connections: u64,
    /// Limits of nodes that hold in another way than one might think.
    pub notes: Vec<String>,
}

/// A change that the anchor makes. The descriptor becomes readable when it has answered.
#[derive(Debug)]
pub struct Changing<'a> {
    lab: &'a Running,
    pending: Pending<Ended>,
}

impl Changing<'_> {
    /// Waits for the end of the change.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn end(self) -> Result<(), LabError> {
        let reply = self.pending.wait().and_then(|reply| Ok(reply.outcome?));
        reply.map(drop).map_err(|error| self.lab.call_error(error))
    }
}

impl AsFd for Changing<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }
}

impl Running {
    /// Begins a change of the anchor's own: a kill without grace, a start, or one of links. A caller with children in nodes
    /// must reap those that end meanwhile: a node ends with its last process, and the anchor may wait for that.
    ///
    /// # Errors
    /// When the anchor cannot be asked.
    pub fn begin(&self, order: Order) -> Result<Changing<'_>, LabError> {
        let pending = protocol::begin(&self.dir.control(), Change { order, overlay: None });
        Ok(Changing { lab: self, pending: pending.map_err(|error| self.call_error(error))? })
    }

    /// Carries an order out on this machine's part of the lab, and waits until it has taken effect. A change lasts until another takes its place. Nodes that
    /// are so already are left alone; files and links of nodes that end are kept for their next start.
    ///
    /// # Errors
    /// When it cannot be carried out. Then links, limits and frozen nodes are as before.
    pub fn give(&self, order: Order) -> Result<Given, LabError> {
        let order = order.only(|node| self.lab.has_here(node));
        let connections = match &order {
            Order::Node { nodes, change } => {
                return Ok(Given { notes: self.set_node(nodes, change)?, ..Given::default() });
            }
            Order::Kill { nodes, how: Kill::Graceful { grace } } => {
                self.ask_to_end(nodes, grace.duration())?;
                self.change(order)?
            }
            Order::Freeze { nodes } => {
                let stopped = self.stop_programs(nodes, Patience::Full)?;
                self.change(order).map_err(|error| self.with_programs_back(error, &stopped))?
            }
            Order::Thaw { nodes } => {
                let nodes = nodes.clone();
                let connections = self.change(order)?;
                self.let_programs_go_on(&nodes)?;
                connections
            }
            Order::Kill { .. } | Order::Start { .. } | Order::Links(_) => self.change(order)?,
        };
        Ok(Given { connections, notes: Vec::new() })
    }

    /// Puts a change of links over those that hold, under a number that no other has, until it is lifted.
    pub fn lay_over(&self, number: usize, order: impl Into<Order>) -> Result<(), LabError> {
        self.ask(Change { order: order.into(), overlay: Some(number) }).map(drop)
    }

    /// Lifts a change that was put over others. One that there is not is fine.
    pub fn lift(&self, number: usize) -> Result<(), LabError> {
        self.ask(Lift { overlay: number }).map(drop)
    }

    fn change(&self, order: Order) -> Result<u64, LabError> {
        Ok(self.ask(Change { order, overlay: None })?.connections)
    }
}

//! Orders to a running lab, as commands and other programs give them.

use slipway_lab::scenario::{Kill, Order};

use super::{LabError, Running};
use crate::protocol::{Change, Lift};

/// What came of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// Fast connections that it ended, since they would not have kept what holds now.
    pub connections: u64,
    /// Limits of nodes that hold in another way than one might think.
    pub notes: Vec<String>,
}

impl Running {
    /// Carries an order out, and waits until it has taken effect. A change lasts until another takes its place. Nodes that
    /// are so already are left alone; files and links of nodes that end are kept for their next start.
    ///
    /// # Errors
    /// When it cannot be carried out. Then links, limits and frozen nodes are as before.
    pub fn give(&self, order: Order) -> Result<Given, LabError> {
        let connections = match &order {
            Order::Node { nodes, change } => {
                return Ok(Given { notes: self.set_node(nodes, change)?, ..Given::default() });
            }
            Order::Kill { nodes, how: Kill::Graceful { grace } } => {
                self.ask_to_end(nodes, grace.duration())?;
                self.change(order)?
            }
            Order::Freeze { nodes } => {
                let stopped = self.stop_programs(nodes)?;
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

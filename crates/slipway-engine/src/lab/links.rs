//! Links of a running lab: changed, and looked at; and its fast path.

use slipway_lab::policy::Rule;

use super::{LabError, Running};
use crate::anchor::control::{self, Request};
use crate::condition::{LinkAction, LinkReport};
use crate::fast::{self, Connection, FastReport, Socket};

impl Running {
    /// Changes links until something else changes them. What cannot be is refused, and nothing is changed. Gives how many
    /// fast connections were ended, because they do not keep conditions.
    pub fn change_links(&self, action: LinkAction) -> Result<u64, LabError> {
        self.ended_by(&Request::Links(None, Box::new(action)))
    }

    /// Puts a change of links over those that hold, under a number that no other has, until it is lifted.
    pub fn lay_over_links(&self, number: usize, action: LinkAction) -> Result<(), LabError> {
        self.ask(&Request::Links(Some(number), Box::new(action)))
    }

    /// Lifts a change that was put over others. One that there is not is fine.
    pub fn lift_from_links(&self, number: usize) -> Result<(), LabError> {
        self.ask(&Request::Lift(number))
    }

    /// Makes all links what the lab file says, and starts a wire that has died anew.
    pub fn restore_links(&self) -> Result<(), LabError> {
        self.ask(&Request::Restore)
    }

    /// Who may talk to whom now.
    ///
    /// # Errors
    /// When the state folder cannot be read.
    pub fn policy(&self) -> Result<Vec<Rule>, LabError> {
        Ok(self.dir.read_policy()?.unwrap_or_else(|| self.lab.policy.clone()))
    }

    /// Puts these rules in the place of all that there were. Gives how many fast connections were ended, because they may not be
    /// any more, or not as they were.
    ///
    /// # Errors
    /// When the network beneath cannot be held to them, or some connections may not have been ended.
    pub fn set_policy(&self, rules: &[Rule]) -> Result<u64, LabError> {
        // Of two who change it at once, one comes after the other.
        let _turn = self.dir.lock_changes()?;
        self.dir.write_asked_policy(rules)?;
        self.ended_by(&Request::Policy)
    }

    /// How the fast path is now.
    pub fn fast(&self) -> Result<FastReport, LabError> {
        self.ask(&Request::Fast)?;
        Ok(self.dir.read_fast()?)
    }

    /// The node that a process is in, and which way each of its TCP sockets takes.
    ///
    /// # Errors
    /// When it is in none of the lab's nodes, or no network is fast.
    pub fn explain(&self, pid: i32) -> Result<(usize, Vec<Socket>), LabError> {
        let notes =
            control::descriptor(&self.dir.control(), &Request::Notes).map_err(|source| self.anchor_error(source))?;
        fast::explain(&self.lab, &self.state, pid, notes, &self.fast()?).map_err(LabError::Refused)
    }

    /// The node that a process is in, if any.
    #[must_use]
    pub fn node_of(&self, pid: i32) -> Option<usize> {
        fast::node_of(&self.state, pid).ok().flatten()
    }

    /// The connections of the fast path that live.
    ///
    /// # Errors
    /// When no network is fast, or a router is being replaced.
    pub fn flows(&self) -> Result<Vec<Connection>, LabError> {
        let notes =
            control::descriptor(&self.dir.control(), &Request::Notes).map_err(|source| self.anchor_error(source))?;
        fast::flows(&self.lab, &self.state, notes).map_err(LabError::Refused)
    }

    /// How links are now.
    pub fn links(&self) -> Result<LinkReport, LabError> {
        self.ask(&Request::Report)?;
        Ok(self.dir.read_links()?)
    }
}

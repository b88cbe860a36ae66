//! Links of a running lab: changed, and looked at.

use super::{LabError, Running};
use crate::anchor::control::Request;
use crate::condition::{LinkAction, LinkReport};

impl Running {
    /// Changes links until something else changes them. What cannot be is refused, and nothing is changed.
    pub fn change_links(&self, action: LinkAction) -> Result<(), LabError> {
        self.ask(&Request::Links(None, Box::new(action)))
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

    /// How links are now.
    pub fn links(&self) -> Result<LinkReport, LabError> {
        self.ask(&Request::Report)?;
        Ok(self.dir.read_links()?)
    }
}

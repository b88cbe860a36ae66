//! A lab's links as its anchor keeps them: what is asked for, what has been made of it, and the plan of each interface.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use slipway_lab::id::NodeId;
use slipway_lab::matrix::Matrix;
use slipway_lab::model::Lab;
use slipway_sys::clone::SingleThread;
use slipway_wire::Wire;

use super::error::LinkError;
use super::gate::Gates;
use super::inside::Seat;
use super::interface::Interface;
use super::live::{Live, Place};
use super::plan::{Basis, Lanes, Plan, plan};
use super::probe::LinkMeans;
use super::report::WireState;

/// Everything the anchor holds of a lab's links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    matrices: Vec<Matrix>,
    pub(super) live: Live,
    pub(super) lanes: Lanes,
    pub(super) means: OnceCell<LinkMeans>,
    pub(super) gates: Option<Gates>,
    pub(super) wire: Option<Wire>,
    pub(super) wire_state: WireState,
    /// Interfaces that have or had conditions.
    pub(super) interfaces: BTreeMap<Place, Interface>,
    /// Interfaces that keep their gates although nothing needs them now: something will, and soon.
    pub(super) ready: BTreeSet<Place>,
    /// Nodes whose interfaces will be changed soon, and whether by more than a cut or a partition.
    pub(super) coming: BTreeMap<NodeId, bool>,
}

/// What a change of links needs of its surroundings.
pub(crate) struct Around<'a> {
    pub(crate) alone: SingleThread,
    pub(crate) lab: &'a Lab,
    /// The lab's, which its wire holds too: while there is one, the lab is not gone.
    pub(crate) lock: BorrowedFd<'a>,
    /// Where an interface is met; `None` for one of a node that has never been started.
    pub(crate) seat: &'a dyn Fn(Place) -> Option<Seat<'a>>,
}

impl Links {
    /// Links on which nothing has been done yet. `matrices` are the lab's, read.
    pub(crate) fn new(matrices: Vec<Matrix>) -> Self {
        Self { matrices, ..Self::default() }
    }

    /// The same lab's links, on which nothing has been done yet, with what is known of this machine.
    pub(crate) fn anew(&self) -> Self {
        Self { matrices: self.matrices.clone(), means: self.means.clone(), ..Self::default() }
    }

    /// Ends the wire and waits for it, so that whoever waits for the anchor finds nothing left.
    pub(crate) fn end(&mut self) {
        if let Some(wire) = self.wire.take() {
            wire.stop();
        }
    }

    /// Notes that a child ended. True where it was the wire: what goes by way of it is lost from now on.
    pub(crate) fn ended(&mut self, pid: i32) -> bool {
        if self.wire.as_ref().is_none_or(|wire| wire.pid().as_raw_nonzero().get() != pid) {
            return false;
        }
        self.wire = None;
        self.wire_state = WireState::Dead;
        self.interfaces.values_mut().for_each(Interface::lose_wire);
        true
    }

    pub(super) fn plan(&self, lab: &Lab, live: &Live, lanes: &Lanes, place: Place) -> Result<Plan, LinkError> {
        let Self { matrices, means, .. } = self;
        let basis = Basis { lab, matrices, live, lanes, means };
        plan(basis, place).map_err(|source| LinkError::Unable { interface: lab.port_name(place), source })
    }

    /// An interface as it is to be now.
    pub(super) fn plan_now(&self, lab: &Lab, place: Place) -> Result<Plan, LinkError> {
        self.plan(lab, &self.live, &self.lanes, place)
    }

    /// Interfaces as they are to be now.
    pub(super) fn plans(
        &self,
        lab: &Lab,
        places: impl IntoIterator<Item = Place>,
    ) -> Result<Vec<(Place, Plan)>, LinkError> {
        places.into_iter().map(|place| Ok((place, self.plan_now(lab, place)?))).collect()
    }
}

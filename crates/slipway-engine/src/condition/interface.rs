//! The state of an interface, as the anchor last set it in the kernel.

use slipway_lab::scenario::Direction;
use slipway_wire::Spec;

use super::gate::Entry;
use super::inside::Shape;
use super::plan::Plan;

/// An interface with conditions, as the anchor made it.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) plan: Plan,
    /// Its place among all that were made: what its gates and ports are numbered by.
    pub(super) number: u32,
    /// Bytes.
    pub(super) mtu: u32,
    /// Whether there are places for the gate's programs.
    pub(super) hook: bool,
    /// Whether the gate's programs are attached there.
    pub(super) gate: bool,
    pub(super) ways: [Made; 2],
}

/// One direction of it.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// What its gate decides by.
    pub(super) entry: Entry,
    /// The tap's interface index, where there is one. It stays, idle, when the wire is not wanted any more: frames that are
    /// under way still come out.
    pub(super) tap: Option<u32>,
    /// What the wire was told last.
    pub(super) spec: Option<Spec>,
    /// The queueing discipline that is in place.
    pub(super) shape: Option<Shape>,
    /// Whether a change of it failed half-way: then anything may be in place.
    pub(super) unsure: bool,
    /// Interface index of the detour on which it is, for what the node receives.
    pub(super) detour: Option<u32>,
}

impl Interface {
    /// Notes that its device has been made again, under the same number. Taps and detours are beside it, and stay.
    pub(super) fn renew(&mut self) {
        self.gate = false;
        for way in self.ways.iter_mut().filter(|way| way.detour.is_none()) {
            (way.shape, way.unsure) = (None, false);
        }
    }

    /// Notes that the wire has ended, and its taps with it.
    pub(super) fn lose_wire(&mut self) {
        for way in &mut self.ways {
            (way.tap, way.spec) = (None, None);
        }
    }
}

/// What a direction is to its gate and to the wire.
pub(super) fn port(interface: u32, direction: Direction) -> u32 {
    2 * interface + u32::from(direction == Direction::Ingress)
}

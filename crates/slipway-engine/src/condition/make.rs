//! The kernel, kept in step with what is asked of a lab's links.

use std::io;

use slipway_lab::model::Lab;
use slipway_lab::scenario::Direction;
use slipway_wire::{Peer, Spec, Wire};

use super::choose::{Mechanism, loses_all};
use super::error::LinkError;
use super::gate::{Entry, Gates, Side, physical};
use super::inside::{Entrance, Shape};
use super::interface::{Interface, Made, port};
use super::links::{Around, Links};
use super::live::Place;
use super::plan::{BOTH, Plan, Way, addresses};
use super::report::WireState;
use super::seed::seed;

impl Links {
    /// Makes an interface what it is to be: what is needed and no more. First what packets are to pass through is made, then
    /// they are sent there, in one step, and then what they no longer pass is taken away.
    #[tracing::instrument(level = "debug", skip_all, fields(node = %around.lab.nodes[place.0].name, interface = %around.lab.nodes[place.0].interfaces[place.1].name), err(level = "debug"))]
    pub(super) fn make(&mut self, around: &Around<'_>, place: Place, plan: Plan) -> Result<(), LinkError> {
        if plan.is_nothing() && !self.interfaces.contains_key(&place) {
            return Ok(());
        }
        let takes_gate = plan.takes_gate() || self.ready.contains(&place);
        self.at(around, place, plan, |links, interface, entrance| {
            links.lay_ways(around, place, interface, entrance)?;
            let closes = links.set_entries(around.lab, interface)?;
            if takes_gate {
                links.attach_gate(around.lab, interface, entrance)?;
            }
            if closes {
                purge(interface, entrance)?;
            }
            clear(interface, entrance, takes_gate)
        })
    }

    /// Puts at an interface what `plan` will need. What it is to be now is as before.
    pub(super) fn make_ready(&mut self, around: &Around<'_>, place: Place, plan: &Plan) -> Result<(), LinkError> {
        let now = self.plan_now(around.lab, place)?;
        self.at(around, place, now, |links, interface, entrance| {
            for (direction, way) in BOTH.into_iter().zip(&plan.ways) {
                if way.choice.mechanism == Mechanism::Wire {
                    let made = &mut interface.ways[usize::from(direction == Direction::Ingress)];
                    if made.tap.is_none() {
                        let spec = spec(around.lab, place, direction, way, interface.mtu);
                        links.send_by_wire(around, port(interface.number, direction), spec, made, entrance)?;
                    }
                }
            }
            if plan.takes_gate() {
                links.attach_gate(around.lab, interface, entrance)?;
                links.ready.insert(place);
            }
            Ok(())
        })
    }

    /// Has work done at an interface of which nothing may have been made yet. One that has no namespace has none to be done.
    fn at(
        &mut self,
        around: &Around<'_>,
        place: Place,
        plan: Plan,
        work: impl FnOnce(&mut Self, &mut Interface, &mut Entrance<'_>) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let Some(seat) = (around.seat)(place) else { return Ok(()) };
        let mut entrance = Entrance::new(seat);
        if entrance.is_gone()? {
            return Ok(());
        }
        let mut interface = if let Some(interface) = self.interfaces.remove(&place) {
            Interface { plan, ..interface }
        } else {
            let number = u32::try_from(self.interfaces.len()).map_err(io::Error::other);
            let number = number.map_err(LinkError::system("number the interface"))?;
            let mtu = entrance.enter()?.mtu;
            Interface { hook: plan.outside, plan, number, mtu, gate: false, ways: Default::default() }
        };
        let outcome = work(self, &mut interface, &mut entrance);
        self.interfaces.insert(place, interface);
        outcome
    }

    /// Makes what packets are to pass through.
    fn lay_ways(
        &mut self,
        around: &Around<'_>,
        place: Place,
        interface: &mut Interface,
        entrance: &mut Entrance<'_>,
    ) -> Result<(), LinkError> {
        let Interface { plan, number, mtu, ways, hook, .. } = interface;
        for ((direction, way), made) in BOTH.into_iter().zip(&plan.ways).zip(ways.iter_mut()) {
            let shape = match way.choice.mechanism {
                Mechanism::Tbf => Shape::tbf(&way.all, *mtu),
                Mechanism::Netem => Shape::netem(&way.all, *mtu, seed(around.lab, place, direction, None)),
                Mechanism::Native | Mechanism::Gate => continue,
                Mechanism::Wire => {
                    let spec = spec(around.lab, place, direction, way, *mtu);
                    self.send_by_wire(around, port(*number, direction), spec, made, entrance)?;
                    continue;
                }
            };
            if made.unsure || made.shape.as_ref() != Some(&shape) {
                let inside = entrance.enter()?;
                if direction == Direction::Egress && !*hook && self.means.get().is_some_and(|means| means.gate.is_ok())
                {
                    // Later it would cost what is queued.
                    inside.hook()?;
                    *hook = true;
                }
                if std::mem::replace(&mut made.unsure, true) {
                    inside.bare(made.detour);
                    made.shape = None;
                }
                if physical(direction, plan.outside) == Direction::Ingress && made.detour.is_none() {
                    made.detour = Some(inside.make_detour()?);
                }
                inside.reshape(made.detour, made.shape.as_ref(), Some(&shape))?;
                (made.shape, made.unsure) = (Some(shape), false);
            }
        }
        Ok(())
    }

    /// Writes down for its gates what they are to decide by. True where nothing passes from now on that the device sends.
    fn set_entries(&mut self, lab: &Lab, interface: &mut Interface) -> Result<bool, LinkError> {
        let queued = queued(&interface.plan);
        let was_cut = interface.ways[queued].entry.cut;
        let Interface { plan, number, ways, .. } = interface;
        for ((direction, way), made) in BOTH.into_iter().zip(&plan.ways).zip(ways.iter_mut()) {
            let mechanism = way.choice.mechanism;
            let entry = Entry {
                cut: plan.cut
                    || plan.still
                    || plan.dead && direction == Direction::Ingress
                    || mechanism == Mechanism::Gate && loses_all(&way.all),
                last: plan.dead && direction == Direction::Egress,
                by: match mechanism {
                    // What is sent to a device that is not there is lost.
                    Mechanism::Wire => made.tap.unwrap_or(u32::MAX),
                    Mechanism::Tbf | Mechanism::Netem if physical(direction, plan.outside) == Direction::Ingress => {
                        made.detour.unwrap_or(u32::MAX)
                    }
                    _ => 0,
                },
                side: plan.side,
            };
            if entry != made.entry {
                let set = self.gates(lab)?.set(port(*number, direction), entry);
                set.map_err(LinkError::system("write to its gate"))?;
                made.entry = entry;
            }
        }
        Ok(!was_cut && ways[queued].entry.cut)
    }

    fn attach_gate(
        &mut self,
        lab: &Lab,
        interface: &mut Interface,
        entrance: &mut Entrance<'_>,
    ) -> Result<(), LinkError> {
        if interface.gate {
            return Ok(());
        }
        let gates = self.gates(lab)?;
        let outside = interface.plan.outside;
        let load = |direction| gates.program(port(interface.number, direction), direction, outside);
        let [egress, ingress] = BOTH.map(load);
        let (egress, ingress) = (egress?, ingress?);
        if !interface.hook {
            entrance.enter()?.hook()?;
            interface.hook = true;
        }
        entrance.enter()?.attach(&egress, &ingress)?;
        interface.gate = true;
        Ok(())
    }

    /// Has the wire carry a port so, which it is given if it does not have it.
    fn send_by_wire(
        &mut self,
        around: &Around<'_>,
        port: u32,
        spec: Spec,
        made: &mut Made,
        entrance: &mut Entrance<'_>,
    ) -> Result<(), LinkError> {
        let wire = self.wire(around)?;
        if made.tap.is_none() {
            let (tap, index) = entrance.enter()?.make_tap(spec.direction)?;
            wire.attach(port, &tap, &spec)?;
            (made.tap, made.spec) = (Some(index), Some(spec));
        } else if made.spec.as_ref() != Some(&spec) {
            wire.set(port, &spec)?;
            made.spec = Some(spec);
        }
        Ok(())
    }

    /// The lab's wire, started if it does not run.
    fn wire(&mut self, around: &Around<'_>) -> Result<&mut Wire, LinkError> {
        let wire = if let Some(running) = self.wire.take() {
            running
        } else {
            let started = Wire::start(around.alone, Some(around.lock))?;
            self.wire_state = WireState::Running;
            started
        };
        Ok(self.wire.insert(wire))
    }

    /// The lab's gates, made if there are none.
    pub(super) fn gates(&mut self, lab: &Lab) -> Result<&Gates, LinkError> {
        let gates = if let Some(made) = self.gates.take() {
            made
        } else {
            let interfaces: usize = lab.nodes.iter().map(|node| node.interfaces.len()).sum();
            let gates = Gates::new(2 * interfaces, 3 * interfaces);
            gates.map_err(LinkError::system("make the maps of the lab's gates"))?
        };
        Ok(self.gates.insert(gates))
    }
}

/// The direction in which packets are queued on the device itself, past the gate.
fn queued(plan: &Plan) -> usize {
    usize::from(plan.outside)
}

/// Drops what the kernel has queued of what the device sends: it is past the gate already.
fn purge(interface: &mut Interface, entrance: &mut Entrance<'_>) -> Result<(), LinkError> {
    let Made { shape: Some(shape), unsure, .. } = &mut interface.ways[queued(&interface.plan)] else { return Ok(()) };
    *unsure = true;
    entrance.enter()?.bare(None);
    entrance.enter()?.reshape(None, None, Some(shape))?;
    *unsure = false;
    Ok(())
}

/// Takes away what packets no longer pass.
fn clear(interface: &mut Interface, entrance: &mut Entrance<'_>, takes_gate: bool) -> Result<(), LinkError> {
    let Interface { plan, hook, gate, ways, .. } = interface;
    for (way, made) in plan.ways.iter().zip(ways.iter_mut()) {
        let shaped = matches!(way.choice.mechanism, Mechanism::Tbf | Mechanism::Netem);
        if !shaped && (made.shape.is_some() || made.unsure) {
            match made.detour {
                Some(begin) => entrance.enter()?.remove_detour(begin)?,
                None if made.unsure => entrance.enter()?.bare(None),
                None => entrance.enter()?.reshape(None, made.shape.as_ref(), None)?,
            }
            (made.shape, made.detour, made.unsure) = (None, None, false);
        }
    }
    // While packets are queued, a gate without need lets all pass: to take it away would cost them. At the host's end there are
    // others' programs beside it, and it stays.
    if *hook && !takes_gate && !plan.outside && ways[0].shape.is_none() {
        entrance.enter()?.unhook()?;
        (*hook, *gate) = (false, false);
    }
    Ok(())
}

fn spec(lab: &Lab, place: Place, direction: Direction, way: &Way, mtu: u32) -> Spec {
    let network = lab.nodes[place.0].interfaces[place.1].network;
    let peers = way.peers.iter().map(|(&peer, conditions)| Peer {
        addresses: addresses(lab, peer, network).collect(),
        seed: seed(lab, place, direction, Some(peer)),
        conditions: conditions.clone(),
    });
    Spec { direction, seed: seed(lab, place, direction, None), all: way.all.clone(), peers: peers.collect(), mtu }
}

impl Plan {
    /// Whether there is nothing to do.
    fn is_nothing(&self) -> bool {
        !self.still && !self.dead && self.ways.iter().all(|way| way.choice.mechanism == Mechanism::Native)
    }

    pub(super) fn takes_wire(&self) -> bool {
        self.ways.iter().any(|way| way.choice.mechanism == Mechanism::Wire)
    }

    /// Whether what its node sends may wait here.
    pub(super) fn holds(&self) -> bool {
        matches!(self.ways[0].choice.mechanism, Mechanism::Wire | Mechanism::Tbf | Mechanism::Netem)
    }

    fn takes_gate(&self) -> bool {
        let takes = |(way, direction): (&Way, Direction)| match physical(direction, self.outside) {
            Direction::Egress => matches!(way.choice.mechanism, Mechanism::Wire | Mechanism::Gate),
            Direction::Ingress => way.choice.mechanism != Mechanism::Native,
        };
        self.ways.iter().zip(BOTH).any(takes) || self.cut || self.still || self.dead || self.side != Side::default()
    }
}

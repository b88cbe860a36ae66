//! A lab's links as its anchor keeps them: what is asked for, and the kernel in step with it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use slipway_lab::matrix::Matrix;
use slipway_lab::model::Lab;
use slipway_lab::scenario::Direction;
use slipway_sys::clone::SingleThread;
use slipway_wire::{Peer, Spec, Wire};

use super::choose::{Mechanism, loses_all};
use super::gate::{Entry, Gates, Side};
use super::inside::{Inside, Shape};
use super::live::{LinkAction, Live, Place};
use super::plan::{BOTH, Basis, Lanes, Plan, Way, addresses, arrange, has_interfaces, plan, side};
use super::probe::LinkMeans;
use super::report::WireState;
use super::seed::seed;

/// Everything the anchor holds of a lab's links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    matrices: Vec<Matrix>,
    pub(super) live: Live,
    pub(super) lanes: Lanes,
    means: OnceCell<LinkMeans>,
    gates: Option<Gates>,
    pub(super) wire: Option<Wire>,
    pub(super) wire_state: WireState,
    /// Interfaces that have or had conditions.
    pub(super) interfaces: BTreeMap<Place, Interface>,
}

/// What has been made of an interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) plan: Plan,
    /// Its place among all that were made: what its gates and ports are numbered by.
    pub(super) number: u32,
    /// Bytes.
    mtu: u32,
    /// Whether the gate's programs are attached.
    gate: bool,
    ways: [Made; 2],
}

/// What has been made for one direction.
#[derive(Debug, Default)]
struct Made {
    /// What its gate decides by.
    entry: Entry,
    /// The tap's interface index, where there is one. It stays, idle, when the wire is not wanted any more: frames that are
    /// under way still come out.
    tap: Option<u32>,
    /// What the wire was told last.
    spec: Option<Spec>,
    /// The queueing discipline that is in place.
    shape: Option<Shape>,
    /// Interface index of the detour on which it is, for what the node receives.
    detour: Option<u32>,
}

/// What a change of links needs of its surroundings.
pub(crate) struct Around<'a> {
    pub(crate) alone: SingleThread,
    pub(crate) lab: &'a Lab,
    /// A node's network namespace; `None` for one that has never been started.
    pub(crate) net: &'a dyn Fn(usize) -> Option<BorrowedFd<'a>>,
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

    /// Whether everything that the lab file asks of links can be had here. Changes nothing.
    pub(crate) fn check(&self, lab: &Lab) -> Result<(), String> {
        every_place(lab, 0..lab.nodes.len()).into_iter().try_for_each(|place| self.plan(lab, place).map(drop))
    }

    /// Makes the links of nodes as they are asked to be.
    pub(crate) fn establish(&mut self, around: &Around<'_>, nodes: &[usize]) -> Result<(), String> {
        self.refresh(around, every_place(around.lab, nodes.iter().copied()))
    }

    /// Changes links, until something changes them again or, as overlay `number`, until that is lifted. What cannot be
    /// is refused, and nothing is changed.
    pub(crate) fn change(
        &mut self,
        around: &Around<'_>,
        number: Option<usize>,
        action: LinkAction,
    ) -> Result<(), String> {
        let places = about(around.lab, &action);
        self.check_action(around.lab, &action, &places)?;
        self.with(around, places, |live| match number {
            Some(number) => live.lay(number, action),
            None => live.change(action),
        })
    }

    /// Whether an action is about what there is, and its conditions can hold together with those that hold already.
    fn check_action(&self, lab: &Lab, action: &LinkAction, places: &BTreeSet<Place>) -> Result<(), String> {
        let exists = |&(node, slot): &Place| lab.nodes.get(node).is_some_and(|node| slot < node.interfaces.len());
        let nodes: Vec<usize> = match action {
            LinkAction::Pair(pair) => pair.from.iter().chain(&pair.to).copied().collect(),
            LinkAction::Partition { groups } => groups.iter().flatten().copied().collect(),
            other => other.interfaces().iter().map(|&(node, _)| node).collect(),
        };
        if nodes.iter().any(|&node| node >= lab.nodes.len()) || !places.iter().all(exists) {
            return Err("find an interface of that number: the lab has none".to_owned());
        }
        if let Some(&node) = nodes.iter().find(|&&node| !has_interfaces(lab, node)) {
            let name = &lab.nodes[node].name;
            return Err(format!(
                "change links of {name}: on driver host it has none of its own\nHint: choose another driver"
            ));
        }
        if let LinkAction::Partition { groups } = action {
            let mut seen = BTreeSet::new();
            if let Some(&twice) = groups.iter().flatten().find(|&node| !seen.insert(node)) {
                let name = &lab.nodes[twice].name;
                return Err(format!("part the nodes: {name} is in two groups\nHint: name each node once"));
            }
        }
        let (direction, change) = match action {
            LinkAction::Link { direction, change, .. } => (*direction, change),
            LinkAction::Pair(pair) => (Direction::Egress, &pair.change),
            _ => return Ok(()),
        };
        for &place in places {
            let base = &lab.nodes[place.0].interfaces[place.1].conditions;
            let base = if direction == Direction::Egress { &base.egress } else { &base.ingress };
            let now = self.live.conditions(base, place, direction);
            change.checked(&now).map_err(|problem| {
                format!("set conditions of {}: {}\nHint: {}", lab.port_name(place), problem.message, problem.help)
            })?;
        }
        Ok(())
    }

    /// Ends the wire and waits for it, so that whoever waits for the anchor finds nothing left.
    pub(crate) fn end(&mut self) {
        if let Some(wire) = self.wire.take() {
            // Gone already is what is wanted.
            let _ = wire.stop();
        }
    }

    /// Ends an overlay. One that there is not is fine.
    pub(crate) fn lift(&mut self, around: &Around<'_>, number: usize) -> Result<(), String> {
        let Some(action) = self.live.overlay(number) else { return Ok(()) };
        let places = about(around.lab, action);
        self.with(around, places, |live| live.lift(number))
    }

    /// Makes all links what the lab file says.
    pub(crate) fn restore(&mut self, around: &Around<'_>) -> Result<(), String> {
        let places = self.interfaces.keys().copied().collect();
        self.with(around, places, |live| *live = Live::default())
    }

    /// Has `change` done to what is asked for, and then to the kernel, at these places and wherever partitions change.
    fn with(
        &mut self,
        around: &Around<'_>,
        mut places: BTreeSet<Place>,
        change: impl FnOnce(&mut Live),
    ) -> Result<(), String> {
        let mut live = self.live.clone();
        change(&mut live);
        let lanes = arrange(&self.lanes, live.partitions()).ok_or_else(|| {
            format!("part the nodes: {} partitions hold already\nHint: `slipway join` ends them", self.lanes.len())
        })?;
        // Most changes are of no partition.
        let nodes = if lanes == self.lanes { 0 } else { around.lab.nodes.len() };
        let moved: Vec<(usize, Side)> = (0..nodes)
            .map(|node| (node, side(&lanes, node)))
            .filter(|&(node, now)| now != side(&self.lanes, node))
            .collect();
        places.extend(every_place(around.lab, moved.iter().map(|&(node, _)| node)));
        let before = (std::mem::replace(&mut self.live, live), std::mem::replace(&mut self.lanes, lanes));
        if let Err(refused) = places.iter().try_for_each(|&place| self.plan(around.lab, place).map(drop)) {
            (self.live, self.lanes) = before;
            return Err(refused);
        }
        for (node, side) in moved {
            let networks = around.lab.nodes[node].interfaces.iter().map(|interface| interface.network);
            for address in networks.flat_map(|network| addresses(around.lab, node, network)) {
                self.gates(around.lab)?.set_side(address, side).map_err(|error| format!("part the nodes: {error}"))?;
            }
        }
        self.refresh(around, places)
    }

    /// Notes that a child ended. True where it was the wire: what goes by way of it is lost from now on.
    pub(crate) fn ended(&mut self, pid: i32) -> bool {
        if self.wire.as_ref().is_none_or(|wire| wire.pid().as_raw_nonzero().get() != pid) {
            return false;
        }
        self.wire = None;
        self.wire_state = WireState::Dead;
        for way in self.interfaces.values_mut().flat_map(|interface| &mut interface.ways) {
            (way.tap, way.spec) = (None, None);
        }
        true
    }

    fn plan(&self, lab: &Lab, place: Place) -> Result<Plan, String> {
        let Self { matrices, live, lanes, means, .. } = self;
        let basis = Basis { lab, matrices, live, lanes, means };
        plan(basis, place).map_err(|unable| format!("set conditions of {}: {unable}", lab.port_name(place)))
    }

    /// Brings the kernel in step at these places. All are tried; the first failure is told.
    fn refresh(&mut self, around: &Around<'_>, mut places: BTreeSet<Place>) -> Result<(), String> {
        if self.wire_state == WireState::Dead {
            // A new wire knows nothing of the ports of the old one.
            let silent = self.interfaces.iter().filter(|(_, interface)| interface.plan.takes_wire());
            places.extend(silent.map(|(&place, _)| place));
        }
        let mut outcome = Ok(());
        for place in places {
            let plan = self.plan(around.lab, place)?;
            let made = self.make(around, place, plan);
            let of = |error: String| format!("set conditions of {}: {error}", around.lab.port_name(place));
            outcome = outcome.and(made.map_err(of));
        }
        outcome
    }

    /// Makes an interface what it is to be.
    fn make(&mut self, around: &Around<'_>, place: Place, plan: Plan) -> Result<(), String> {
        let Some(net) = (around.net)(place.0) else { return Ok(()) };
        let name = &around.lab.nodes[place.0].interfaces[place.1].name;
        let mut interface = match self.interfaces.remove(&place) {
            Some(interface) => interface,
            None if plan.is_nothing() => return Ok(()),
            None => {
                let number = u32::try_from(self.interfaces.len()).map_err(|error| error.to_string())?;
                let mtu = Inside::enter(net, name)?.mtu;
                Interface { plan: plan.clone(), number, mtu, gate: false, ways: Default::default() }
            }
        };
        interface.plan = plan;
        let made = self.keep_in_step(around, place, &mut interface, &mut || Inside::enter(net, name));
        self.interfaces.insert(place, interface);
        made
    }

    /// Does what is needed and no more: first what packets are to pass through is made, then they are sent there, in one
    /// step, and then what they no longer pass is taken away.
    fn keep_in_step<'a>(
        &mut self,
        around: &Around<'_>,
        place: Place,
        interface: &mut Interface,
        enter: &mut dyn FnMut() -> Result<Inside<'a>, String>,
    ) -> Result<(), String> {
        let Interface { plan, number, mtu, gate, ways } = interface;
        for ((direction, way), made) in BOTH.into_iter().zip(&plan.ways).zip(ways.iter_mut()) {
            let seed = || seed(around.lab, place, direction, None);
            let shape = match way.choice.mechanism {
                Mechanism::Tbf => Some(Shape::tbf(&way.all, *mtu)),
                Mechanism::Netem => Some(Shape::netem(&way.all, *mtu, seed())),
                Mechanism::Native | Mechanism::Gate => None,
                Mechanism::Wire => {
                    let spec = spec(around.lab, place, direction, way, *mtu);
                    self.send_by_wire(around, port(*number, direction), direction, spec, made, enter)?;
                    None
                }
            };
            if shape.is_some() && made.shape != shape {
                let mut inside = enter()?;
                if direction == Direction::Ingress && made.detour.is_none() {
                    made.detour = Some(inside.make_detour()?);
                }
                inside.reshape(made.detour, made.shape.as_ref(), shape.as_ref())?;
                made.shape = shape;
            }
        }
        let takes_gate = plan.takes_gate();
        for ((direction, way), made) in BOTH.into_iter().zip(&plan.ways).zip(ways.iter_mut()) {
            let mechanism = way.choice.mechanism;
            let entry = Entry {
                cut: plan.cut || mechanism == Mechanism::Gate && loses_all(&way.all),
                by: match mechanism {
                    // What is sent to a device that is not there is lost.
                    Mechanism::Wire => made.tap.unwrap_or(u32::MAX),
                    Mechanism::Tbf | Mechanism::Netem if direction == Direction::Ingress => {
                        made.detour.unwrap_or(u32::MAX)
                    }
                    _ => 0,
                },
                side: plan.side,
            };
            if entry != made.entry {
                let set = self.gates(around.lab)?.set(port(*number, direction), entry);
                set.map_err(|error| format!("write to its gate: {error}"))?;
                made.entry = entry;
            }
            if takes_gate && !*gate && direction == BOTH[1] {
                let gates = self.gates(around.lab)?;
                let program = |direction| gates.program(port(*number, direction), direction);
                let [egress, ingress] = BOTH.map(program);
                let says = |error: slipway_sys::bpf::LoadError| error.to_string();
                enter()?.attach(&egress.map_err(says)?, &ingress.map_err(says)?)?;
                *gate = true;
            }
        }
        for (way, made) in plan.ways.iter().zip(ways.iter_mut()) {
            let shaped = matches!(way.choice.mechanism, Mechanism::Tbf | Mechanism::Netem);
            if !shaped && made.shape.is_some() {
                match made.detour {
                    Some(begin) => enter()?.remove_detour(begin)?,
                    None => enter()?.reshape(None, made.shape.as_ref(), None)?,
                }
                (made.shape, made.detour) = (None, None);
            }
        }
        if *gate && !takes_gate {
            enter()?.detach()?;
            *gate = false;
        }
        Ok(())
    }

    /// Has the wire carry a port so, which it is given if it does not have it.
    fn send_by_wire<'a>(
        &mut self,
        around: &Around<'_>,
        port: u32,
        direction: Direction,
        spec: Spec,
        made: &mut Made,
        enter: &mut dyn FnMut() -> Result<Inside<'a>, String>,
    ) -> Result<(), String> {
        let wire = self.wire(around)?;
        if made.tap.is_none() {
            let (tap, index) = enter()?.make_tap(direction)?;
            wire.attach(port, &tap, &spec).map_err(|error| error.to_string())?;
            (made.tap, made.spec) = (Some(index), Some(spec));
        } else if made.spec.as_ref() != Some(&spec) {
            wire.set(port, &spec).map_err(|error| error.to_string())?;
            made.spec = Some(spec);
        }
        Ok(())
    }

    /// The lab's wire, started if it does not run.
    fn wire(&mut self, around: &Around<'_>) -> Result<&mut Wire, String> {
        if self.wire.is_none() {
            self.wire = Some(Wire::start(around.alone).map_err(|error| error.to_string())?);
            self.wire_state = WireState::Running;
        }
        self.wire.as_mut().ok_or_else(|| "start the wire".to_owned())
    }

    /// The lab's gates, made if there are none.
    fn gates(&mut self, lab: &Lab) -> Result<&Gates, String> {
        if self.gates.is_none() {
            let interfaces: usize = lab.nodes.iter().map(|node| node.interfaces.len()).sum();
            let gates = Gates::new(2 * interfaces, 2 * interfaces);
            self.gates = Some(gates.map_err(|error| format!("make the maps of the lab's gates: {error}"))?);
        }
        self.gates.as_ref().ok_or_else(|| "make the lab's gates".to_owned())
    }
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

/// What a direction is to its gate and to the wire.
pub(super) fn port(interface: u32, direction: Direction) -> u32 {
    2 * interface + u32::from(direction == Direction::Ingress)
}

/// All interfaces of nodes that have any of their own.
fn every_place(lab: &Lab, nodes: impl Iterator<Item = usize>) -> BTreeSet<Place> {
    let with_interfaces = nodes.filter(|&node| has_interfaces(lab, node));
    with_interfaces.flat_map(|node| (0..lab.nodes[node].interfaces.len()).map(move |slot| (node, slot))).collect()
}

/// The interfaces whose packets an action is about, partitions aside.
fn about(lab: &Lab, action: &LinkAction) -> BTreeSet<Place> {
    match action {
        LinkAction::Pair(pair) => {
            let senders = every_place(lab, pair.from.iter().copied()).into_iter();
            senders.filter(|&(node, slot)| pair.is_from(node, lab.nodes[node].interfaces[slot].network)).collect()
        }
        other => other.interfaces().iter().copied().collect(),
    }
}

impl Plan {
    /// Whether there is nothing to do.
    fn is_nothing(&self) -> bool {
        self.ways.iter().all(|way| way.choice.mechanism == Mechanism::Native)
    }

    fn takes_wire(&self) -> bool {
        self.ways.iter().any(|way| way.choice.mechanism == Mechanism::Wire)
    }

    fn takes_gate(&self) -> bool {
        let [egress, ingress] = &self.ways;
        matches!(egress.choice.mechanism, Mechanism::Wire | Mechanism::Gate)
            || ingress.choice.mechanism != Mechanism::Native
            || self.cut
            || self.side != Side::default()
    }
}

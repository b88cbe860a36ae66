//! A whole lab, on all of its machines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipway_engine::condition::LinkReport;
use slipway_engine::fast::RouterState;
use slipway_engine::lab::{NodeRow, Running};
use slipway_engine::network::Mechanism;
use slipway_engine::network::graph::Graph;
use slipway_engine::protocol::State;
use slipway_engine::scenario::{Folder, Status};
use slipway_lab::id::{MachineId, NodeId};
use slipway_lab::model::Lab;

use crate::context::Context;
use crate::failure::Failure;
use crate::{conditions, parts, view};

#[derive(Serialize)]
struct WholeLab<'a> {
    lab: &'a Lab,
    /// This machine's part: folder of state, anchor, routers, devices.
    #[serde(flatten)]
    here: Part,
    /// The nodes of all machines, in the lab's order.
    nodes: Vec<NodeRow>,
    /// Links of all machines that differ from the machines' own.
    links: LinkReport,
    /// The scenario that plays on the lab, or the last one that did.
    scenario: Option<Status>,
    /// The parts of all machines, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    machines: Vec<Named>,
}

/// A part, with its machine's name.
#[derive(Serialize)]
struct Named {
    machine: String,
    #[serde(flatten)]
    part: Part,
}

/// A machine's part of a lab.
#[derive(Clone, Serialize, Deserialize)]
struct Part {
    /// The lab's folder of state there.
    folder: PathBuf,
    state: State,
    /// Namespaces and devices of networks and conditions.
    graph: Graph,
}

/// The answer of another machine, as far as it is needed.
#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    part: Part,
    nodes: Vec<NodeRow>,
    links: LinkReport,
}

/// Shows a lab.
pub(super) fn show(context: &Context, running: &Running) -> Result<(), Failure> {
    let lab = &running.lab;
    let folder = running.dir().path().to_owned();
    let here = Part { folder, state: running.state.clone(), graph: running.graph()? };
    let mut parts = BTreeMap::from([(lab.part.machine, here.clone())]);
    let mut nodes: BTreeMap<NodeId, NodeRow> = lab.nodes_here().into_iter().zip(running.rows()?).collect();
    let mut links = running.links()?;
    for (machine, answer) in parts::answers::<Answer>(context, lab, &["inspect", &lab.name])? {
        nodes.extend(lab.nodes.ids().filter(|&node| lab.machine_of(node) == machine).zip(answer.nodes));
        links.join(answer.links, |node| lab.nodes.get(node).is_some() && lab.machine_of(node) == machine);
        parts.insert(machine, answer.part);
    }
    let scenario = Folder::of(running.dir()).status()?;
    let machines = if parts.len() > 1 { parts.into_iter().map(|part| named(lab, part)).collect() } else { Vec::new() };
    let answer = WholeLab { lab, here, nodes: nodes.into_values().collect(), links, scenario, machines };
    context.answer(&answer, text)
}

fn named(lab: &Lab, (machine, part): (MachineId, Part)) -> Named {
    Named { machine: lab.machines[machine].name.clone(), part }
}

fn text(answer: &WholeLab<'_>) -> String {
    let lab = answer.lab;
    let mut facts = vec![("lab", lab.name.clone())];
    if answer.machines.is_empty() {
        facts.push(("anchor", format!("process {}", answer.here.state.anchor.pid)));
        facts.push(("folder", answer.here.folder.display().to_string()));
    }
    facts.extend(answer.machines.iter().map(|Named { machine, part }| {
        ("machine", format!("{machine}: anchor is process {}, folder {}", part.state.anchor.pid, part.folder.display()))
    }));
    facts.push(("seed", lab.seed.to_string()));
    let states = || std::iter::once(&answer.here).filter(|_| answer.machines.is_empty());
    let states: Vec<&State> =
        states().chain(answer.machines.iter().map(|of| &of.part)).map(|part| &part.state).collect();
    let mut routers: Vec<&RouterState> = states.iter().flat_map(|state| &state.routers).collect();
    routers.sort_by_key(|router| router.host);
    facts.extend(routers.into_iter().map(|router| ("router", view::router(lab, router))));
    facts.extend(answer.scenario.as_ref().map(|status| ("scenario", view::scenario(status))));
    let tunings: String = states.iter().map(|state| view::tunings(lab, &state.tunings)).collect();
    let other_ways: String = answer.machines.iter().flat_map(|of| other_ways(&answer.here.state.networks, of)).collect();
    let links = conditions::of_lab(lab, &answer.links);
    format!("{}\n{}{other_ways}{tunings}{links}", view::facts(&facts), view::lab(lab, &answer.here.state.networks))
}

/// Networks that a machine makes otherwise than this one does.
fn other_ways<'a>(here: &'a [Mechanism], of: &'a Named) -> impl Iterator<Item = String> + 'a {
    let same = |here: &Mechanism, there: &Mechanism| {
        (&here.network, &here.probed.mechanism, here.mtu) == (&there.network, &there.probed.mechanism, there.mtu)
    };
    let differs = move |there: &&Mechanism| !here.iter().any(|here| same(here, there));
    of.part.state.networks.iter().filter(differs).map(|there| {
        let (network, mechanism, mtu) = (&there.network, &there.probed.mechanism, there.mtu);
        format!("\non machine {}, network {network} is made of {mechanism}, MTU {mtu}\n", of.machine)
    })
}

//! `slipway inspect`

mod whole;

use serde::Serialize;
use slipway_engine::condition::LinkReport;
use slipway_engine::lab::{NodeRow, Running};
use slipway_engine::network::Mechanism;
use slipway_engine::network::graph::{Graph, Space};
use slipway_engine::tuning::Chosen;
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverKind, Host, Image, Network, Node};
use slipway_document::units::Bytes;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts::Elsewhere;
use crate::{conditions, datapath, labs, view};

/// Show everything about a lab, or about one node
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway inspect [OPTIONS] [LAB] [NODE]",
    after_help = "\
It prints addresses, routes, mounts, limits, processes, and the parts of each
network. A lab over several machines is shown whole, from any of them.

Examples:
  slipway inspect demo                  the lab
  slipway inspect demo n1               one node
  slipway inspect demo n1 --json | jq -r .node.interfaces[0].ipv4"
)]
pub(crate) struct Args {
    /// Lab (name or file) and node; a node alone where one lab runs [default: the only lab]
    #[arg(value_names = ["LAB", "NODE"], num_args = 0..=2)]
    words: Vec<String>,
}

#[derive(Serialize)]
struct OneNode<'a> {
    lab: &'a str,
    node: &'a Node,
    host: &'a Host,
    image: &'a Image,
    networks: Vec<&'a Network>,
    mechanisms: Vec<&'a Mechanism>,
    now: NodeRow,
    /// Its links, as far as they differ from the machine's own.
    links: LinkReport,
    /// Its devices, and those at the other ends of its wires.
    graph: Graph,
    /// All of its processes, by their numbers on the machine.
    pids: Vec<i32>,
    /// The kernel settings that its host's profile gave it.
    tuned: Vec<&'a Chosen>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let root = &context.root;
        match self.words.as_slice() {
            [] => whole::show(context, &labs::running(root, None)?)?,
            [lab] if labs::is_file(lab) || root.lab(lab).exists() => whole::show(context, &labs::running(root, Some(lab))?)?,
            words => {
                let (running, index) = labs::node(root, words)?;
                let json = context.global.json.then(|| "--json".into()).into_iter().collect();
                if let Some(elsewhere) = Elsewhere::find(&running, index, "inspect", json)? {
                    return Err(elsewhere.instead([]));
                }
                one(context, &running, index)?;
            }
        }
        Ok(Exit::Success)
    }
}

fn one(context: &Context, running: &Running, index: NodeId) -> Result<(), Failure> {
    let lab = &running.lab;
    let node = &lab.nodes[index];
    let mut links = running.links()?;
    links.interfaces.retain(|interface| interface.node == index);
    let networks: Vec<&Network> = node.interfaces.iter().map(|interface| &lab.networks[interface.network]).collect();
    let of_host = running.state.tunings.get(node.host).and_then(Option::as_ref);
    let in_node = |chosen: &&Chosen| chosen.in_nodes && !node.sysctls.contains_key(&chosen.name);
    // One on its host's network has the host's settings.
    let shares = networks.iter().any(|network| network.driver == DriverKind::Host);
    let tuned = of_host.map(|tuning| tuning.settings.iter().filter(|chosen| shares || in_node(chosen)));
    let answer = OneNode {
        tuned: tuned.into_iter().flatten().collect(),
        lab: &lab.name,
        node,
        host: &lab.hosts[node.host],
        image: &lab.images[node.image],
        mechanisms: running
            .state
            .networks
            .iter()
            .filter(|how| networks.iter().any(|network| network.name == how.network))
            .collect(),
        networks,
        links,
        graph: running.graph()?.of_node(index),
        now: running.row(index)?,
        pids: running.group(index)?.map(|group| group.pids()).transpose()?.unwrap_or_default(),
    };
    context.answer(&answer, |answer| {
        let mut facts = vec![
            ("node", format!("{} (group {}) of lab {}", node.name, node.group, lab.name)),
            ("status", status(answer)),
        ];
        facts.extend(view::node(lab, node, &running.state.networks));
        facts.extend(answer.now.program.as_ref().map(|program| ("its program", view::program(program))));
        facts.extend(answer.tuned.iter().map(|Chosen { name, value, rule, .. }| {
            ("setting", format!("{name} = {value}, by rule {rule}"))
        }));
        facts.extend(conditions::of_node(lab, &answer.links, index));
        let own = answer.graph.links.iter().filter(|link| link.device.space == Space::Node(index));
        facts.extend(own.map(|link| ("device", datapath::words(lab, link))));
        view::facts(&facts)
    })
}

fn status(answer: &OneNode<'_>) -> String {
    let NodeRow { status, pid, usage, .. } = &answer.now;
    let pid = pid.map_or_else(String::new, |pid| format!(", init is process {pid}"));
    let usage = usage.as_ref().map_or_else(String::new, |usage| {
        let (memory, seconds) = (view::size(Bytes(usage.memory)), usage.cpu_ns as f64 / 1e9);
        format!(", {}, {memory}, {seconds:.2} s of CPU", view::count(answer.pids.len(), "process"))
    });
    format!("{status}{pid}{usage}")
}

//! `slipway ps`

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use slipway_engine::lab::{NodeRow, Running};
use slipway_engine::scenario::{Folder, Standing, Status};
use slipway_engine::state::StateRoot;
use slipway_lab::id::NodeId;
use slipway_lab::model::Network;
use slipway_document::units::Bytes;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{conditions, labs, parts, view};

/// List running labs, or the nodes of one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A lab is `up`, `changing` (being brought up or down) or `broken` (a crash left
it; `slipway down` removes it). A node is `running`, `frozen`, `stopped` (by
`slipway stop`) or `dead` (killed, or its init ended; `slipway start` revives
it). Its links may have `conditions`, be `cut`, or `parted` by a partition, or
`silent` because the process that carries frames has died. PROGRAM is the state
of the node's own program (`command`); `slipway logs` shows its output.

Units: CPU is processor time in seconds. MEMORY is in KiB, MiB or GiB; without a
memory limit, pages that processes share count for each of them.

Examples:
  slipway ps                        all labs
  slipway ps demo                   its nodes, with their use of resources
  slipway ps demo --json | jq -r '.nodes[] | select(.status != \"running\").name'")]
pub(crate) struct Args {
    /// Name of a lab, or a lab file [default: all labs]
    lab: Option<String>,
}

#[derive(Serialize)]
struct Labs {
    labs: Vec<LabRow>,
}

#[derive(Serialize)]
struct LabRow {
    name: String,
    status: &'static str,
    nodes: Option<usize>,
    /// Network names with their drivers.
    networks: Vec<String>,
    /// Seconds since 1970 UTC.
    since: Option<u64>,
    /// The scenario that plays on the lab, or the last one that did.
    scenario: Option<Status>,
}

#[derive(Serialize, Deserialize)]
struct Nodes {
    lab: String,
    nodes: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    row: NodeRow,
    /// How its links differ from the machine's own.
    links: Vec<Cow<'static, str>>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        if let Some(word) = &self.lab {
            let running = labs::running(&context.root, Some(word))?;
            let links = running.links()?;
            let in_short = |(index, row)| {
                Row { row, links: conditions::in_short(&links, index).into_iter().map(Cow::Borrowed).collect() }
            };
            let nodes = running.rows()?;
            let nodes = running.lab.nodes_here().into_iter().zip(nodes).map(in_short);
            let mut nodes: Vec<Row> = nodes.collect();
            for (_, part) in parts::answers::<Nodes>(context, &running.lab, &["ps", &running.lab.name])? {
                nodes.extend(part.nodes);
            }
            // In the order of the lab file, whichever machine they are on.
            let place: BTreeMap<&str, NodeId> =
                running.lab.nodes.enumerate().map(|(node, of)| (of.name.as_str(), node)).collect();
            nodes.sort_by_key(|row| place.get(row.row.name.as_str()).copied());
            let nodes = Nodes { lab: running.lab.name.clone(), nodes };
            context.answer(&nodes, nodes_text)?;
        } else {
            let names = context.root.labs()?;
            let labs = Labs { labs: names.into_iter().map(|name| row(&context.root, name)).collect() };
            context.answer(&labs, labs_text)?;
        }
        Ok(Exit::Success)
    }
}

fn row(root: &StateRoot, name: String) -> LabRow {
    if let Ok(Running { lab, state, .. }) = Running::open(root, &name) {
        let silent = state.routers.iter().any(|router| router.pid.is_none());
        let network = |net: &Network| {
            let gone = if net.bypasses.tcp.is_some() && silent { ", a router is gone" } else { "" };
            format!("{} ({}{gone})", net.name, net.word())
        };
        let networks = lab.networks.iter().map(network).collect();
        // A log that cannot be read is no reason to list no labs.
        let scenario = Folder::of(&root.lab(&name)).status().ok().flatten();
        return LabRow {
            name,
            status: "up",
            nodes: Some(lab.nodes.len()),
            networks,
            since: Some(state.since),
            scenario,
        };
    }
    let alive = root.lab(&name).read_state().is_ok_and(|state| state.anchor.is_alive());
    let status = if alive { "changing" } else { "broken" };
    LabRow { name, status, nodes: None, networks: Vec::new(), since: None, scenario: None }
}

fn labs_text(labs: &Labs) -> String {
    if labs.labs.is_empty() {
        return "no lab is up\n".to_owned();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let dash = || "-".to_owned();
    let table = view::table(
        ["LAB", "STATUS", "NODES", "SINCE", "NETWORKS"],
        labs.labs.iter().map(|lab| {
            [
                lab.name.clone(),
                lab.status.to_owned(),
                lab.nodes.map_or_else(dash, |nodes| nodes.to_string()),
                lab.since.map_or_else(dash, |since| view::age(now.saturating_sub(since))),
                if lab.networks.is_empty() { dash() } else { lab.networks.join(", ") },
            ]
        }),
    );
    let played = labs.labs.iter().filter_map(|lab| Some((lab, lab.scenario.as_ref()?)));
    let played = played.filter(|(_, status)| status.standing != Standing::Over);
    played.fold(table, |text, (lab, status)| format!("{text}\nlab {}: scenario {}\n", lab.name, view::scenario(status)))
}

fn nodes_text(nodes: &Nodes) -> String {
    let dash = || "-".to_owned();
    let cells = |Row { row: node, links }: &Row| {
        let used = |what: &dyn Fn(&slipway_sys::cgroup::Usage) -> String| node.usage.as_ref().map_or_else(dash, what);
        [
            node.name.clone(),
            node.status.clone(),
            node.host.clone(),
            node.image.clone(),
            node.pid.map_or_else(dash, |pid| pid.to_string()),
            used(&|usage| format!("{:.2} s", usage.cpu_ns as f64 / 1e9)),
            used(&|usage| view::size(Bytes(usage.memory))),
            used(&|usage| usage.pids.to_string()),
            if links.is_empty() { dash() } else { links.join(",") },
            node.addresses.join(" "),
        ]
    };
    let heading = ["NODE", "STATUS", "HOST", "IMAGE", "PID", "CPU", "MEMORY", "PIDS", "LINKS", "ADDRESSES"];
    if nodes.nodes.iter().all(|node| node.row.program.is_none()) {
        return view::table(heading, nodes.nodes.iter().map(cells));
    }
    let with = |cells: [String; 10], program: String| {
        let [name, status, rest @ ..] = cells;
        let [host, image, pid, cpu, memory, pids, links, addresses] = rest;
        [name, status, program, host, image, pid, cpu, memory, pids, links, addresses]
    };
    let rows = nodes.nodes.iter().map(|row| {
        with(cells(row), row.row.program.as_ref().map_or_else(dash, view::program))
    });
    let heading = with(heading.map(str::to_owned), "PROGRAM".to_owned());
    view::table(heading.each_ref().map(String::as_str), rows)
}

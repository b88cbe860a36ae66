//! `slipway up`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use slipway_engine::lab::{self, NodeRow, Running, UpError};
use slipway_engine::network::{self, Mechanism, NetworkError};
use slipway_engine::state::ProgramEnd;
use slipway_engine::tuning::Tunings;
use slipway_image::Store;
use slipway_lab::id::{List, NetworkId, NodeId};
use slipway_lab::model::Lab;
use slipway_machines::rsh::Rsh;
use slipway_study::Source;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machines::Machines;
use crate::meter::Meter;
use crate::{labs, parts, view};

/// Bring a lab up
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command returns once every node is ready. It undoes a lab that fails or that
Ctrl-C interrupts half-way.

Examples:
  slipway up                       the lab in ./slipway.yaml or ./lab.yaml
  slipway up examples/mpi.yaml     another
  slipway up --dry-run             its parts, checked against this machine
  slipway up --machines 'a,b[1-3]' on four machines that ssh reaches")]
pub(crate) struct Args {
    /// Lab file [default: slipway.yaml or lab.yaml in the current folder]
    file: Option<PathBuf>,
    #[command(flatten)]
    machines: Machines,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Planned<'a> {
    plan: &'a Lab,
    networks: List<NetworkId, Mechanism>,
    /// The kernel settings that profiles would give its hosts.
    tunings: Tunings,
}

#[derive(Serialize)]
struct Up {
    lab: String,
    seconds: f64,
    nodes: Vec<NodeRow>,
    /// Notes on limits that hold differently than one might expect.
    notes: Vec<String>,
    /// Nodes whose own program has ended already.
    ended: Vec<Early>,
}

#[derive(Serialize)]
struct Early {
    node: String,
    #[serde(flatten)]
    end: ProgramEnd,
}

/// How long a node's own program must live for it not to have ended at once. Nothing tells that one works; most of those
/// that cannot start end sooner.
const AT_ONCE: Duration = Duration::from_millis(100);

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let source = self.machines.choose(labs::source(self.file.as_deref())?)?;
        let file = source.lab()?;
        labs::need_privilege()?;
        labs::warn(&source, &file);
        let file = parts::with_part(file)?;
        if self.dry_run.dry_run {
            source.check(&Store::open()?, &file)?;
            let tunings = lab::tunings(&file).map_err(UpError::from)?;
            let planned = Planned { plan: &file, networks: network::plan(&file)?, tunings };
            context.answer(&planned, |planned| {
                let tunings = view::tunings(&file, &planned.tunings);
                format!("would bring up lab {}:\n\n{}{tunings}", file.name, view::lab(&file, &planned.networks))
            })?;
            return Ok(Exit::Success);
        }
        let started = Instant::now();
        let mut meter = Meter::new(&context.global);
        let mut show = |progress| meter.show(progress);
        let outcome = if file.machines.is_empty() {
            lab::up(&context.machine()?, &file, &mut show).map_err(|error| because(&source, &file, error))
        } else {
            slipway_machines::up::up(&Rsh::from_env()?, &file, &mut show)
                .map_err(Failure::from)
                .and_then(|()| Ok(Running::open(&context.root, &file.name)?))
        };
        meter.finish();
        let mut running = outcome?;
        let ended = running.early_ends(AT_ONCE)?;
        let early = |(node, end): (NodeId, ProgramEnd)| Early { node: file.nodes[node].name.clone(), end };
        let ended: Vec<Early> = ended.into_iter().map(early).collect();
        let (seconds, nodes) = (started.elapsed().as_secs_f64(), running.rows());
        // Last of all: what is said to be up was so a moment ago.
        if !running.is_up() {
            return Err(UpError::Ended(file.name).into());
        }
        let up = Up { lab: file.name.clone(), seconds, nodes: nodes?, notes: running.limit_notes(), ended };
        for Early { node, end } in up.ended.iter().filter(|early| early.end.code != 0 && !context.global.json) {
            tracing::warn!(
                "the program of node {node} ended at once{}; `slipway logs {} {node}` shows what it said",
                view::ended_how(*end),
                up.lab
            );
        }
        context.tell(&up, |up| {
            let told: Vec<String> = up.notes.iter().map(|note| format!("note: {note}\n")).collect();
            text(&file, up.seconds) + &told.concat()
        })?;
        Ok(Exit::Success)
    }
}

/// The anchor tells in words what failed. That this machine cannot run a driver has an exit code of its own.
fn because(source: &Source, lab: &Lab, error: UpError) -> Failure {
    match (&error, network::plan(lab)) {
        (UpError::Failed(_), Err(unsupported @ NetworkError::Unsupported { .. })) => unsupported.into(),
        _ => source.refused(error).into(),
    }
}

fn text(lab: &Lab, seconds: f64) -> String {
    let networks: Vec<String> = lab.networks.iter().map(|net| format!("{} ({})", net.name, net.word())).collect();
    let networks = if networks.is_empty() { "no network".to_owned() } else { networks.join(", ") };
    format!(
        "lab {name} is up after {seconds:.2} s: {nodes} on {hosts}, {networks}\ntry: slipway exec {name} {first} -- ip address\n",
        name = lab.name,
        nodes = view::count(lab.nodes.len(), "node"),
        hosts = view::count(lab.hosts.len(), "host"),
        first = lab.nodes[NodeId(0)].name,
    )
}

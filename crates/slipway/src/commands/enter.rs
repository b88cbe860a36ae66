//! `slipway enter`

use std::ffi::OsString;

use slipway_engine::exec::{Beside, Entry, Launcher, Program};
use slipway_engine::job::rank;
use slipway_engine::lab::Running;
use slipway_lab::id::NodeId;

use super::exec::{Way, environment};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, user};

/// The number of a rank among those of its step on its machine (`srun(1)`).
const LOCAL: &str = "SLURM_LOCALID";

/// Run a rank that srun starts in a node of its machine
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway enter [OPTIONS] <LAB> [NODE] -- <PROGRAM>...",
    after_help = "\
srun starts this command once for each rank, within the job whose lab is up. The
program runs in a node of the rank's machine: nodes take as many ranks as they
have slots, in the lab's order, then again from the first. The program reaches
Slurm's PMIx (Open MPI) or PMI-2 (MPICH) server through this command. MPI talks
over the first network that all nodes are on.

The environment is the node's, --env's, and all of SLURM_*, PMI*, OMPI_*, MPIR_*
and UCX_*. Streams, signals and exit codes are as with `slipway exec`.

Examples:
  srun --overlap --mpi=pmix -n 4 slipway enter demo -- hpcc
  srun --overlap --mpi=pmi2 -n 4 slipway enter demo -- ./a.out
  srun --overlap -n 1 slipway enter demo n1 -- hostname"
)]
pub(crate) struct Args {
    /// Lab (name or file)
    #[arg(value_name = "LAB")]
    lab: String,
    /// Node of this machine [default: by the rank's number]
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<OsString>,
    #[command(flatten)]
    way: Way,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        // As with `exec`, a script must be able to tell the program's failures from slipway's own.
        self.enter(context).map_err(|failure| match failure.exit() {
            Exit::Program(_) => failure,
            _ => failure.with_exit(Exit::Program(125)),
        })
    }

    fn enter(self, context: &Context) -> Result<Exit, Failure> {
        let running = labs::running(&context.root, Some(&self.lab))?;
        let entry = Entry::to(&running, self.node(&running)?)?;
        let user = self.way.user.as_deref().map(|word| user::find(&entry, word)).transpose()?;
        let mut beside = Beside::default();
        let own = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut env = rank::environment(&running.lab, &entry, own, &mut beside)?;
        env.extend(environment(&self.way.env)?);
        let program = Program { argv: self.argv, env, workdir: self.way.workdir, user };
        let launcher = Launcher::new().map_err(Failure::io("prepare to start programs"))?;
        Ok(Exit::Program(launcher.foreground_beside(&entry, &program, false, beside)?.code()))
    }

    fn node(&self, running: &Running) -> Result<NodeId, Failure> {
        let lab = &running.lab;
        let Some(word) = &self.node else {
            let number = std::env::var(LOCAL).ok().and_then(|number| number.parse().ok()).ok_or_else(|| {
                let hint = "Hint: have srun start this command, or name a node";
                Failure::usage(format!("choose a node: {LOCAL} is not set\n{hint}"))
            })?;
            return rank::node(lab, number).ok_or_else(|| {
                let hint = "Hint: start ranks on machines that have nodes (`slipway ps LAB`; srun --nodelist)";
                Failure::new(Exit::NotFound, &format!("choose a node: lab `{}` has none here\n{hint}", lab.name))
            });
        };
        let node = labs::one(lab, word)?;
        if lab.has_here(node) {
            return Ok(node);
        }
        let machine = &lab.machines[lab.machine_of(node)].name;
        let hint = format!("Hint: start it there (srun --nodelist={machine}), or use `slipway exec`");
        Err(Failure::new(Exit::NotFound, &format!("enter node `{word}`: it is on machine {machine}\n{hint}")))
    }
}

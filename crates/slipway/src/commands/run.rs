//! `slipway run`

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use slipway_engine::job::{Ended, Line, Outcome, Stream};
use slipway_engine::lab::Running;
use slipway_image::Store;
use slipway_lab::model::{Job, Lab, Mpi};
use slipway_document::text::is_hidden;
use slipway_document::units::Seconds;
use slipway_measure::check::CheckedPath;
use slipway_study::run::{self, Plan, Ran};
use slipway_study::{Event, Events, Source, StudyError};

use crate::context::{self, Context, DryRun};
use crate::events::{Steps, Verify};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machines::Machines;
use crate::{labs, parts};

/// Run a program over the nodes of a lab: plain or MPI
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plain program runs on every node of --on at once. For an MPI program, the
implementation's own launcher runs in the first node and starts the others
through Slipway in place of ssh. Output appears at once, tagged by node where
there is more than one, and stays in the run's folder. The exit code is the
first failing program's. Ctrl-C, --timeout and any end of slipway itself end all
programs of the run, in the background too.

Prefer version 5 of MPICH (examples/mpich): with ranks that talk over TCP,
Debian 12's 4.0.2 hangs now and then.

Where LAB is a file whose lab is not up, the command brings it up for the run,
and takes it down afterwards.

`slipway play LAB SCENARIO -- PROGRAM` does the same, with the same options,
while a scenario changes conditions and ends nodes.

--verify writes its results to checks.json and checks.md in the folder.

Examples:
  slipway run lab.yaml                               the lab file's own job
  slipway run --mpi openmpi -n 8 demo -- hpcc
  slipway run --mpi mpich --on 'n1,n2' -- ./a.out    where one lab runs
  slipway run --on web demo -- nginx -t
  slipway run --verify --strict lab.yaml             exit code 5 where links are off")]
pub(crate) struct Args {
    /// Lab (name or file) [default: the only one that runs]
    lab: Option<String>,
    #[command(flatten)]
    machines: Machines,
    #[command(flatten)]
    program: Program,
    /// New folder for the programs' output [default: slipway-results/run-LAB-TIME]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    verify: Verify,
    /// Fail where a link misses its conditions, once the programs have ended well
    #[arg(long, requires = "verify")]
    strict: bool,
    #[command(flatten)]
    dry_run: DryRun,
}

/// A program to run over nodes, as written; or the lab file's own, with some of it changed.
#[derive(Debug, clap::Args)]
pub(super) struct Program {
    /// Launch as an MPI program, with this implementation: openmpi or mpich
    #[arg(long, value_name = "MPI", value_parser = mpi, requires = "argv")]
    mpi: Option<Mpi>,
    /// MPI ranks [default: the nodes' slots]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ranks: Option<u32>,
    /// Nodes: names, groups, patterns [default: the job's, or all]
    #[arg(long, value_name = "NODES")]
    on: Option<String>,
    /// Run in this folder of the nodes
    #[arg(short, long, value_name = "FOLDER")]
    workdir: Option<PathBuf>,
    /// Set a variable of the environment; without a value, with the caller's
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    env: Vec<String>,
    /// End the programs after this time
    #[arg(long, value_name = "TIME")]
    timeout: Option<Seconds>,
    /// The program and its arguments [default: the lab file's job]
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

fn mpi(word: &str) -> Result<Mpi, String> {
    serde_json::from_value(word.into()).map_err(|_| "choose openmpi or mpich".to_owned())
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        match self.lab.as_deref().filter(|word| labs::is_file(word)) {
            Some(file) => {
                let source = self.machines.choose(labs::source(Some(file.as_ref()))?)?;
                let lab = source.lab()?;
                if context.root.lab(&lab.name).exists() {
                    return self.in_lab(context, &Running::open(&context.root, &lab.name)?);
                }
                self.in_passing(context, &source, &parts::with_part(lab)?)
            }
            None => self.in_lab(context, &labs::running(&context.root, self.lab.as_deref())?),
        }
    }

    /// Brings the lab up, runs, takes it down whatever came of it.
    fn in_passing(&self, context: &Context, source: &Source, model: &Lab) -> Result<Exit, Failure> {
        let plan = self.plan(model)?;
        labs::warn(source, model);
        if self.dry_run.dry_run {
            source.check(&Store::open()?, model)?;
            return dry(context, model, &plan.job);
        }
        let machine = context.machine()?;
        self.launch(context, &plan.job, |events| run::file(&machine, source, model, &plan, events))
    }

    fn in_lab(&self, context: &Context, running: &Running) -> Result<Exit, Failure> {
        let plan = self.plan(&running.lab)?;
        if self.dry_run.dry_run {
            return dry(context, &running.lab, &plan.job);
        }
        self.launch(context, &plan.job, |events| run::on(running, &plan, events))
    }

    fn plan(&self, lab: &Lab) -> Result<Plan, Failure> {
        let job = self.program.job(lab)?;
        Ok(Plan { job, verify: self.verify.verify, output: context::output(self.out.as_deref()) })
    }

    fn launch(
        &self,
        context: &Context,
        job: &Job,
        run: impl FnOnce(&mut Events<'_>) -> Result<Ran, StudyError>,
    ) -> Result<Exit, Failure> {
        let tagged = is_tagged(job);
        let quiet = context.global.json;
        let mut steps = Steps::new(&context.global);
        let mut unheard = None;
        let ran = run(&mut |event| match event {
            Event::Line(line) if !quiet && unheard.is_none() => unheard = show(line, tagged).err(),
            event => steps.show(event),
        })?;
        let Ran { folder, checks, outcome, .. } = &ran;
        for note in &outcome.notes {
            tracing::warn!("{note}");
        }
        if !quiet && !context.global.quiet {
            eprintln!("{}", last_words(outcome, &folder.display().to_string()));
        }
        let strained = self.strict && !checks.iter().all(CheckedPath::is_as_asked);
        if quiet {
            context.answer(&ran, |_| String::new())?;
        }
        Ok(match ran.outcome.code {
            0 if strained => Exit::Strained,
            0 => Exit::Success,
            code => Exit::Program(code),
        })
    }
}

impl Program {
    /// True where the arguments name a program.
    pub(super) fn is_named(&self) -> bool {
        !self.argv.is_empty()
    }

    /// The lab's own job, or the one on the command line; what is said there comes before what the file says.
    pub(super) fn job(&self, lab: &Lab) -> Result<Job, Failure> {
        let mut job = match (&lab.job, self.argv.is_empty()) {
            (_, false) => Job {
                command: self.argv.clone(),
                mpi: self.mpi,
                ranks: None,
                nodes: lab.nodes.ids().collect(),
                timeout: None,
                workdir: None,
                env: BTreeMap::new(),
                figure: None,
            },
            (Some(job), true) => job.clone(),
            (None, true) => {
                return Err(Failure::usage(format!(
                    "run the job of lab `{}`: its file has none\nHint: add a `job:` to it, or give a program after `--`",
                    lab.name
                )));
            }
        };
        if self.ranks.is_some() && job.mpi.is_none() {
            return Err(Failure::usage(
                "start ranks of a plain program\nHint: add --mpi openmpi or --mpi mpich; leave -n out to run it once on every node",
            ));
        }
        if let Some(on) = &self.on {
            job.nodes = lab.select(&[on])?;
        }
        job.ranks = self.ranks.or(job.ranks);
        job.timeout = self.timeout.or(job.timeout);
        job.workdir = self.workdir.clone().or(job.workdir);
        job.env.extend(super::exec::environment(&self.env)?);
        Ok(job)
    }
}

/// Whether a job's lines begin with their nodes.
pub(super) fn is_tagged(job: &Job) -> bool {
    job.mpi.is_none() && job.nodes.len() > 1
}

fn dry(context: &Context, lab: &Lab, job: &Job) -> Result<Exit, Failure> {
    context.answer(job, |job| {
        let way = job
            .mpi
            .map_or_else(|| "on each of".to_owned(), |mpi| format!("with {} over", format!("{mpi:?}").to_lowercase()));
        format!("would run {} {way} {}\n", job.command.join(" "), labs::names(lab, &job.nodes).join(", "))
    })?;
    Ok(Exit::Success)
}

/// Passes a line on. On a terminal, control characters are made visible: what a node prints must not steer it.
pub(super) fn show(line: Line<'_>, tagged: bool) -> io::Result<()> {
    let to_terminal = match line.stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    };
    let mut text = Vec::new();
    if tagged {
        text.extend_from_slice(line.node.as_bytes());
        text.extend_from_slice(b" | ");
    }
    if to_terminal {
        let shown = String::from_utf8_lossy(line.bytes);
        let shown = shown.chars().map(|c| if is_hidden(c) && c != '\t' { '\u{fffd}' } else { c });
        text.extend_from_slice(shown.collect::<String>().as_bytes());
    } else {
        text.extend_from_slice(line.bytes);
    }
    text.push(b'\n');
    match line.stream {
        Stream::Stdout => io::stdout().write_all(&text),
        Stream::Stderr => io::stderr().write_all(&text),
    }
}

pub(super) fn last_words(outcome: &Outcome, folder: &str) -> String {
    let how = match outcome.ended {
        Ended::Itself => format!("ended with code {}", outcome.code),
        Ended::Timeout => "ended: its time was over".to_owned(),
        Ended::Signal(number) => format!("ended by signal {number}"),
    };
    let failed: Vec<String> =
        outcome.programs.iter().filter(|ran| ran.code != 0).map(|ran| format!("{} ({})", ran.node, ran.code)).collect();
    let failed = if failed.is_empty() { String::new() } else { format!("; failed: {}", failed.join(", ")) };
    format!("the job {how} after {:.2} s{failed}; output in {folder}", outcome.seconds)
}

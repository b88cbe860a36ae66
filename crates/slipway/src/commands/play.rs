//! `slipway play`

mod show;

use std::convert::Infallible;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use slipway_engine::job::{Ended, Line as Printed, Outcome};
use slipway_engine::lab::Running;
use slipway_engine::scenario::{Ends, JobFailure};
use slipway_image::Store;
use slipway_lab::model::{Job, Lab};
use slipway_measure::check::CheckedPath;
use slipway_measure::play::{Line, Summary};
use slipway_study::play::{self, Done, Plan};
use slipway_study::script::{Script, Which};
use slipway_study::{Event, Events, Source, StudyError};

use super::run::{self, Program};
use crate::context::{self, Context};
use crate::events::{Steps, Verify, warn_of_events};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;
use show::Show;

/// Play a scenario on a lab: change conditions and end nodes on time
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway play [OPTIONS] [LAB] [SCENARIO] [-- PROGRAM...]",
    after_help = "\
The scenario is the lab file's own, or has a file of its own. The log in
events.jsonl of the run's folder says when each event was due and when it took
effect; timeline.html there shows it. With a program after `--`, or --job for
the lab file's own, the scenario plays while that runs.

At the end the command takes back the scenario's changes; nodes that it ended
stay as they are. Ctrl-C ends it early. `slipway pause` stops its clock.

Where LAB is a file whose lab is not up, the command brings it up for the
scenario, and takes it down afterwards.

Examples:
  slipway play --plan demo.yaml                  the schedule; nothing is touched
  slipway play demo churn.yaml --seed 7
  slipway play demo churn.yaml --strict -- ./program
  slipway play demo --job                        the file's scenario beside its job
  slipway play demo --resume                     after the player was killed"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), and scenario file [default: the lab file's own scenario]
    #[arg(value_names = ["LAB", "SCENARIO"], num_args = 0..=2)]
    words: Vec<String>,
    /// Draw with this seed instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the schedule, and play nothing
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["resume", "job", "verify", "argv"])]
    plan: bool,
    /// Play while the lab file's own job runs
    #[arg(long)]
    job: bool,
    /// End with the job, with the scenario, or with the later of both [default: with the job, if there is one]
    #[arg(long, value_name = "WHEN")]
    until: Option<Until>,
    /// Keep the scenario's conditions at its end
    #[arg(long)]
    keep: bool,
    /// Fail where the machine could not keep up (events late, processors saturated), or a link misses its conditions
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    verify: Verify,
    /// Continue a scenario whose player was killed
    #[arg(long, conflicts_with_all = ["seed", "job", "until", "keep", "verify", "out", "argv"])]
    resume: bool,
    /// New folder for the log and the programs' output [default: slipway-results/play-LAB-TIME]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Make the report again from the log in this folder, and play nothing
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["plan", "resume", "seed", "job", "until", "keep", "verify", "out", "argv"])]
    report: Option<PathBuf>,
    #[command(flatten)]
    program: Program,
}

/// The end of a playing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    /// With the job.
    Job,
    /// With the scenario; the job is ended.
    Scenario,
    /// With the later of the two.
    Both,
}

/// A scenario with what it is from.
struct Part {
    lab: Lab,
    /// The lab's file, where it was named and its lab is not up.
    to_bring_up: Option<Source>,
    script: Script,
}

#[derive(Serialize)]
struct Played {
    lab: String,
    folder: PathBuf,
    why: String,
    #[serde(flatten)]
    summary: Summary,
    job: Option<Outcome>,
    log: Vec<Line>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(folder) = &self.report {
            play::draw(folder)?;
            return Ok(Exit::Success);
        }
        if self.resume {
            return self.resume(context);
        }
        let part = self.part(context)?;
        if let Some(source) = &part.to_bring_up {
            labs::warn(source, &part.lab);
        }
        if self.plan {
            if let Some(source) = &part.to_bring_up {
                source.check(&Store::open()?, &part.lab)?;
            }
            context.answer(&part.script.schedule, |schedule| schedule.table(&part.lab).to_string())?;
            return Ok(Exit::Success);
        }
        labs::need_privilege()?;
        let job = (self.job || self.program.is_named()).then(|| self.program.job(&part.lab)).transpose()?;
        if job.is_none() && self.until.is_some_and(|until| until != Until::Scenario) {
            return Err(Failure::usage(
                "play until the job has ended: there is none\nHint: name a program after `--`, or add --job for the lab file's own",
            ));
        }
        let plan = self.plan(&part, job);
        let Some(source) = &part.to_bring_up else {
            let running = Running::open(&context.root, &part.lab.name)?;
            return self.perform(context, &plan, |lines, events| play::on(&context.root, running, &plan, lines, events));
        };
        let machine = context.machine()?;
        self.perform(context, &plan, |lines, events| play::file(&machine, source, &part.lab, &plan, lines, events))
    }

    fn plan(&self, part: &Part, job: Option<Job>) -> Plan {
        let ends = match (self.until, &job) {
            (Some(Until::Scenario), _) | (None, None) => Ends::WithScenario,
            (Some(Until::Both), _) => Ends::WithBoth,
            (Some(Until::Job) | None, _) => Ends::WithJob,
        };
        Plan {
            script: part.script.clone(),
            job,
            ends,
            keep: self.keep,
            verify: self.verify.verify,
            output: context::output(self.out.as_deref()),
            command: context::words(),
        }
    }

    /// The scenario and its lab, without a look at running labs where a file says all.
    fn part(&self, context: &Context) -> Result<Part, Failure> {
        let (lab, scenario) = match self.words.as_slice() {
            [] => (None, None),
            [word] if labs::is_file(word) && !labs::source(Some(word.as_ref()))?.has_nodes() => (None, Some(word)),
            [lab, rest @ ..] => (Some(lab), rest.first()),
        };
        let from_file =
            lab.filter(|word| labs::is_file(word)).map(|file| labs::source(Some(file.as_ref()))).transpose()?;
        let (lab, to_bring_up) = match from_file {
            Some(source) => {
                let written = source.lab()?;
                let is_up = context.root.lab(&written.name).exists() && !self.plan;
                if is_up {
                    let running = labs::running(&context.root, Some(&written.name))?;
                    same_places(&running.lab, &written)?;
                }
                (written, (!is_up).then_some(source))
            }
            None => (labs::running(&context.root, lab.map(String::as_str))?.lab, None),
        };
        let which = scenario.map_or(Which::OfLab, |file| Which::File(file.clone()));
        let script = Script::plan(&lab, &which, self.seed)?;
        warn_of_events(&lab, &script.shown, &script.schedule);
        Ok(Part { lab, to_bring_up, script })
    }

    fn perform(
        &self,
        context: &Context,
        plan: &Plan,
        act: impl FnOnce(&mut play::Lines<'_>, &mut Events<'_>) -> Result<Done, StudyError>,
    ) -> Result<Exit, Failure> {
        let quiet = context.global.json;
        let tagged = plan.job.as_ref().is_some_and(run::is_tagged);
        let mut unheard = None;
        let mut line = |line: Printed<'_>| {
            if !quiet && unheard.is_none() {
                unheard = run::show(line, tagged).err();
            }
        };
        let mut steps = Steps::new(&context.global);
        let mut show = Show::new(&context.global, plan.job.is_some());
        let done = act(&mut line, &mut |event| match event {
            Event::Played(line) => show.line(line),
            event => steps.show(event),
        });
        show.finish();
        self.answer(context, done?, show.into_log())
    }

    fn resume(&self, context: &Context) -> Result<Exit, Failure> {
        let running = labs::running(&context.root, self.words.first().map(String::as_str))?;
        let mut show = Show::new(&context.global, false);
        let done = play::resume(&context.root, running, &mut |event| {
            if let Event::Played(line) = event {
                show.line(line);
            }
        });
        show.finish();
        self.answer(context, done?, show.into_log())
    }

    fn answer(&self, context: &Context, done: Done, log: Vec<Line>) -> Result<Exit, Failure> {
        let Done { lab, folder, checks, played, job, signal } = done;
        for alarm in &played.summary.alarms {
            tracing::warn!("{alarm}");
        }
        let job = match job.transpose() {
            Err(JobFailure { account, code }) => return Err(Failure::new(Exit::Program(code), &account)),
            Ok(job) => job,
        };
        let off = !checks.iter().all(CheckedPath::is_as_asked);
        if !context.global.json && !context.global.quiet {
            if let Some(job) = &job {
                eprintln!("{}", run::last_words(job, &folder.display().to_string()));
            }
            eprintln!("{}", show::last_words(&played, &folder));
        }
        let exit = match (signal, &job) {
            (Some(signal), _) => Exit::Program(signal.saturating_add(128)),
            // Ended by the scenario's end, as was asked.
            (None, Some(job)) if job.code != 0 && !matches!(job.ended, Ended::Signal(_)) => Exit::Program(job.code),
            _ if played.stopped || played.summary.failed > 0 => Exit::Failed,
            _ if self.strict && (off || !played.summary.alarms.is_empty()) => Exit::Strained,
            _ => Exit::Success,
        };
        if context.global.json {
            let (why, summary) = (played.why, played.summary);
            context.answer(&Played { lab, folder, why, summary, job, log }, |_| String::new())?;
        }
        Ok(exit)
    }
}

/// A scenario, as an option names it whose value may be left out.
#[expect(clippy::unnecessary_wraps, reason = "clap's form of a parser")]
pub(super) fn which(word: &str) -> Result<Which, Infallible> {
    Ok(if word.is_empty() { Which::OfLab } else { Which::File(word.to_owned()) })
}

/// A schedule names nodes by number, so the file must still mean the lab that runs.
fn same_places(running: &Lab, written: &Lab) -> Result<(), Failure> {
    let places = |lab: &Lab| -> Vec<(String, usize)> {
        lab.nodes.iter().map(|node| (node.name.clone(), node.interfaces.len())).collect()
    };
    if places(running) == places(written) {
        return Ok(());
    }
    let name = &written.name;
    Err(Failure::usage(format!(
        "play on lab `{name}`: its file now has other nodes than the running lab\nHint: `slipway down {name}`, then play again"
    )))
}

//! `slipway compare`

use std::fmt::Write as _;
use std::path::PathBuf;

use slipway_lab::id::NodeId;
use slipway_lab::TuneChoice;
use slipway_lab::model::{DriverWord, Figure, Lab, Pick, ProfileWord};
use slipway_document::units::Seconds;
use slipway_measure::probe::{Iperf3, Probe};
use slipway_measure::record::Measurement;
use slipway_measure::summary::{HEADINGS, Summary};
use slipway_study::compare::{self, Client, Done, Plan, Setting, Task};
use slipway_study::script::Which;
use slipway_study::Event;

use crate::context::{self, Context, DryRun};
use crate::events::{Steps, say, warn_of_events};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machines::Machines;
use crate::{labs, parts, view};

/// Measure the cost of each network or condition, side by side
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command brings the lab up once per driver, as LAB-DRIVER. Each round measures every job under every driver, in an
order drawn from the seed. Rounds follow each other until every driver has --repeat of them beyond the warm-up. Ratios
are to driver host (to the first one where host is not among them), paired by round, with bootstrap 95 % intervals.

The command first measures links with conditions, under each driver and setting; the report has the result. With
--scenario it plays the scenario beside each job, and resets the lab before the next.

Jobs:
  iperf3   TCP throughput, one stream and --streams, both ways
  netpipe  TCP latency and throughput over message sizes (NPtcp)
  ping     round-trip time
  job      the lab file's own job, MPI or plain; its figure, or its wall time

Examples:
  slipway compare lab.yaml
  slipway compare lab.yaml --drivers host,bridge,vxlan --jobs iperf3,job --repeat 10
  slipway compare lab.yaml --regex 'sec: ([0-9.]+)' --unit s -- openssl speed -seconds 1 md5
  slipway compare lab.yaml --drivers bridge --jobs job --under 'as it is:' --under 'far: delay=20ms loss=0.1%'
  slipway compare lab.yaml --drivers bridge --tune none,dtn --under 'far: delay=20ms'
  slipway compare lab.yaml --drivers bridge,vxlan --jobs job --scenario churn.yaml
  slipway compare lab.yaml --machines a,b --drivers bridge,macvlan,fast
  slipway compare lab.yaml --jobs ping --json | jq .figures")]
pub(crate) struct Args {
    /// Lab file [default: slipway.yaml or lab.yaml in the current folder]
    file: Option<PathBuf>,
    /// Drivers to compare
    #[arg(long, value_delimiter = ',', value_name = "DRIVER,…", default_value = "host,bridge,ovs,macvlan,vxlan")]
    drivers: Vec<DriverWord>,
    /// Jobs to measure [default: iperf3, netpipe, ping, and the lab's job where it has one]
    #[arg(long, value_delimiter = ',', value_name = "JOB,…")]
    jobs: Vec<String>,
    /// Rounds that count
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Rounds before them that do not count
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: u32,
    /// Parallel streams of iperf3's second test
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: u16,
    /// Duration of each test of iperf3
    #[arg(long, default_value = "2s", value_name = "TIME")]
    time: Seconds,
    /// End each program after this time
    #[arg(long, default_value = "10min", value_name = "TIME")]
    timeout: Seconds,
    /// Put all links and nodes under these conditions, as in `slipway set`; repeat it to compare several
    #[arg(long, value_name = "[NAME:] KEY=VALUE…")]
    under: Vec<Setting>,
    /// Tune all virtual hosts so: `none`, a profile (`dtn`, `hpc`, `server`), or `file` for as the lab file says; name several to compare them
    #[arg(long, value_delimiter = ',', value_name = "WORD,…", default_value = "file", value_parser = tune)]
    tune: Vec<TuneChoice>,
    /// Play a scenario beside every job, each time from its beginning: FILE's, or the lab file's own without one
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "", value_parser = super::play::which)]
    scenario: Option<Which>,
    /// First measure whether links meet their conditions, for about TIME at most under each; 0s: do not
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_value = "10s", default_missing_value = "10s")]
    verify: Seconds,
    /// Fail where a link misses its conditions, or the machine could not keep up with the scenario
    #[arg(long)]
    strict: bool,
    /// The node that measures; name several to compare them [default: the first]
    #[arg(long, value_delimiter = ',', value_name = "NODE,…")]
    client: Vec<String>,
    /// The node that serves [default: the first on another host, else the last]
    #[arg(long, value_name = "NODE")]
    server: Option<String>,
    /// Seed of the order within rounds [default: the lab's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// New folder for records.jsonl, summary.json and report.html [default: slipway-results/compare-LAB-TIME]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    machines: Machines,
    #[command(flatten)]
    figure: FigureArgs,
    #[command(flatten)]
    dry_run: DryRun,
    /// A program to measure, run on the client node
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// The figure of a program given on the command line.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The figure of PROGRAM (its wall time where none is given)")]
struct FigureArgs {
    /// The number in its standard output: first group of the first match
    #[arg(long, value_name = "PATTERN", conflicts_with = "json_path", requires = "argv")]
    regex: Option<String>,
    /// The one number that this JSON path (RFC 9535) selects
    #[arg(long, value_name = "PATH", requires = "argv")]
    json_path: Option<String>,
    /// Name of the figure in reports
    #[arg(long, value_name = "NAME", requires = "argv")]
    name: Option<String>,
    /// Unit of the figure
    #[arg(long, value_name = "UNIT", requires = "argv")]
    unit: Option<String>,
    /// A greater value is better
    #[arg(long, requires = "argv")]
    higher_is_better: bool,
}

impl FigureArgs {
    fn figure(&self) -> Figure {
        let pick = match (&self.regex, &self.json_path) {
            (Some(pattern), _) => Pick::Regex(pattern.clone()),
            (_, Some(path)) => Pick::JsonPath(path.clone()),
            (None, None) => Pick::WallTime,
        };
        let (name, unit) = if pick == Pick::WallTime { ("wall time", "s") } else { ("figure", "") };
        Figure {
            name: self.name.clone().unwrap_or_else(|| name.to_owned()),
            unit: self.unit.clone().unwrap_or_else(|| unit.to_owned()),
            higher_is_better: self.higher_is_better,
            pick,
        }
    }
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let source = self.machines.choose(labs::source(self.file.as_deref())?)?;
        labs::need_privilege()?;
        let lab = parts::with_part(source.lab()?)?;
        let jobs = self.tasks(&lab)?;
        let plan = Plan {
            clients: self.clients(&lab)?,
            settings: self.settings()?,
            server: self.server.as_deref().map(|word| labs::one(&lab, word)).transpose()?,
            source,
            name: lab.name.clone(),
            drivers: distinct(&self.drivers),
            tunes: distinct(&self.tune),
            tasks: jobs,
            repeat: self.repeat,
            warm_up: self.warm_up,
            seed: self.seed.unwrap_or(lab.seed),
            timeout: self.timeout.duration(),
            scenario: self.scenario,
            verify: self.verify,
            output: context::output(self.out.as_deref()),
            command: context::words(),
        };
        labs::warn(&plan.source, &lab);
        let machine = context.machine()?;
        plan.source.check_for_any_driver(&machine.images, &lab)?;
        if self.dry_run.dry_run {
            context.answer(&plan.describe(), |steps| {
                format!("would measure, in each of {} rounds:\n{}", self.warm_up + self.repeat, steps.join("\n") + "\n")
            })?;
            return Ok(Exit::Success);
        }
        let mut steps = Steps::new(&context.global);
        let done = compare::run(&machine, &plan, &mut |event| show(context, &mut steps, event))?;
        context.answer(&done.summary, |summary| text(summary, &done.folder.display().to_string()))?;
        Ok(match done {
            Done { failed: true, .. } => Exit::Failed,
            Done { strained: true, .. } if self.strict => Exit::Strained,
            Done { .. } => Exit::Success,
        })
    }

    fn clients(&self, lab: &Lab) -> Result<Vec<Client>, Failure> {
        let client = |node: NodeId| Client { node, name: lab.nodes[node].name.clone() };
        let clients: Vec<Client> = match self.client.as_slice() {
            [] => vec![client(lab.nodes_here().first().copied().unwrap_or_default())],
            words => words.iter().map(|word| labs::one(lab, word).map(client)).collect::<Result<_, _>>()?,
        };
        // The time that the way to another machine takes is not the program's.
        if let Some(away) = clients.iter().find(|client| !lab.has_here(client.node)) {
            let machine = &lab.machines[lab.machine_of(away.node)].name;
            return Err(Failure::usage(format!(
                "measure from node {}: it is on machine {machine}\nHint: give the command there, or choose a --client of this machine",
                away.name
            )));
        }
        Ok(clients)
    }

    fn settings(&self) -> Result<Vec<Setting>, Failure> {
        if self.under.is_empty() {
            return Ok(vec![Setting::default()]);
        }
        if self.drivers.contains(&DriverWord::Host) && self.under.iter().any(Setting::is_of_links) {
            return Err(Failure::usage(
                "compare under conditions of links: driver host has none\nHint: leave it out, as in --drivers bridge,vxlan",
            ));
        }
        let twice = self
            .under
            .iter()
            .enumerate()
            .find(|(at, one)| self.under[..*at].iter().any(|other| other.name == one.name));
        match twice {
            Some((_, one)) => Err(Failure::usage(format!(
                "compare under `{}`: this name is there twice\nHint: give each --under a name of its own, as in --under 'far: delay=20ms'",
                one.name
            ))),
            None => Ok(self.under.clone()),
        }
    }

    fn tasks(&self, lab: &Lab) -> Result<Vec<Task>, Failure> {
        let mut names = self.jobs.clone();
        if names.is_empty() && self.argv.is_empty() {
            names.extend(Probe::BUILTIN.map(str::to_owned));
            names.extend(lab.job.as_ref().map(|_| "job".to_owned()));
        }
        let mut tasks = Vec::new();
        for name in &names {
            tasks.push(match (name.as_str(), &lab.job) {
                ("iperf3", _) => Task::Probe(Probe::Iperf3(self.iperf3())),
                ("job", Some(job)) => Task::Job(Probe::of_job(job).map_err(|error| Failure::usage(&error))?),
                ("job", None) => {
                    return Err(Failure::usage("measure the lab's job: the lab file has none\nHint: add a `job:`, or give a program after `--`"));
                }
                (other, _) => match Probe::builtin(other) {
                    Some(probe) => Task::Probe(probe),
                    None => {
                        return Err(Failure::usage(format!(
                            "measure `{other}`: there is no such job\nHint: choose {} or job; or give a program after `--`",
                            Probe::BUILTIN.join(", ")
                        )));
                    }
                },
            });
        }
        if !self.argv.is_empty() {
            let probe = Probe::of_command(&self.argv, &self.figure.figure()).map_err(|error| Failure::usage(&error))?;
            tasks.push(Task::Probe(probe));
        }
        Ok(tasks)
    }

    fn iperf3(&self) -> Iperf3 {
        let mut streams = vec![1, self.streams];
        streams.dedup();
        // iperf3 takes whole seconds, at least one.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
        let seconds = self.time.0.ceil().clamp(1.0, 3600.0) as u16;
        Iperf3 { streams, seconds, ..Iperf3::default() }
    }
}

fn show(context: &Context, steps: &mut Steps<'_>, event: Event<'_>) {
    let say = |news: String| say(&context.global, &news);
    match event {
        Event::ScenarioPlanned { lab, scenario, schedule } => warn_of_events(lab, scenario, schedule),
        Event::LabStarting { lab } => say(format!("bringing up {lab}")),
        Event::LabProgress(_) => {}
        Event::DriverLeftOut { driver, why } => say(format!("leaving out driver {driver}: {why}")),
        Event::CheckFailed { under, why } => say(format!("verifying links under {under}: failed to {why}")),
        Event::Measured { rounds, measurement: Measurement { round, job, driver, seconds, error, .. } } => {
            let news = error.as_ref().map_or_else(|| format!("{seconds:.1} s"), |why| format!("failed to {why}"));
            say(format!("round {round}/{rounds}: {job} under {driver}: {news}"));
        }
        other => steps.show(other),
    }
}

fn distinct<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut seen = Vec::new();
    for &one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// A word of `--tune`.
fn tune(word: &str) -> Result<TuneChoice, String> {
    let profiles = ProfileWord::ALL.map(TuneChoice::Profile);
    let mut all = [TuneChoice::File, TuneChoice::None].into_iter().chain(profiles);
    let found = all.find(|&choice| compare::tune_word(choice) == word);
    found.ok_or_else(|| "it is no word for settings\nHint: write `none`, `file`, `dtn`, `hpc` or `server`".to_owned())
}

fn text(summary: &Summary, folder: &str) -> String {
    let mut text = String::new();
    for figure in summary.figures.iter().filter(|figure| figure.headline) {
        let table = view::table(HEADINGS, figure.rows.iter().map(|row| figure.cells(row, &summary.baseline)));
        let unit = if figure.unit.is_empty() { String::new() } else { format!(" ({})", figure.unit) };
        let _ = writeln!(text, "{}: {}{unit}\n{table}", figure.job, figure.name);
    }
    let _ = writeln!(text, "report: {folder}/report.html\nrecords: {folder}/records.jsonl");
    text
}

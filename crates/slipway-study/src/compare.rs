//! Comparing: the same lab under each driver and each setting, the same jobs in each, round after round.
//!
//! All labs are up at once, and idle except for the measured one. So no measurement includes bringing a lab up or down,
//! and every driver meets the same minutes of the machine's life.

mod setting;
mod turn;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use slipway_document::units::Seconds;
use slipway_engine::exec::Launcher;
use slipway_engine::lab::Running;
use slipway_engine::probe::Between;
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverWord, Lab};
use slipway_lab::{Overrides, TuneChoice};
use slipway_measure::check::CheckedPath;
use slipway_measure::play::{self, Line};
use slipway_measure::probe::Probe;
use slipway_measure::record::{Begin, Job, Measurement};
use slipway_measure::summary::Summary;
use slipway_sys::signals::Taken;

use crate::passing::{self, Held};
use crate::rounds::{self, Interrupted, Stop};
use crate::script::{Script, Which};
use crate::{Event, Events, Machine, Output, Source, StudyError, check, output};
pub use setting::Setting;
use turn::Turn;

/// The subjects of a comparison, and its settings.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The lab's file, read once for every driver.
    pub source: Source,
    /// The lab's own name.
    pub name: String,
    /// The drivers, each with a lab of its own.
    pub drivers: Vec<DriverWord>,
    /// Kernel settings of the hosts; at least one choice. Each driver has a lab of its own for each.
    pub tunes: Vec<TuneChoice>,
    /// The conditions of each turn; at least one set, which may be empty.
    pub settings: Vec<Setting>,
    /// The measurements of each turn.
    pub tasks: Vec<Task>,
    /// Rounds that count.
    pub repeat: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// The seed of the order within rounds.
    pub seed: u64,
    /// For each program.
    pub timeout: Duration,
    /// The nodes that measure, each in turn.
    pub clients: Vec<Client>,
    /// The node that serves; the first on another host where `None`, else the last.
    pub server: Option<NodeId>,
    /// The scenario that plays beside every job.
    pub scenario: Option<Which>,
    /// How long it may be measured, at most, whether links are as asked, under each driver and setting.
    pub verify: Seconds,
    /// The folder for the records and the report.
    pub output: Output,
    /// The words of the command that compares, for the records.
    pub command: Vec<String>,
}

/// A node that measures.
#[derive(Debug, Clone)]
pub struct Client {
    /// The node.
    pub node: NodeId,
    /// Name.
    pub name: String,
}

/// Something to measure.
#[derive(Debug, Clone)]
pub enum Task {
    /// Between the two nodes.
    Probe(Probe),
    /// The lab's own job, over its nodes.
    Job(Probe),
}

/// The result of a comparison.
#[derive(Debug)]
pub struct Done {
    /// The figures, and the links that were measured before.
    pub summary: Summary,
    /// The folder with `records.jsonl`, `summary.json` and `report.html`.
    pub folder: PathBuf,
    /// True where something could not be measured, or an event of the scenario failed.
    pub failed: bool,
    /// True where a link was not as asked, or the machine could not keep up with the scenario.
    pub strained: bool,
}

/// One of the things compared.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    /// Index of its lab, in the order of [`Plan::sites`].
    site: usize,
    /// The conditions of the lab.
    setting: &'a Setting,
    client: &'a Client,
}

impl Task {
    fn probe(&self) -> &Probe {
        match self {
            Self::Probe(probe) | Self::Job(probe) => probe,
        }
    }
}

impl Plan {
    /// Describes the measurements of a round.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let each = |way: String| self.tasks.iter().map(move |task| format!("  {} under {way}", task.probe().name()));
        self.ways().iter().map(|way| self.label(way)).flat_map(each).collect()
    }

    /// The labs: each driver under each choice of kernel settings.
    fn sites(&self) -> Vec<(DriverWord, TuneChoice)> {
        let of = |&driver: &DriverWord| self.tunes.iter().map(move |&tune| (driver, tune));
        self.drivers.iter().flat_map(of).collect()
    }

    /// All that is compared, each with the index of its lab.
    fn ways(&self) -> Vec<Way<'_>> {
        let settings =
            (0..self.sites().len()).flat_map(|site| self.settings.iter().map(move |setting| (site, setting)));
        settings
            .flat_map(|(site, setting)| self.clients.iter().map(move |client| Way { site, setting, client }))
            .collect()
    }

    /// The name of a way in records and reports: the parts that differ between ways.
    fn label(&self, way: &Way<'_>) -> String {
        let mut words = vec![self.place(way.site, way.setting)];
        if self.clients.len() > 1 {
            words.push(format!("from {}", way.client.name));
        }
        words.retain(|word| !word.is_empty());
        words.join(", ")
    }

    /// The same of a lab under a setting, whoever measures in it.
    fn place(&self, site: usize, setting: &Setting) -> String {
        let (driver, tune) = self.sites()[site];
        let mut words = Vec::new();
        if self.drivers.len() > 1 {
            words.push(driver.to_string());
        }
        if self.tunes.len() > 1 {
            words.push(format!("tune {}", tune_word(tune)));
        }
        if self.settings.len() > 1 {
            words.push(setting.name.clone());
        }
        if words.is_empty() && self.clients.len() == 1 {
            words.push(driver.to_string());
        }
        words.join(", ")
    }

    fn lab(&self, driver: DriverWord, tune: TuneChoice) -> Result<Lab, StudyError> {
        let mut name = format!("{}-{driver}", self.name);
        if self.tunes.len() > 1 {
            name = format!("{name}-{}", tune_word(tune));
        }
        self.source.with(&Overrides { driver: Some(driver), name: Some(name), tune: Some(tune), machines: None })
    }

    fn server(&self, lab: &Lab, client: NodeId) -> NodeId {
        let elsewhere = || lab.nodes.position(|node| node.host != lab.nodes[client].host);
        self.server.or_else(elsewhere).unwrap_or(NodeId(lab.nodes.len() - 1))
    }
}

/// The word for a choice of kernel settings, on the command line and in reports.
#[must_use]
pub fn tune_word(choice: TuneChoice) -> String {
    match choice {
        TuneChoice::File => "file".to_owned(),
        TuneChoice::None => "none".to_owned(),
        TuneChoice::Profile(word) => word.to_string(),
    }
}

/// Compares. Every lab that was brought up goes down again, also after an error. `SIGINT` and `SIGTERM` end the comparison.
///
/// # Errors
/// When no lab comes up, or the records cannot be written, or a signal came. A measurement that fails is recorded, and the
/// comparison goes on.
pub fn run(machine: &Machine, plan: &Plan, events: &mut Events<'_>) -> Result<Done, StudyError> {
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(StudyError::io("take signals"))?;
    let labs: Vec<(DriverWord, Lab, Option<Script>)> = plan
        .sites()
        .into_iter()
        .map(|(driver, tune)| {
            let lab = plan.lab(driver, tune)?;
            let script = plan.scenario.as_ref().map(|which| Script::plan(&lab, which, None)).transpose()?;
            if let Some(Script { schedule, shown, .. }) = &script {
                events(Event::ScenarioPlanned { lab: &lab, scenario: shown, schedule });
            }
            Ok((driver, lab, script))
        })
        .collect::<Result<_, StudyError>>()?;
    let folder = plan.output.make("compare", &plan.name)?;
    let mut passing = Vec::new();
    let outcome = bring_up(machine, plan, labs, &mut passing, events).and_then(|sites| {
        let launcher = Launcher::new().map_err(StudyError::io("prepare to start programs"))?;
        let turn = Turn { machine, plan, folder: &folder, launcher: &launcher, interrupt: &interrupt };
        measure(turn, &sites, events)
    });
    let downs: Vec<_> = passing.into_iter().map(Held::down).collect();
    let outcome = outcome?;
    downs.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(outcome)
}

/// A lab that is up, or why it is not. A driver that this machine cannot run is said so in the report; the others go on.
struct Site {
    lab: Result<Running, String>,
    /// The scenario that plays beside every job on it, and the first line of its log.
    script: Option<(Script, play::Begin)>,
}

/// `passing` gets those that came up: a lab of the same name that ran before is not this comparison's to end.
fn bring_up(
    machine: &Machine,
    plan: &Plan,
    labs: Vec<(DriverWord, Lab, Option<Script>)>,
    passing: &mut Vec<Held>,
    events: &mut Events<'_>,
) -> Result<Vec<Site>, StudyError> {
    let mut sites = Vec::new();
    for (driver, lab, script) in labs {
        let up = passing::up(machine, &plan.source, &lab, events);
        let up = up.map(|(running, one)| {
            passing.push(one);
            running
        });
        let up = up.map_err(|error| error.to_string());
        if let Err(why) = &up {
            events(Event::DriverLeftOut { driver, why });
        }
        let script = script.map(|script| script.begin(&lab, &plan.command).map(|begin| (script, begin))).transpose()?;
        sites.push(Site { lab: up, script });
    }
    if sites.iter().all(|site| site.lab.is_err()) {
        let why = sites.into_iter().find_map(|site| site.lab.err()).unwrap_or_default();
        return Err(StudyError::NoDriver(why));
    }
    Ok(sites)
}

fn measure(turn: Turn<'_>, sites: &[Site], events: &mut Events<'_>) -> Result<Done, StudyError> {
    let Turn { plan, folder, .. } = turn;
    let checks = check(plan, sites, events)?;
    let begin = begin(plan, sites, checks)?;
    let ways = plan.ways();
    let mut take = |at: rounds::Turn| {
        let (way, task) = (&ways[at.way], &plan.tasks[at.task]);
        let site = &sites[way.site];
        // One that could not be brought up is recorded once.
        if site.lab.is_err() && at.round > 1 {
            return Ok(None);
        }
        let started = Instant::now();
        let mut measurement = blank(at.round, at.warm_up, plan.label(way), site, task);
        let outcome = turn.take(at.number, way, site, task, &mut measurement.played);
        measurement.seconds = started.elapsed().as_secs_f64();
        match outcome {
            Ok(samples) => measurement.samples = samples,
            Err(Stop::Interrupted(signal)) => return Err(Interrupted(signal)),
            Err(Stop::Failed(why)) => measurement.error = Some(why),
        }
        Ok(Some(measurement))
    };
    let failed = rounds::take(folder, &begin, (plan.tasks.len(), ways.len()), &mut take, events)?;
    finish(folder, failed)
}

/// Measures whether links are as asked, under each driver and setting in turn, before anything is compared.
fn check(plan: &Plan, sites: &[Site], events: &mut Events<'_>) -> Result<Vec<CheckedPath>, StudyError> {
    let mut checks = Vec::new();
    if plan.verify.0 <= 0.0 {
        return Ok(checks);
    }
    for (at, site) in sites.iter().enumerate() {
        let Ok(lab) = &site.lab else { continue };
        for setting in &plan.settings {
            let under = plan.place(at, setting);
            match setting.hold(lab, || check::under(lab, plan.verify, &under, events)) {
                Ok(checked) => checks.extend(checked?),
                // Every turn under it will fail to do so too, and is recorded.
                Err(error) => events(Event::CheckFailed { under: &under, why: &error.to_string() }),
            }
        }
    }
    Ok(checks)
}

fn finish(folder: &Path, failed: bool) -> Result<Done, StudyError> {
    let (comparison, summary) = rounds::report(folder)?;
    let ends = |measurement: &Measurement| {
        measurement
            .played
            .iter()
            .find_map(|line| if let Line::End(end) = line { Some(end.summary.clone()) } else { None })
    };
    let played: Vec<play::Summary> =
        comparison.measurements.iter().filter(|one| !one.warm_up).filter_map(ends).collect();
    Ok(Done {
        strained: !summary.checks.iter().all(CheckedPath::is_as_asked)
            || played.iter().any(|played| !played.alarms.is_empty()),
        failed: failed || played.iter().any(|played| played.failed > 0),
        summary,
        folder: folder.to_owned(),
    })
}

fn begin(plan: &Plan, sites: &[Site], checks: Vec<CheckedPath>) -> Result<Begin, StudyError> {
    let server = |lab: &Running| Between::address_of(&lab.lab, plan.server(&lab.lab, plan.clients[0].node));
    let address = sites.iter().find_map(|site| site.lab.as_ref().ok()).map(server);
    let jobs = plan.tasks.iter().map(|task| {
        let steps = address.map(|address| task.probe().steps(address)).unwrap_or_default();
        let words = steps.iter().flat_map(|step| step.server.iter().map(|server| &server.argv).chain([&step.client]));
        Job { name: task.probe().name().to_owned(), commands: words.map(|argv| argv.join(" ")).collect() }
    });
    Ok(Begin {
        lab: plan.name.clone(),
        lab_sha256: plan.source.sha256(),
        drivers: plan.ways().iter().map(|way| plan.label(way)).collect(),
        jobs: jobs.collect(),
        repeat: plan.repeat,
        warm_up: plan.warm_up,
        seed: plan.seed,
        command: plan.command.clone(),
        checks,
        scenario: sites.iter().find_map(|site| {
            let (script, _) = site.script.as_ref()?;
            Some(script.record(&site.lab.as_ref().ok()?.lab))
        }),
        ..rounds::begin()?
    })
}

fn blank(round: u32, warm_up: bool, label: String, site: &Site, task: &Task) -> Measurement {
    let mechanism = match &site.lab {
        Ok(lab) => {
            lab.state.networks.iter().map(|network| network.probed.mechanism.as_str()).collect::<Vec<_>>().join("; ")
        }
        Err(_) => String::new(),
    };
    Measurement {
        round,
        warm_up,
        driver: label,
        job: task.probe().name().to_owned(),
        mechanism,
        started: output::now(),
        seconds: 0.0,
        samples: Vec::new(),
        error: None,
        played: Vec::new(),
        counters: None,
    }
}

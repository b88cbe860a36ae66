//! Comparing: the same lab under each driver and each setting, the same jobs in each, round after round.
//!
//! All labs are up at once and idle but for the one that is measured, so that nothing of bringing up or down falls into
//! a measurement, and every driver meets the same minutes of the machine's life.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use slipway_engine::exec::Launcher;
use slipway_engine::facts::Facts;
use slipway_engine::image::Store;
use slipway_engine::job::{self, Ended, Stream};
use slipway_engine::lab::{self, Running};
use slipway_engine::probe::{Between, ProbeError};
use slipway_lab::Overrides;
use slipway_lab::model::{DriverKind, Lab};
use slipway_lab::units::Seconds;
use slipway_measure::probe::{Output, Probe, Sample};
use slipway_measure::record::{Begin, Comparison, End, FORMAT, Job, Measurement, Writer};
use slipway_measure::report;
use slipway_measure::summary::Summary;
use slipway_sys::signals::Taken;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs::Source;
use crate::setting::Setting;
use crate::stamp;

/// What is compared, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) source: Source,
    /// The lab's own name.
    pub(crate) name: String,
    pub(crate) drivers: Vec<DriverKind>,
    /// What each lab is put under in turn; at least one, which may be nothing.
    pub(crate) settings: Vec<Setting>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) repeat: u32,
    pub(crate) warm_up: u32,
    pub(crate) seed: u64,
    /// For each program.
    pub(crate) timeout: Duration,
    /// The nodes that measure, each in turn.
    pub(crate) clients: Vec<Client>,
    /// Index of the node that serves; the first on another host where `None`, else the last.
    pub(crate) server: Option<usize>,
    pub(crate) out: Option<PathBuf>,
}

/// A node that measures.
#[derive(Debug)]
pub(crate) struct Client {
    /// Index.
    pub(crate) node: usize,
    pub(crate) name: String,
}

/// Something to measure.
#[derive(Debug)]
pub(crate) enum Task {
    /// Between the two nodes.
    Probe(Probe),
    /// The lab's own job, over its nodes.
    Job(Probe),
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) summary: Summary,
    pub(crate) folder: PathBuf,
    /// True where something could not be measured.
    pub(crate) failed: bool,
}

/// One of the things compared.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    /// Index of its driver, and so of its lab.
    site: usize,
    /// What the lab is put under.
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
    /// What a round measures, in words.
    pub(crate) fn describe(&self) -> Vec<String> {
        let each = |way: String| self.tasks.iter().map(move |task| format!("  {} under {way}", task.probe().name()));
        self.ways().iter().map(|way| self.label(way)).flat_map(each).collect()
    }

    /// All that is compared, each with the index of its driver.
    fn ways(&self) -> Vec<Way<'_>> {
        let settings =
            (0..self.drivers.len()).flat_map(|site| self.settings.iter().map(move |setting| (site, setting)));
        settings
            .flat_map(|(site, setting)| self.clients.iter().map(move |client| Way { site, setting, client }))
            .collect()
    }

    /// What records and reports call a way: what tells it from the others.
    fn label(&self, way: &Way<'_>) -> String {
        let mut words = Vec::new();
        if self.drivers.len() > 1 || (self.settings.len() == 1 && self.clients.len() == 1) {
            words.push(self.drivers[way.site].to_string());
        }
        if self.settings.len() > 1 {
            words.push(way.setting.name.clone());
        }
        if self.clients.len() > 1 {
            words.push(format!("from {}", way.client.name));
        }
        words.join(", ")
    }

    fn lab(&self, driver: DriverKind) -> Result<Lab, Failure> {
        let name = format!("{}-{driver}", self.name);
        self.source.with(&Overrides { driver: Some(driver), name: Some(name) })
    }

    fn server(&self, lab: &Lab, client: usize) -> usize {
        let elsewhere = || lab.nodes.iter().position(|node| node.host != lab.nodes[client].host);
        self.server.or_else(elsewhere).unwrap_or(lab.nodes.len() - 1)
    }
}

/// Compares. Whatever happens, every lab that was brought up is taken down again.
pub(crate) fn run(context: &Context, plan: &Plan) -> Result<Done, Failure> {
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(Failure::io("take signals"))?;
    let labs: Vec<(DriverKind, Lab)> =
        plan.drivers.iter().map(|&driver| Ok((driver, plan.lab(driver)?))).collect::<Result<_, Failure>>()?;
    let folder = stamp::folder(plan.out.as_deref(), "compare", &plan.name)?;
    let outcome = bring_up(context, &labs).and_then(|up| measure(context, plan, &up, &folder, &interrupt));
    let downs: Vec<_> = labs.iter().map(|(_, lab)| lab::down(&context.root, &lab.name)).collect();
    let outcome = outcome?;
    downs.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(outcome)
}

/// A lab that is up, or why it is not. A driver that this machine cannot run is said so in the report; the others go on.
struct Site {
    lab: Result<Running, String>,
}

fn bring_up(context: &Context, labs: &[(DriverKind, Lab)]) -> Result<Vec<Site>, Failure> {
    let store = Store::open()?;
    let mut sites = Vec::new();
    for (driver, lab) in labs {
        say(context, &format!("bringing up {}", lab.name));
        let up = lab::up(&context.root, &store, lab, &mut |_| {}).map_err(|error| error.to_string());
        if let Err(why) = &up {
            say(context, &format!("leaving out driver {driver}: {why}"));
        }
        sites.push(Site { lab: up });
    }
    if sites.iter().all(|site| site.lab.is_err()) {
        let why = sites.iter().find_map(|site| site.lab.as_ref().err()).map_or("", String::as_str);
        return Err(Failure::new(Exit::Unable, &format!("compare: no driver could be brought up; the first: {why}")));
    }
    Ok(sites)
}

fn measure(context: &Context, plan: &Plan, sites: &[Site], folder: &Path, interrupt: &Taken) -> Result<Done, Failure> {
    let launcher = Launcher::new().map_err(Failure::io("prepare to start programs"))?;
    let records = folder.join("records.jsonl");
    let written = || Failure::io(format!("write {}", records.display()));
    let file = File::create(&records).map_err(written())?;
    let mut writer = Writer::begin(file, &begin(plan, sites)?).map_err(written())?;
    let mut order = plan.ways();
    let mut draw = ChaCha8Rng::seed_from_u64(plan.seed);
    let rounds = plan.warm_up + plan.repeat;
    let mut failed = false;
    for round in 1..=rounds {
        for task in &plan.tasks {
            order.shuffle(&mut draw);
            for way in &order {
                let site = &sites[way.site];
                // One that could not be brought up is recorded once.
                if site.lab.is_err() && round > 1 {
                    continue;
                }
                let started = Instant::now();
                let mut measurement = blank(round, round <= plan.warm_up, plan.label(way), site, task);
                let outcome = match &site.lab {
                    Ok(lab) => way
                        .setting
                        .hold(lab, || {
                            take(plan, way.client.node, task, lab, &launcher, interrupt, &folder.join("output"))
                        })
                        .unwrap_or_else(|error| Err(Stop::Failed(error.to_string()))),
                    Err(why) => Err(Stop::Failed(why.clone())),
                };
                measurement.seconds = started.elapsed().as_secs_f64();
                let news = match outcome {
                    Ok(samples) => {
                        measurement.samples = samples;
                        format!("{:.1} s", measurement.seconds)
                    }
                    Err(Stop::Interrupted(signal)) => {
                        return Err(Failure::new(
                            Exit::Program(128 + signal),
                            &format!(
                                "finish the comparison: interrupted in round {round}\nHint: what was measured is in {}",
                                records.display()
                            ),
                        ));
                    }
                    Err(Stop::Failed(why)) => {
                        failed = true;
                        let news = format!("failed to {why}");
                        measurement.error = Some(why);
                        news
                    }
                };
                say(
                    context,
                    &format!("round {round}/{rounds}: {} under {}: {news}", measurement.job, measurement.driver),
                );
                writer.measurement(&measurement).map_err(written())?;
            }
        }
    }
    writer.end(&End { finished: stamp::now() }).map_err(written())?;
    finish(folder, &records, failed)
}

enum Stop {
    Interrupted(u8),
    Failed(String),
}

fn take(
    plan: &Plan,
    client: usize,
    task: &Task,
    lab: &Running,
    launcher: &Launcher,
    interrupt: &Taken,
    folder: &Path,
) -> Result<Vec<Sample>, Stop> {
    let Task::Probe(probe) = task else { return job(lab, task.probe(), plan.timeout, folder) };
    let server = plan.server(&lab.lab, client);
    let between = Between { lab, server, client, timeout: plan.timeout, interrupt };
    between.measure(launcher, probe).map_err(|error| match error {
        ProbeError::Interrupted => {
            let signal = interrupt.take().ok().flatten().unwrap_or(Signal::SIGINT);
            Stop::Interrupted(u8::try_from(signal as i32).unwrap_or(0))
        }
        error => Stop::Failed(error.to_string()),
    })
}

/// Runs the lab's own job; its figure is in what the first node printed. `folder` keeps the last run's output.
fn job(lab: &Running, probe: &Probe, timeout: Duration, folder: &Path) -> Result<Vec<Sample>, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(error.to_string());
    let Some(mut job) = lab.lab.job.clone() else { return Err(Stop::Failed("find the lab's job".to_owned())) };
    job.timeout = job.timeout.or(Some(Seconds(timeout.as_secs_f64())));
    let mut said = [Vec::new(), Vec::new()];
    let outcome = job::run(lab, &job, folder, &mut |line| {
        let into = &mut said[usize::from(line.stream == Stream::Stderr)];
        into.extend_from_slice(line.bytes);
        into.push(b'\n');
    })
    .map_err(|error| failed(&error))?;
    if let Ended::Signal(signal) = outcome.ended {
        return Err(Stop::Interrupted(signal));
    }
    let [stdout, stderr] = said;
    let wall = Duration::from_secs_f64(outcome.seconds);
    probe.read(&[Output { stdout, stderr, code: i32::from(outcome.code), wall }]).map_err(|error| failed(&error))
}

/// The report is made from the records as they are on disk: what can be shown now can be shown again.
fn finish(folder: &Path, records: &Path, failed: bool) -> Result<Done, Failure> {
    let text = fs::read_to_string(records).map_err(Failure::io(format!("read {}", records.display())))?;
    let comparison = Comparison::read(&text).map_err(|error| Failure::new(Exit::Failed, &error))?;
    let summary = Summary::new(&comparison);
    let json =
        serde_json::to_string_pretty(&summary).map_err(|error| Failure::io("write the summary")(error.into()))?;
    for (name, text) in [("summary.json", json), ("report.html", report::html(&comparison))] {
        let path = folder.join(name);
        File::create(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(Failure::io(format!("write {}", path.display())))?;
    }
    Ok(Done { summary, folder: folder.to_owned(), failed })
}

fn begin(plan: &Plan, sites: &[Site]) -> Result<Begin, Failure> {
    let machine =
        serde_json::to_value(Facts::gather()).map_err(|error| Failure::io("record the machine")(error.into()))?;
    let server = |lab: &Running| Between::address_of(&lab.lab, plan.server(&lab.lab, plan.clients[0].node));
    let address = sites.iter().find_map(|site| site.lab.as_ref().ok()).map(server);
    let jobs = plan.tasks.iter().map(|task| {
        let steps = address.map(|address| task.probe().steps(address)).unwrap_or_default();
        let words = steps.iter().flat_map(|step| step.server.iter().map(|server| &server.argv).chain([&step.client]));
        Job { name: task.probe().name().to_owned(), commands: words.map(|argv| argv.join(" ")).collect() }
    });
    Ok(Begin {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lab: plan.name.clone(),
        lab_sha256: plan.source.sha256(),
        drivers: plan.ways().iter().map(|way| plan.label(way)).collect(),
        jobs: jobs.collect(),
        repeat: plan.repeat,
        warm_up: plan.warm_up,
        seed: plan.seed,
        command: std::env::args().collect(),
        machine,
        started: stamp::now(),
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
        started: stamp::now(),
        seconds: 0.0,
        samples: Vec::new(),
        error: None,
    }
}

fn say(context: &Context, news: &str) {
    if !context.global.quiet && !context.global.json {
        eprintln!("{news}");
    }
}

//! Tables of a campaign's time series, and SQL over them. `cargo bench -p slipway --bench bench -- campaign-query`, after
//! `cargo build --release -p slipway-query`.
//!
//! 10,000 points have a year of hourly values each. They are recorded through the library, as workers and the coordinator
//! do it, without running a program 10,000 times. Measured: tables from nothing, as the first query makes them; a mean for
//! each hour of the year over all points; a mean for each point, joined with an input; a count without new results.

use std::fs;
use std::path::{Path, PathBuf};

use slipway_campaign::value::Value;
use slipway_coordinator::Folder;
use slipway_coordinator::protocol::Setup;
use slipway_coordinator::store::{Attempt, Outcome, Record, Rules, Sqlite, Store as _, Usage};
use slipway_results::objects::{Directory, Out, Storage as _};
use slipway_results::series;

use super::common::{self, Slipway, Way, arg, less};

const ROUNDS: u32 = 5;
const HOURS: u32 = 8760;
const FILE: &str = "\
campaign: hours
run: [model]
variables: {size: {uniform: [50, 250]}}
design: {random: 100000}
outputs:
  cost: 'cost (.*)'
  load: {file: out.csv, series: load}
";

/// Points with results; few where `--quick` only asks whether the benchmark works.
fn points() -> u32 {
    if common::rounds(1).count() == 1 { 200 } else { 10_000 }
}

pub(super) fn run() {
    let slipway = Slipway::new();
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut queue = Queue::new(place.path());
    queue.record(points());
    let tables = place.path().join("tables");
    let ask = |name: &'static str, sql: &'static str| {
        let mut command = slipway.command(&["--json", "campaign", "query", sql, arg(place.path())]);
        move || {
            let seconds = common::seconds(|| drop(common::run(&mut command)));
            vec![less(name, "s", seconds)]
        }
    };
    let count = "select count(*), avg(value) from series";
    let mut all = ask("all", count);
    let mut ways = [
        Way::new("make tables, and count", || {
            fs::remove_dir_all(&tables).unwrap_or_default();
            all()
        }),
        Way::new("mean of each hour", ask("all", "select step, avg(value) from series group by step order by step")),
        Way::new(
            "mean of each point, with an input",
            ask(
                "all",
                "select r.size, avg(s.value) from series s join results r on r.point = s.point group by r.point, r.size order by r.size limit 100",
            ),
        ),
        Way::new("count, nothing new", ask("all", count)),
    ];
    common::compare("campaign-query", ROUNDS, &mut ways);
    let bytes = |path: PathBuf| -> u64 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
    };
    println!(
        "{} points of {HOURS} values: {} MB of tables; largest process: {} MB",
        points(),
        bytes(tables.join("series/output=load")) / 1_000_000,
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss())
            / 1000,
    );
}

/// A campaign's folder and queue.
struct Queue {
    folder: Folder,
    store: Sqlite,
    storage: Directory,
    out: PathBuf,
}

impl Queue {
    fn new(path: &Path) -> Self {
        let folder = Folder::create(path, FILE).expect("a campaign's folder can be made");
        let setup = Setup {
            file: "hours.yaml".into(),
            text: FILE.into(),
            folder: "/".into(),
            rows: None,
            extended: Vec::new(),
        };
        let setup = serde_json::to_vec(&setup).expect("a setup is JSON");
        fs::write(path.join("setup.json"), setup).expect("it can be written");
        let store = Sqlite::create(&folder.store(), 100_000).expect("a queue can be made");
        let storage = Directory::open(&folder.objects()).expect("storage can be made");
        let out = folder.work(1).join("out");
        fs::create_dir_all(&out).expect("a worker's folder can be made");
        Self { folder, store, storage, out }
    }

    /// Records a result for each of so many points.
    fn record(&mut self, count: u32) {
        eprintln!("campaign-query: recording {count} points in {}", self.folder.path().display());
        let leases = self.store.lease(1, count as usize, 0.0).expect("points can be given out");
        for leases in leases.chunks(500) {
            let attempts: Vec<Attempt> = leases
                .iter()
                .map(|lease| {
                    let values = year(lease.point);
                    let content = series::encode(&values);
                    let (digest, _) =
                        Out::new(&self.out).add(content.as_slice(), u64::MAX).expect("an object can be written");
                    self.storage.adopt(&self.out, &[digest]).expect("it can be adopted");
                    let cost = Some(Value::Number(values[0]));
                    let record = Record { values: vec![cost, None], series: vec![(1, digest)], manifest: None };
                    let usage = Usage { seconds: 1.0, cpu_seconds: 1.0, peak_bytes: 1 << 20 };
                    let (point, fence, outcome) = (lease.point, lease.fence, Outcome::Done(record));
                    Attempt { point, fence, worker: 1, outcome, usage }
                })
                .collect();
            self.store.record(&attempts, Rules { most: 1, pause: 0.0 }, 0.0).expect("results can be recorded");
        }
    }
}

/// Hourly loads of a building: days, seasons, and noise in the last digits.
fn year(point: u64) -> Vec<f64> {
    let mut noise = point.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let value = |hour: u32| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let turn = |hours: f64| (f64::from(hour) / hours * std::f64::consts::TAU).sin();
        20.0 + 5.0 * turn(24.0) + 10.0 * turn(8760.0) + (noise >> 40) as f64 * 1e-7
    };
    (0..HOURS).map(value).collect()
}

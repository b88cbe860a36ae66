//! Workers that come and go, and a fixed number of them, on a day with bursts.
//!
//! Arrivals are recorded (`arrivals.txt`), and time runs faster. Each arrival is a campaign of its own, of a few points that
//! sleep: each brings its workers up and takes them down. The fixed cluster is computed, not run: it takes points in the
//! order of arrival, without any overhead, which favours it.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use slipway_measure::probe::Sample;

use super::{Campaign, answer, option, quantile};
use crate::common::{Way, compare, less};

const ARRIVALS: &str = include_str!("arrivals.txt");
const DAY: f64 = 86_400.0;
/// Points of an arrival, and the time of each in minutes of the day.
const POINTS: u32 = 4;
const MINUTES: f64 = 10.0;
/// Workers of one arrival, and of the fixed clusters.
const WORKERS: u32 = 4;
const FIXED: [u32; 3] = [4, 8, 16];

pub(crate) fn run() {
    let day = f64::from(option("seconds", 600, 30));
    let faster = DAY / day;
    let arrivals: Vec<f64> = ARRIVALS.lines().filter_map(|line| line.parse().ok()).collect();
    // A small day has few of them, so that its labs do not fill the machine.
    let every = if day < 100.0 { 20 } else { 1 };
    let arrivals: Vec<f64> = arrivals.into_iter().step_by(every).map(|at| at / faster).collect();
    let length = MINUTES * 60.0 / faster;
    let names = FIXED.map(|workers| format!("{workers} fixed, computed"));
    let mut ways = vec![Way::new("elastic", || elastic(&arrivals, length, faster))];
    for (name, workers) in names.iter().zip(FIXED) {
        let arrivals = &arrivals;
        ways.push(Way::new(name, move || fixed(arrivals, length, day, workers).map(|value| value * faster).figures()));
    }
    let title =
        format!("A day of {} arrivals of {POINTS} points, {MINUTES} minutes each; a day takes {day} s", arrivals.len());
    compare(&title, 3, &mut ways);
}

/// Time of nodes and waits of points, in seconds.
struct Day {
    nodes: f64,
    waits: Vec<f64>,
}

impl Day {
    fn map(self, each: impl Fn(f64) -> f64) -> Self {
        Self { nodes: each(self.nodes), waits: self.waits.into_iter().map(each).collect() }
    }

    /// Seconds are of the day, not of the faster clock.
    fn figures(self) -> Vec<Sample> {
        vec![
            less("time of nodes", "h", self.nodes / 3600.0),
            less("wait, 95 % below", "min", quantile(self.waits.clone(), 0.95) / 60.0),
            less("wait, median", "min", quantile(self.waits, 0.5) / 60.0),
        ]
    }
}

fn elastic(arrivals: &[f64], length: f64, faster: f64) -> Vec<Sample> {
    let (start, epoch) =
        (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64());
    let mut running: Vec<(f64, Campaign, Child)> = Vec::new();
    for (number, &at) in arrivals.iter().enumerate() {
        let due = start + Duration::from_secs_f64(at);
        sleep(due.saturating_duration_since(Instant::now()));
        let text = format!(
            "run: [bash, -c, 'echo begin $EPOCHREALTIME; sleep {length}']\nvariables: {{x: {{uniform: [0, 1]}}}}\n\
             design: {{random: {POINTS}}}\nkeep: tables\nworkers: {{max: {WORKERS}, cpus: 0.05 core, memory: 64MiB, idle: 100ms}}\n\
             outputs: {{begin: 'begin ([0-9.]+)'}}\n"
        );
        let campaign = Campaign::new(&format!("bench-day-{number}"), &text);
        let child = campaign.start();
        running.push((at, campaign, child));
    }
    let (mut nodes, mut waits) = (0.0, Vec::new());
    for (at, campaign, child) in running {
        let summary = answer(&child.wait_with_output().expect("it can be awaited").stdout);
        assert_eq!(summary["done"].as_u64(), Some(POINTS.into()), "{summary}");
        let time = &summary["workers"];
        nodes += ["used", "lost", "idle"].iter().filter_map(|part| time[*part].as_f64()).sum::<f64>();
        let rows = campaign.ask(&["results"]);
        waits.extend(rows.as_array().expect("rows").iter().filter_map(|row| Some(row["begin"].as_f64()? - epoch - at)));
    }
    Day { nodes, waits }.map(|seconds| seconds * faster).figures()
}

/// So many workers all day, and all night until the queue is empty.
fn fixed(arrivals: &[f64], length: f64, day: f64, workers: u32) -> Day {
    let mut free = vec![0.0_f64; workers as usize];
    let mut waits = Vec::new();
    for &at in arrivals {
        for _ in 0..POINTS {
            let worker = free.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there are workers");
            let begin = worker.max(at);
            waits.push(begin - at);
            *worker = begin + length;
        }
    }
    let end = free.into_iter().fold(day, f64::max);
    Day { nodes: end * f64::from(workers), waits }
}

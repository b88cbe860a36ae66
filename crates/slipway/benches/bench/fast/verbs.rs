//! Verbs without a NIC, beside sockets of the same nodes. `cargo bench -p slipway --bench bench -- verbs`, or `verbs-hosts`, `verbs-rates`,
//! `verbs-scale` and `verbs-sizes`.
//!
//! Programs of perftest move messages over verbs, NetPIPE and iperf3 over sockets. Messages of both have the same size.

use slipway_measure::probe::{Iperf3, Probe, Step};

use super::path::one_way;
use super::site::{Plan, Site, up};
use super::table::{Measured, Task, table};
use crate::common::{Slipway, less, more};

#[path = "../../../tests/common/verbs.rs"]
mod plug_in;
mod rates;
mod scale;
mod sizes;

pub(crate) use rates::run as rates;
pub(crate) use scale::run as scale;
pub(crate) use sizes::run as sizes;

const ROUNDS: u32 = 7;
/// The port by which the two sides of perftest find each other.
const PORT: u16 = 18515;
const VERBS: &str = "verbs";
const SITES: [Plan; 4] = [
    Plan::new("host", "host", 1),
    Plan::new("bridge", "bridge", 1),
    Plan::new("fast", "fast", 1),
    Plan::new(VERBS, "{driver: fast, rdma: true}", 1),
];
const FAR: [Plan; 4] = [
    Plan::new("host", "host", 2),
    Plan::new("vxlan", "vxlan", 2),
    Plan::new("fast", "fast", 2),
    Plan::new(VERBS, "{driver: fast, rdma: true}", 2),
];
/// Message sizes of throughput in bytes.
const MESSAGES: [u32; 3] = [8 << 10, 64 << 10, 1 << 20];

/// Within a host.
pub(crate) fn run() {
    plug_in::build(&["--release"]);
    let slipway = Slipway::new();
    let sites = up(&slipway, &SITES);
    let ratios = [[VERBS, "host"], [VERBS, "fast"], [VERBS, "bridge"]];
    table("Verbs within a host", ROUNDS, &sites, &tasks(), &ratios);
}

/// Between two hosts, with segments that pass whole.
pub(crate) fn hosts() {
    plug_in::build(&["--release"]);
    let slipway = Slipway::new();
    let sites = up(&slipway, &FAR);
    let ratios = [[VERBS, "host"], [VERBS, "fast"], [VERBS, "vxlan"]];
    table("Verbs between hosts", ROUNDS, &sites, &tasks(), &ratios);
}

fn tasks() -> Vec<Task<'static>> {
    let mut tasks = Vec::new();
    for (how, cores, flags) in [
        ("two processors, polling", ["0", "1"], &[][..]),
        ("one processor, waiting", ["0", "0"], &["-e"]),
        ("two processors, waiting", ["0", "1"], &["-e"]),
    ] {
        for (program, name) in [("ib_send_lat", "SEND"), ("ib_write_lat", "WRITE")] {
            // A program that waits for writes polls memory: nothing wakes it.
            if name == "SEND" || flags.is_empty() {
                let figure = format!("64 bytes one way, {how}: {name} or TCP");
                tasks.push(Task::new(name, move |site| latency(site, &figure, program, cores, flags)));
            }
        }
    }
    for bytes in MESSAGES {
        for (program, name) in [("ib_send_bw", "SEND"), ("ib_write_bw", "WRITE"), ("ib_read_bw", "READ")] {
            tasks.push(Task::new(name, move |site| throughput(site, program, name, bytes)));
        }
    }
    tasks
}

fn latency(site: &Site<'_>, figure: &str, program: &str, cores: [&str; 2], flags: &[&str]) -> Measured {
    let micros = if site.name == VERBS {
        let line = perftest(site, program, cores, &[&["-s", "64", "-n", "20000"], flags].concat())?;
        // Bytes, iterations, shortest, longest, typical, average, …
        *line.get(4).ok_or("no typical latency")?
    } else {
        one_way(site, cores, 64)?
    };
    Ok(vec![less(figure, "µs", micros)])
}

fn throughput(site: &Site<'_>, program: &str, name: &str, bytes: u32) -> Measured {
    let figure = format!("messages of {} KiB, two processors: {name} or TCP", bytes >> 10);
    let cores = ["0", "1"];
    let gigabits = if site.name == VERBS {
        let length = bytes.to_string();
        let count = ((2 << 30) / bytes).min(50_000).to_string();
        let line = perftest(site, program, cores, &["-s", &length, "-n", &count, "--report_gbits"])?;
        // Bytes, iterations, peak, average, messages a second.
        *line.get(3).ok_or("no average rate")?
    } else {
        tcp(site, bytes, 1)?
    };
    Ok(vec![more(&figure, "Gb/s", gigabits)])
}

/// The throughput of one TCP connection on two processors, in Gb/s, with messages of `bytes`.
fn tcp(site: &Site<'_>, bytes: u32, seconds: u16) -> Result<f64, String> {
    let probe = Probe::Iperf3(Iperf3 { streams: vec![1], both_ways: false, seconds });
    let ends = site.pair.pinned(["0", "1"]);
    let sized = |mut step: Step| {
        step.client.extend(["--length".to_owned(), bytes.to_string()]);
        step
    };
    let steps: Vec<Step> = probe.steps(ends.address).into_iter().map(sized).collect();
    let samples = ends.read(&probe, &steps)?;
    samples.iter().find(|sample| sample.headline).map(|sample| sample.value).ok_or_else(|| "no rate".to_owned())
}

/// Runs a program of perftest between the nodes. Gives the numbers of its only line of results.
fn perftest(site: &Site<'_>, program: &str, cores: [&str; 2], words: &[&str]) -> Result<Vec<f64>, String> {
    perftest_lines(site, program, cores, words)?.into_iter().next().ok_or_else(|| "no results".to_owned())
}

/// The same, with the numbers of each line of results.
fn perftest_lines(
    site: &Site<'_>,
    program: &str,
    [server, client]: [&str; 2],
    words: &[&str],
) -> Result<Vec<Vec<f64>>, String> {
    let words = [&[program, "-F"], words].concat();
    let serving = site.serve(&[&["taskset", "-c", server], words.as_slice()].concat(), PORT)?;
    let address = site.pair.address.to_string();
    let printed =
        site.client(&[&["timeout", "60", "taskset", "-c", client], words.as_slice(), &[&address]].concat())?;
    drop(serving);
    let lines = printed.lines().skip_while(|line| !line.contains("#bytes")).skip(1);
    let numbers = |line: &str| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    Ok(lines.map(numbers).take_while(|line| !line.is_empty()).collect())
}

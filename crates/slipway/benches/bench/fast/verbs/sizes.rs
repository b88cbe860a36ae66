//! Message sizes from 2 bytes to 1 MiB, over verbs and over sockets: a page like that of `slipway compare`.
//! `cargo bench -p slipway --bench bench -- verbs-sizes`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use slipway_measure::probe::{Iperf3, Netpipe, Point, Probe, Sample, Step};
use slipway_measure::record::{Begin, Comparison, FORMAT, Job, Measurement};

use super::super::site::{Site, up};
use super::{SITES, VERBS, perftest_lines, plug_in};
use crate::common::{Slipway, order, rounds, run as run_program};

const ROUNDS: u32 = 5;
const LARGEST: u32 = 1 << 20;
/// Sizes of streams in bytes: those of verbs are all powers of two.
const STREAMS: [u64; 7] = [2, 16, 128, 1 << 10, 8 << 10, 64 << 10, 1 << 20];
const CORES: [&str; 2] = ["0", "1"];
const JOBS: [(&str, &str, &str); 2] = [
    ("one way", "ib_send_lat -a; NPtcp -l 2", "half of a round trip, 1 KiB"),
    ("stream", "ib_send_bw -a; iperf3 --length", "throughput, 64 KiB"),
];

/// Within a host, two processors.
pub(crate) fn run() {
    plug_in::build(&["--release"]);
    let slipway = Slipway::new();
    let sites = up(&slipway, &SITES);
    let mut comparison = begin(&sites);
    for round in rounds(ROUNDS) {
        for (number, (job, ..)) in JOBS.iter().enumerate() {
            for at in order(round, sites.len()) {
                let (site, begun, started) = (&sites[at], Instant::now(), now());
                let measured = if number == 0 { latency(site) } else { stream(site) };
                let seconds = begun.elapsed().as_secs_f64();
                eprintln!("sizes: round {round}, {job}, {}: {seconds:.2} s: {measured:?}", site.name);
                let (samples, error) = match measured {
                    Ok(curve) => (vec![sample(number, curve)], None),
                    Err(error) => (Vec::new(), Some(error)),
                };
                comparison.measurements.push(Measurement {
                    round: round + 1,
                    warm_up: round == 0,
                    driver: site.name.to_owned(),
                    job: (*job).to_owned(),
                    mechanism: if site.name == VERBS { "perftest" } else { "TCP" }.to_owned(),
                    started,
                    seconds,
                    samples,
                    error,
                    played: Vec::new(),
                    counters: None,
                });
            }
        }
    }
    comparison.end = Some(slipway_measure::record::End { finished: now() });
    println!("### Message sizes over verbs and sockets, within a host\n\n{}", markdown(&comparison, &sites));
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("verbs-sizes.html");
    std::fs::write(&page, slipway_measure::report::html(&comparison)).expect("the page can be written");
    println!("The same with pictures: {}\n", page.display());
}

/// RFC 3339.
fn now() -> String {
    let output = run_program(Command::new("date").args(["-u", "+%FT%TZ"]));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn begin(sites: &[Site<'_>]) -> Comparison {
    let job = |(name, commands, _): &(&str, &str, &str)| Job {
        name: (*name).to_owned(),
        commands: commands.split("; ").map(str::to_owned).collect(),
    };
    let begin = Begin {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lab: "message sizes".to_owned(),
        lab_sha256: String::new(),
        drivers: sites.iter().map(|site| site.name.to_owned()).collect(),
        jobs: JOBS.iter().map(job).collect(),
        repeat: ROUNDS,
        warm_up: 1,
        seed: 1,
        command: ["cargo", "bench", "-p", "slipway", "--bench", "bench", "--", "verbs-sizes"]
            .map(str::to_owned)
            .to_vec(),
        machine: serde_json::Value::Null,
        started: now(),
        checks: Vec::new(),
        scenario: None,
        bench: None,
    };
    Comparison { begin, measurements: Vec::new(), end: None }
}

/// A curve with the value that stands for it.
fn sample(job: usize, curve: Vec<Point>) -> Sample {
    let at = |bytes| curve.iter().min_by_key(|point| point.bytes.abs_diff(bytes)).copied();
    let (bytes, unit) = if job == 0 { (1 << 10, "µs") } else { (64 << 10, "Gb/s") };
    let value = at(bytes).map_or(0.0, |point| if job == 0 { point.micros } else { point.megabits() / 1e3 });
    let mut sample = Sample::headline(JOBS[job].2, unit, value);
    (sample.higher_is_better, sample.curve) = (job == 1, curve);
    sample
}

fn latency(site: &Site<'_>) -> Result<Vec<Point>, String> {
    if site.name == VERBS {
        return of_perftest(site, "ib_send_lat", |_, line| line.get(4).copied());
    }
    let probe = Probe::Netpipe(Netpipe { max_bytes: LARGEST, repeats: Some(50) });
    let pair = site.pair.pinned(CORES);
    let samples = pair.read(&probe, &probe.steps(pair.address))?;
    Ok(samples.into_iter().flat_map(|sample| sample.curve).collect())
}

fn stream(site: &Site<'_>) -> Result<Vec<Point>, String> {
    // Bytes, iterations, peak, average in Gb/s.
    let micros = |bytes: f64, gigabits: f64| bytes * 8.0 / (gigabits * 1e3);
    if site.name == VERBS {
        return of_perftest(site, "ib_send_bw", |bytes, line| line.get(3).map(|&it| micros(bytes, it)));
    }
    let probe = Probe::Iperf3(Iperf3 { streams: vec![1], both_ways: false, seconds: 1 });
    let ends = site.pair.pinned(CORES);
    let one = |&bytes: &u64| {
        let sized = |mut step: Step| {
            step.client.extend(["--length".to_owned(), bytes.to_string()]);
            step
        };
        let steps: Vec<Step> = probe.steps(ends.address).into_iter().map(sized).collect();
        let samples = ends.read(&probe, &steps)?;
        let rate = samples.iter().find(|sample| sample.headline).ok_or("no rate")?;
        Ok(Point { bytes, micros: micros(bytes as f64, rate.value) })
    };
    STREAMS.iter().map(one).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are whole, and small")]
fn of_perftest(
    site: &Site<'_>,
    program: &str,
    micros: impl Fn(f64, &[f64]) -> Option<f64>,
) -> Result<Vec<Point>, String> {
    let more: &[&str] = if program.ends_with("bw") { &["--report_gbits"] } else { &[] };
    let lines = perftest_lines(site, program, CORES, &[&["-a", "-n", "1000"], more].concat())?;
    let point = |line: &Vec<f64>| {
        let bytes = *line.first()?;
        Some(Point { bytes: bytes as u64, micros: micros(bytes, line)? })
    };
    Ok(lines.iter().filter_map(point).filter(|point| point.bytes <= LARGEST.into()).collect())
}

/// Medians by size: one way in µs, and streams in Gb/s.
fn markdown(comparison: &Comparison, sites: &[Site<'_>]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("| |");
    for site in sites {
        let _ = write!(text, " {} |", site.name);
    }
    let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(sites.len()));
    for (number, (job, ..)) in JOBS.iter().enumerate() {
        for bytes in STREAMS {
            let unit = if number == 0 { "µs" } else { "Gb/s" };
            let _ = write!(text, "| {job}, {bytes} bytes ({unit}) |");
            for site in sites {
                let counted = comparison.measurements.iter().filter(|it| !it.warm_up && it.driver == site.name);
                let points = counted.filter(|it| it.job == *job).flat_map(|it| &it.samples).filter_map(|it| {
                    // Sizes of NetPIPE surround the powers of two.
                    it.curve.iter().min_by_key(|point| point.bytes.abs_diff(bytes))
                });
                let mut values: Vec<f64> =
                    points.map(|it| if number == 0 { it.micros } else { it.megabits() / 1e3 }).collect();
                values.sort_by(f64::total_cmp);
                match values.get(values.len() / 2) {
                    Some(median) => drop(write!(text, " {} |", slipway_measure::format::number(*median))),
                    None => text.push_str(" – |"),
                }
            }
            text.push('\n');
        }
    }
    text
}

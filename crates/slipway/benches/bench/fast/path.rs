//! The established connection: throughput and round trips.

use slipway_measure::probe::{Iperf3, Netpipe, Point, Probe, Sample, Step};

use super::load::{MOUNTED, WORD};
use super::site::{ONE_HOST, Plan, Site, TWO_HOSTS, up};
use super::table::{Measured, Task, table};
use crate::common::{Slipway, less, more};

const ROUNDS: u32 = 7;

/// Of server and client.
const CORES: [(&str, [&str; 2]); 2] = [("one core", ["0", "0"]), ("two cores", ["0", "1"])];

/// The lab files' word for a fast network whose connections within a host are of TCP too.
const EXACT: &str = "{driver: fast, exact: true}";

const SWALLOW: u16 = 7001;

/// Within a host, every path that the router could choose beside it.
pub(crate) fn host() {
    let slipway = Slipway::new();
    let plans = [ONE_HOST.as_slice(), &[Plan::new("fast, exact", EXACT, 1)]].concat();
    let sites = up(&slipway, &plans);
    let serving: Result<Vec<_>, String> = sites
        .iter()
        .map(|site| site.serve(&["taskset", "-c", "0", MOUNTED, WORD, "swallow", &SWALLOW.to_string()], SWALLOW))
        .collect();
    let serving = serving.expect("the load serves");
    let mut tasks = common();
    tasks.push(Task::new("write", |site| {
        let to = format!("{}:{SWALLOW}", site.pair.address);
        let words = ["taskset", "-c", "1", MOUNTED, WORD, "write", &to, "1", "1000"];
        let rates = super::site::numbers(&site.client(&words)?)?;
        Ok(vec![more("a program that only writes, 1 stream, two cores", "Gb/s", rates[0])])
    }));
    let ratios = [["fast", "bridge"], ["fast", "host"], ["fast, exact", "bridge"]];
    table("The fast path within a host", ROUNDS, &sites, &tasks, &ratios);
    drop(serving);
}

/// Between two hosts, with segments that pass whole and with packets of the MTU.
pub(crate) fn hosts() {
    let slipway = Slipway::new();
    let ratios = [["fast", "host"], ["fast", "vxlan"]];
    let sites = up(&slipway, &TWO_HOSTS);
    table("The fast path between hosts, large segments", ROUNDS, &sites, &common(), &ratios);
    drop(sites);
    let plans = [
        Plan::new("host", "{driver: host, offloads: false}", 2),
        Plan::new("vxlan", "{driver: vxlan, offloads: false}", 2),
        Plan::new("fast", "{driver: fast, offloads: false}", 2),
    ];
    let sites = up(&slipway, &plans);
    sites.iter().for_each(Site::cut_on_the_wire);
    table("The fast path between hosts, frames of the MTU", ROUNDS, &sites, &common(), &ratios);
}

fn common() -> Vec<Task<'static>> {
    let mut tasks: Vec<Task<'static>> = Vec::new();
    for (cores, pinned) in CORES {
        for streams in [1, 8] {
            tasks.push(Task::new("iperf3", move |site| throughput(site, streams, cores, pinned)));
        }
        tasks.push(Task::new("NetPIPE", move |site| latency(site, cores, pinned)));
    }
    tasks
}

fn throughput(site: &Site<'_>, streams: u16, cores: &str, pinned: [&str; 2]) -> Measured {
    let probe = Probe::Iperf3(Iperf3 { streams: vec![streams], both_ways: false, seconds: 1 });
    let mut samples = site.pair.pinned(pinned).measure(&probe)?;
    samples.retain(|sample| sample.headline);
    Ok(samples
        .into_iter()
        .map(|sample| Sample {
            figure: format!("{}, {cores}", sample.figure.replace("TCP throughput", "iperf3")),
            ..sample
        })
        .collect())
}

fn latency(site: &Site<'_>, cores: &str, pinned: [&str; 2]) -> Measured {
    let curve = netpipe(site, pinned)?;
    let wanted = curve.iter().filter(|point| [64, 1024].contains(&point.bytes));
    Ok(wanted
        .map(|point| less(&format!("NetPIPE, {} bytes, one way, {cores}", point.bytes), "µs", point.micros))
        .collect())
}

/// Time of a message of so many bytes over TCP in µs, one way: half of a round trip.
pub(super) fn one_way(site: &Site<'_>, pinned: [&str; 2], bytes: u64) -> Result<f64, String> {
    let curve = netpipe(site, pinned)?;
    let point = curve.iter().find(|point| point.bytes == bytes);
    point.map(|point| point.micros).ok_or_else(|| format!("NetPIPE measured no {bytes} bytes"))
}

/// From 64 bytes to 1 KiB.
fn netpipe(site: &Site<'_>, pinned: [&str; 2]) -> Result<Vec<Point>, String> {
    let probe = Probe::Netpipe(Netpipe { max_bytes: 1024, repeats: Some(500) });
    let pair = site.pair.pinned(pinned);
    let from = |argv: &[String]| [argv, &["-l".to_owned(), "64".to_owned()]].concat();
    let steps: Vec<Step> = probe
        .steps(pair.address)
        .into_iter()
        .map(|mut step| {
            step.client = from(&step.client);
            step.server = step.server.map(|mut server| {
                server.argv = from(&server.argv);
                server
            });
            step
        })
        .collect();
    Ok(pair.read(&probe, &steps)?.into_iter().flat_map(|sample| sample.curve).collect())
}

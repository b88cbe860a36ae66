//! How precise the policy's rates of verbs are, beside those of sockets. `cargo bench -p slipway --bench bench -- verbs-rates`.

use super::super::site::{Plan, Site, up};
use super::super::table::{Measured, Task, table};
use super::{VERBS, perftest, plug_in, tcp};
use crate::common::{Slipway, arg, more};

const ROUNDS: u32 = 5;
const MESSAGE: u32 = 64 << 10;
/// Seconds of one measurement by perftest. It leaves out the first and the last of them.
const SECONDS: &str = "4";
const MARGIN: &str = "1";
const FAR: &str = "verbs between hosts";
const SITES: [Plan; 4] = [
    Plan::new("fast", "fast", 1),
    Plan::new(VERBS, "{driver: fast, rdma: true}", 1),
    Plan::new("fast between hosts", "fast", 2),
    Plan::new(FAR, "{driver: fast, rdma: true}", 2),
];
/// Gbit/s: the range of `FreeFlow`'s own evaluation (NSDI 2019).
const RATES: [u32; 6] = [1, 2, 5, 10, 20, 40];

pub(crate) fn run() {
    plug_in::build(&["--release"]);
    let slipway = Slipway::new();
    let sites = up(&slipway, &SITES);
    let mut tasks = vec![Task::new("no rate", |site| carried(site, None))];
    tasks.extend(RATES.map(|rate| Task::new("rate", move |site| carried(site, Some(rate)))));
    table("Rates of verbs and sockets", ROUNDS, &sites, &tasks, &[]);
}

/// The throughput of a connection under a rule, as a part of the rule's rate; without a rule, in Gb/s.
fn carried(site: &Site<'_>, rate: Option<u32>) -> Measured {
    let text = rate.map_or("[]".to_owned(), |rate| format!("- {{from: n1, to: n2, rate: {{flow: {rate}gbit}}}}"));
    let rules = site.slipway.lab("rules", &format!("{text}\n"));
    site.slipway.run(&["policy", &site.lab, arg(&rules)]);
    let gigabits = if site.name == VERBS || site.name == FAR {
        let length = MESSAGE.to_string();
        let words = ["-s", &length, "-D", SECONDS, "-f", MARGIN, "--report_gbits"];
        *perftest(site, "ib_write_bw", ["0", "1"], &words)?.get(3).ok_or("no average rate")?
    } else {
        tcp(site, MESSAGE, 4)?
    };
    Ok(vec![match rate {
        None => more("without a rule", "Gb/s", gigabits),
        Some(rate) => more(&format!("{rate} Gbit/s, carried of it"), "", gigabits / f64::from(rate)),
    }])
}

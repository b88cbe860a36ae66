//! The router itself: its memory, and whether it does anything where no connection is made.

use std::collections::HashMap;
use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use super::load::{MOUNTED, WORD};
use super::site::{Plan, Site, processes, ran, up};
use crate::common::{Slipway, pss};

const ANSWER: u16 = 7003;
const SWALLOW: u16 = 7004;

pub(crate) fn run() {
    let slipway = Slipway::new();
    println!("### The router\n\n| | one host | two hosts, each |\n| --- | ---: | ---: |");
    let columns = [1, 2].map(|hosts| {
        let sites = up(&slipway, &[Plan::new("fast", "fast", hosts)]);
        column(&sites[0]).unwrap_or_else(|error| panic!("{error}"))
    });
    let [one, two] = columns;
    for ((name, one), (_, two)) in one.into_iter().zip(two) {
        println!("| {name} | {one} | {two} |");
    }
    println!();
}

fn column(site: &Site<'_>) -> Result<Vec<(&'static str, String)>, String> {
    let routers: Vec<i32> = site.running().state.routers.iter().filter_map(|router| router.pid).collect();
    let of = |pids: &[i32]| {
        pids.iter().map(|&pid| format!("{:.2}", pss(pid) as f64 / 1024.0)).collect::<Vec<_>>().join(", ")
    };
    let memory = || of(&routers);
    let mut rows = vec![
        ("memory at rest (MiB)", memory()),
        ("of the process beside it, which keeps its descriptors (MiB)", of(&processes("slipway-keeper"))),
    ];
    let answer = site.serve(&[MOUNTED, WORD, "answer", &ANSWER.to_string(), "8"], ANSWER)?;
    let swallow = site.serve(&[MOUNTED, WORD, "swallow", &SWALLOW.to_string()], SWALLOW)?;
    let (answers, swallows) = (format!("{}:{ANSWER}", site.pair.address), format!("{}:{SWALLOW}", site.pair.address));
    rows.push(("with two servers (MiB)", memory()));
    site.load(&["connect", &answers, "10000", "8"])?;
    rows.push(("after 10,000 connections (MiB)", memory()));
    site.load(&["connect", &answers, "10000", "8"])?;
    rows.push(("after 20,000 (MiB)", memory()));
    // Connections of the second half of the writing are long made.
    let busy = || routers.iter().flat_map(|&pid| ran(pid)).collect::<HashMap<_, _>>();
    let (before, after) = thread::scope(|scope| {
        let writing = scope.spawn(|| site.load(&["write", &swallows, "8", "4000"]));
        thread::sleep(Duration::from_secs(2));
        let before = busy();
        thread::sleep(Duration::from_secs(1));
        let after = busy();
        writing.join().expect("it does not panic").map(|_| (before, after))
    })?;
    rows.push(("processor time in a second of 8 connections at full speed (µs)", spent(&before, &after)));
    let before = busy();
    thread::sleep(Duration::from_secs(5));
    rows.push(("processor time in five seconds of nothing (µs)", spent(&before, &busy())));
    drop((answer, swallow));
    Ok(rows)
}

/// What threads that there are after a time spent in it, µs. Those that were there before may have ended.
fn spent(before: &HashMap<OsString, u64>, after: &HashMap<OsString, u64>) -> String {
    let spent = |(thread, time): (&OsString, &u64)| time - before.get(thread).unwrap_or(&0);
    format!("{:.1}", after.iter().map(spent).sum::<u64>() as f64 / 1e3)
}

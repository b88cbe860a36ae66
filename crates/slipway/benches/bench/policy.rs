//! How precise rates of a policy are. `cargo bench -p slipway --bench bench -- policy`.

use std::process::{Child, Stdio};

use serde_json::Value;

use super::common::{Slipway, arg, run as program};

/// Each, several times; the worst counts.
const ROUNDS: u32 = 5;

pub(super) fn run() {
    let slipway = Slipway::new();
    let lab = slipway.lab(
        "rates",
        "hosts: 2\nnetworks: {net: fast}\nnodes:\n  server: {host: host1}\n  near: {host: host1}\n  far: {host: host2}\n",
    );
    slipway.run(&["up", arg(&lab)]);
    println!(
        "### Rates of a policy\n\n| asked | of | streams | within a host | | between hosts | |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    );
    for (of, streams) in [("flow", 1), ("pair", 4)] {
        for (asked, bits) in [("100mbit", 1e8), ("1gbit", 1e9), ("10gbit", 1e10)] {
            let rules = slipway.lab("rules", &format!("- {{to: server, rate: {{{of}: {asked}}}}}\n"));
            slipway.run(&["policy", "rates", arg(&rules)]);
            // iperf3's control connection has a part of what is shared too.
            let bits = if of == "pair" { bits * f64::from(streams) / f64::from(streams + 1) } else { bits };
            let cells: Vec<String> =
                ["near", "far"].into_iter().map(|from| row(&slipway, from, streams, bits)).collect();
            println!("| {asked} | {of} | {streams} | {} |", cells.join(" | "));
        }
    }
    println!();
    slipway.run(&["down", "rates"]);
}

/// The median of all rounds, bits per second, and by how much the worst of them is off.
fn row(slipway: &Slipway, from: &str, streams: u32, asked: f64) -> String {
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| measure(slipway, from, streams)).collect();
    rates.sort_by(f64::total_cmp);
    let off = |rate: f64| (rate / asked - 1.0) * 100.0;
    let worst = rates.iter().copied().map(off).max_by(|one, other| one.abs().total_cmp(&other.abs()));
    let median = rates[rates.len() / 2];
    format!("{:.4} Gb/s | {:+.2} %, at worst {:+.2} %", median / 1e9, off(median), worst.unwrap_or(f64::NAN))
}

/// What arrives, without the first second, in which connections begin.
fn measure(slipway: &Slipway, from: &str, streams: u32) -> f64 {
    let mut server = serve(slipway);
    let streams = streams.to_string();
    let words = ["exec", "rates", from, "--", "iperf3", "--json", "-c", "server", "-t", "4", "-O", "1", "-P", &streams];
    let output = program(&mut slipway.command(&words));
    server.wait().expect("the server ends with its client");
    let report: Value = serde_json::from_slice(&output.stdout).expect("iperf3 writes JSON");
    report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a throughput")
}

fn serve(slipway: &Slipway) -> Child {
    let mut server = slipway.command(&["exec", "rates", "server", "--", "iperf3", "--server", "--one-off"]);
    let child = server.stdout(Stdio::null()).spawn().expect("iperf3 starts");
    let listening = "until ss -ltnH 'sport = :5201' | grep -q .; do :; done";
    slipway.run(&["exec", "rates", "server", "--", "sh", "-c", listening]);
    child
}

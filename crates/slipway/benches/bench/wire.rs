//! What Slipway's own link costs and how true it is. `cargo bench -p slipway --bench bench -- wire`.
//!
//! Promises: SPECIFICATION.md, "Links".

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use slipway_measure::probe::Sample;

use super::common::{Slipway, Way, arg, compare, run as program};

const ROUNDS: u32 = 10;

pub(super) fn run() {
    let slipway = Slipway::new();
    throughput(&slipway);
    truth(&slipway);
}

/// The same two nodes, their link left alone and sent through the wire. A wire that delays by a microsecond delays by less
/// than it takes to pass: what is measured is the passing.
fn throughput(slipway: &Slipway) {
    let file = slipway.lab("wire", "mechanism: wire\nnodes: {n: {count: 2}}\n");
    slipway.run(&["up", arg(&file)]);
    let under = |words: &'static [&'static str]| {
        move || {
            let mut set = vec!["set", "wire", "n1"];
            set.extend(words);
            if !words.is_empty() {
                slipway.run(&set);
            }
            let samples = iperf3(slipway);
            slipway.run(&["restore", "wire"]);
            samples
        }
    };
    let mut ways = [
        Way::new("plain veth", under(&[])),
        Way::new("wire", under(&["delay=1us"])),
        Way::new("wire, loss 0.001 %", under(&["delay=1us", "loss=0.001%"])),
        Way::new("wire, 10 ms", under(&["delay=10ms"])),
    ];
    compare("What passing the wire costs", ROUNDS, &mut ways);
    slipway.run(&["down", "wire"]);
}

fn iperf3(slipway: &Slipway) -> Vec<Sample> {
    let server = serve(slipway, "wire", "n2");
    let mut client = slipway.command(&["exec", "wire", "n1", "--", "iperf3", "--json", "-c", "n2", "-t", "2"]);
    let output = program(&mut client);
    end(server);
    let report: Value = serde_json::from_slice(&output.stdout).expect("iperf3 writes JSON");
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a throughput");
    vec![Sample {
        figure: "TCP throughput, 1 stream".to_owned(),
        unit: "Gb/s".to_owned(),
        higher_is_better: true,
        headline: true,
        value: bits / 1e9,
        curve: Vec::new(),
    }]
}

fn serve(slipway: &Slipway, lab: &str, node: &str) -> Child {
    let mut server = slipway.command(&["exec", lab, node, "--", "iperf3", "--server", "--one-off"]);
    let child = server.stdout(Stdio::null()).spawn().expect("iperf3 starts");
    let listening = ["exec", lab, node, "--", "sh", "-c", "until ss -ltnH 'sport = :5201' | grep -q .; do :; done"];
    slipway.run(&listening);
    child
}

fn end(mut server: Child) {
    server.wait().expect("the server ends with its client");
}

/// Asked against measured, on an idle machine and while two other nodes send all they can through the wire.
fn truth(slipway: &Slipway) {
    let file = slipway.lab(
        "truth",
        "mechanism: wire\nnodes: {a: , b: , load1: {networks: {net: {conditions: {delay: 1ms}}}}, load2: }\n",
    );
    slipway.run(&["up", arg(&file)]);
    for (title, busy) in [("idle", false), ("while iperf3 fills another link of the wire", true)] {
        let load = busy.then(|| Load::start(slipway));
        let mut table = String::from(
            "| asked | packets | measured | as asked within | delay − asked: median | 99 % | verdict |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
        );
        for (words, packets) in [
            ("delay=1ms", "5000"),
            ("delay=5ms", "5000"),
            ("delay=20ms", "5000"),
            ("delay=100ms", "5000"),
            ("loss=0.05%", "100000"),
            ("loss=0.5%", "100000"),
            ("loss=5%", "100000"),
            ("loss=gemodel 1% 20%", "100000"),
            ("rate=1mbit", "100"),
            ("rate=10mbit", "100"),
            ("rate=100mbit", "100"),
            ("rate=1gbit", "100"),
        ] {
            row(slipway, words, packets, &mut table);
        }
        drop(load);
        println!("### What the wire does, {title}\n\n{table}\n{}\n", floor());
    }
    slipway.run(&["down", "truth"]);
}

fn row(slipway: &Slipway, words: &str, packets: &str, table: &mut String) {
    slipway.run(&["restore", "truth"]);
    slipway.run(&["set", "truth", "a", words]);
    let interval = if words.starts_with("loss") { "50us" } else { "1ms" };
    // It ends with 1 where something is not as asked; that is for the table to say.
    let mut verify = slipway.command(&[
        "verify",
        "truth",
        "a->b",
        "--packets",
        packets,
        "--interval",
        interval,
        "--rate-time",
        "2s",
        "--json",
    ]);
    let output = verify.output().expect("verify runs");
    let paths: Value = serde_json::from_slice(&output.stdout).expect("verify writes JSON");
    let what = words.split('=').next().unwrap_or_default();
    let checks = paths[0]["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["what"] == what).expect("the condition is checked");
    let value = |value: &Value| {
        let value = value.as_f64().unwrap_or(f64::NAN);
        match what {
            "delay" => format!("{:.3} ms", value * 1e3),
            "rate" => format!("{:.3} Mbit/s", value / 1e6),
            _ => format!("{:.4} %", value * 1e2),
        }
    };
    let late = |key: &str| match (what, paths[0]["delays"][key].as_f64(), check["asked"].as_f64()) {
        ("delay", Some(delay), Some(asked)) => format!("{:.3} ms", (delay - asked) * 1e3),
        _ => "–".to_owned(),
    };
    let _ = writeln!(
        table,
        "| {words} | {packets} | {} | {} – {} | {} | {} | {} |",
        value(&check["measured"]),
        value(&check["within"][0]),
        value(&check["within"][1]),
        late("median"),
        late("p99"),
        check["verdict"].as_str().unwrap_or("?"),
    );
}

/// How late this machine wakes a real-time program that only sleeps: what the wire can be at best.
fn floor() -> String {
    let sleeper = std::thread::spawn(|| {
        let fifo = slipway_sys::sched::set_fifo(1).is_ok();
        let period = Duration::from_millis(1);
        let mut late: Vec<Duration> = (0..5000)
            .map(|_| {
                let begun = std::time::Instant::now();
                std::thread::sleep(period);
                begun.elapsed().saturating_sub(period)
            })
            .collect();
        late.sort_unstable();
        (fifo, late)
    });
    let (fifo, late) = sleeper.join().expect("it sleeps");
    let at = |share: usize| late[(late.len() * share / 100).min(late.len() - 1)].as_secs_f64() * 1e3;
    format!(
        "A program that only sleeps for 1 ms, 5000 times, {}: {:.3} ms late in the median, 99 % at most {:.3} ms, none more than {:.3} ms.",
        if fifo { "real-time" } else { "not real-time" },
        at(50),
        at(99),
        at(100)
    )
}

/// TCP as fast as it goes from one node to another, until dropped.
struct Load {
    server: Child,
    client: Child,
}

impl Load {
    fn start(slipway: &Slipway) -> Self {
        let server = serve(slipway, "truth", "load2");
        let mut client = slipway.command(&["exec", "truth", "load1", "--", "iperf3", "-c", "load2", "-t", "600"]);
        let client = client.stdout(Stdio::null()).spawn().expect("iperf3 starts");
        // It has begun when the first second's worth of data is under way.
        std::thread::sleep(Duration::from_secs(1));
        Self { server, client }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // `slipway exec` passes the signal on to the program in the node.
        for child in [&mut self.client, &mut self.server] {
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            let _ = child.wait();
        }
    }
}

//! The steps of every built-in probe, run with the real programs in a network namespace of the test's own.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use slipway_measure::probe::{Iperf3, Netpipe, Output, Ping, Probe, Sample, Server};

/// Longer than any server here takes to listen; only a failing test waits for it.
const DEADLINE: Duration = Duration::from_mins(1);

fn command(argv: &[String]) -> Command {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null());
    command
}

/// Whether a TCP socket of this thread's namespace listens on the port (`proc_net_tcp` in the kernel's documentation).
fn listens(port: u16) -> bool {
    let local = format!(":{port:04X} ");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap();
        table.lines().any(|line| line.contains(&local) && line.contains(" 0A "))
    })
}

fn start(server: &Server) -> Child {
    let child = command(&server.argv).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{} does not start ({error}): is it installed?", server.argv[0]));
    let begun = Instant::now();
    while !listens(server.port) {
        assert!(begun.elapsed() < DEADLINE, "{:?} does not listen", server.argv);
        std::thread::yield_now();
    }
    child
}

fn measure(probe: &Probe) -> Vec<Sample> {
    unshare(CloneFlags::CLONE_NEWNET).expect("this test makes a network namespace and needs root (CAP_SYS_ADMIN)");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("Debian package iproute2");
    assert!(up.success());
    let run = |step: &slipway_measure::probe::Step| {
        let server = step.server.as_ref().map(start);
        let begun = Instant::now();
        let output = command(&step.client).output().expect("the client starts: is it installed?");
        if let Some(mut server) = server {
            server.wait().expect("a server ends after one client");
        }
        let code = output.status.code().unwrap_or(-1);
        Output { stdout: output.stdout, stderr: output.stderr, code, wall: begun.elapsed() }
    };
    let outputs: Vec<Output> = probe.steps("127.0.0.1".parse().unwrap()).iter().map(run).collect();
    probe.read(&outputs).unwrap_or_else(|error| panic!("failed to {error}"))
}

#[test]
fn iperf3_measures_streams_in_both_directions() {
    let samples = measure(&Probe::Iperf3(Iperf3 { streams: vec![1, 2], both_ways: true, seconds: 1 }));
    let figures: Vec<&str> = samples.iter().filter(|s| s.headline).map(|s| s.figure.as_str()).collect();
    assert_eq!(
        figures,
        [
            "TCP throughput, 1 stream",
            "TCP throughput, 1 stream, reverse",
            "TCP throughput, 2 streams",
            "TCP throughput, 2 streams, reverse",
        ]
    );
    assert!(samples.iter().filter(|s| s.headline).all(|s| s.value > 0.0));
}

#[test]
fn netpipe_measures_a_curve() {
    let samples = measure(&Probe::Netpipe(Netpipe { max_bytes: 65536, repeats: Some(20) }));
    let curve = &samples[0].curve;
    assert_eq!((curve[0].bytes, curve.last().unwrap().bytes), (1, 65536));
    assert!(samples[1].value > 0.0);
}

#[test]
fn ping_measures_round_trips() {
    let samples = measure(&Probe::Ping(Ping { count: 3, interval_ms: 10 }));
    assert!(samples[0].value > 0.0);
    assert_eq!(samples.last().map(|s| (s.figure.as_str(), s.value)), Some(("ping loss", 0.0)));
}

//! Labs over several machines: an empty MPI program, making many nodes, and the control channel.
//! `cargo bench -p slipway --bench bench -- machines`. OpenFOAM on the networks between two of them: `machines-openfoam`.
//!
//! The machines are namespaces of this one, each with a network card and a real ssh server, as in tests. They share its
//! processors, so times of several machines are an upper bound, and processor time says more.

#[path = "../../tests/common/machines.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests use more of it")]
mod set;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use slipway_measure::play::{Event, Lateness, Played};
use slipway_measure::probe::Sample;

use super::campaign::busy;
use super::common::{Way, arg, compare, less, rounds, run as program, seconds};
use set::{Machines, address, must, name};

/// Ranks on each machine.
const RANKS: usize = 8;
/// Machines of the set.
const MOST: usize = 4;

/// 10,000 events in a minute, half of which take the others back.
const EVENTS: &str = "\
length: 62s
events:
  - {every: 24ms, times: 2500, freeze: n, for: 12ms}
  - {every: 24ms, at: 6ms, times: 2500, set: {delay: 5ms}, nodes: n, for: 12ms}
";

/// As the set's module asks of the module around it.
fn told(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn run() {
    let machines = Machines::new(MOST);
    for count in [1, 2, MOST] {
        empty_program(&machines, count);
    }
    creation(&machines);
    control(&machines);
}

/// The comparison of Gankevich et al. (CSIT 2015): OpenFOAM's dam break on the networks between two machines.
pub(super) fn openfoam() {
    let machines = Machines::new(2);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/openfoam-dambreak");
    // All machines see this folder.
    let here = machines.path().join("dambreak");
    std::fs::create_dir(&here).expect("made");
    for file in ["run.sh", "lab.yaml"] {
        std::fs::copy(example.join(file), here.join(file)).expect("copied");
    }
    let chosen = format!("a={},b={}", address(0), address(1));
    let mut run = machines.program(0, arg(&here.join("run.sh")));
    run.args(["compare", "--machines", &chosen, "--drivers", "host,bridge,macvlan,fast", "--jobs", "job"]);
    println!("{}", String::from_utf8_lossy(&must(run.args(["--repeat", &rounds(7).end().to_string()])).stdout));
}

/// A lab file over the first machines of the set; none is named for one that is on the machine of the command alone.
fn lab(machines: &Machines, name: &str, count: usize, text: &str) -> PathBuf {
    let mut file = format!("lab: {name}\n");
    if count > 0 {
        let all: Vec<String> = (0..count).map(|one| format!("{}: {}", set::name(one), address(one))).collect();
        let _ = writeln!(file, "machines: {{{}}}", all.join(", "));
    }
    let path = machines.path().join(format!("{name}.yaml"));
    std::fs::write(&path, file + text).expect("the lab file can be written");
    path
}

/// `/bin/true` under mpirun: among the machines over ssh, in a lab that is up, in a lab made for it, and that lab's making.
fn empty_program(machines: &Machines, count: usize) {
    let text = format!("nodes: {{n: {{count: {count}, slots: {RANKS}}}}}\n");
    let up = lab(machines, "mpi-up", count, &text);
    let passing = lab(machines, "mpi-passing", count, &text);
    let ranks = (count * RANKS).to_string();
    let outputs = tempfile::tempdir().expect("a temporary folder");
    let number = std::cell::Cell::new(0);
    let in_lab = |lab: &str| {
        number.set(number.get() + 1);
        let out = outputs.path().join(number.get().to_string());
        let words = ["run", "--quiet", "--mpi", "openmpi", "-n", &ranks, "--out", arg(&out), lab, "--", "/bin/true"];
        seconds(|| drop(machines.run(0, words)))
    };
    let native = || {
        let hosts: Vec<String> = (0..count).map(|one| format!("{}:{RANKS}", name(one))).collect();
        let agent = format!("ssh -F {}", machines.path().join("ssh_config").display());
        let mut mpirun = machines.program(0, "mpirun.openmpi");
        mpirun.args(["--oversubscribe", "--mca", "plm_rsh_agent", &agent, "--mca", "oob_tcp_if_include", "eth0"]);
        mpirun.args(["--host", &hosts.join(","), "-np", &ranks, "/bin/true"]);
        mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        seconds(|| drop(program(&mut mpirun)))
    };
    let title = format!("An empty MPI program on {count} machines, {RANKS} ranks each");
    let figure = format!("mpirun -np {ranks} /bin/true");
    let taken = |took: f64| vec![less(&figure, "s", took)];
    machines.run(0, ["up", arg(&up)]);
    let mut ways = [
        Way::new("native", || taken(native())),
        Way::new("lab that is up", || taken(in_lab("mpi-up"))),
        Way::new("lab made for it", || taken(in_lab(arg(&passing)))),
        Way::new("up + down alone", || {
            taken(seconds(|| {
                machines.run(0, ["up", arg(&passing)]);
                machines.run(0, ["down", "mpi-passing"]);
            }))
        }),
    ];
    compare(&title, 7, &mut ways);
    drop(ways);
    machines.run(0, ["down", "mpi-up"]);
}

/// Bringing 250 nodes up on each of four machines, beside one machine with 250 and with 1,000.
fn creation(machines: &Machines) {
    let file = |name: &str, count: usize, nodes: usize| {
        lab(machines, name, count, &format!("networks: {{net: vxlan}}\nnodes: {{n: {{count: {nodes}}}}}\n"))
    };
    let small = file("one250", 0, 250);
    let large = file("one1000", 0, 1000);
    let spread = file("four250", MOST, 1000);
    let up = |lab: &str, file: &PathBuf, nodes: f64| {
        let (sent, before) = (sent(machines), busy());
        let took = seconds(|| drop(machines.run(0, ["up", "--quiet", arg(file)])));
        let (used, sent) = (busy() - before, self::sent(machines) - sent);
        machines.run(0, ["down", lab]);
        vec![
            less("up", "s", took),
            less("processor time, a node", "ms", used * 1000.0 / nodes),
            less("on the wire, a node", "KiB", sent / 1024.0 / nodes),
        ]
    };
    let mut ways = [
        Way::new("1 machine, 250 nodes", || up("one250", &small, 250.0)),
        Way::new("1 machine, 1000 nodes", || up("one1000", &large, 1000.0)),
        Way::new("4 machines, 250 nodes each", || up("four250", &spread, 1000.0)),
    ];
    compare("Bringing nodes up on several machines", 3, &mut ways);
}

/// Bytes that the cards of all machines have sent.
fn sent(machines: &Machines) -> f64 {
    let of = |machine: usize| {
        let words = ["-s", "-j", "link", "show", "dev", "eth0"];
        let said = must(machines.program(machine, "ip").args(words)).stdout;
        let links: serde_json::Value = serde_json::from_slice(&said).expect("ip writes JSON");
        links[0]["stats64"]["tx"]["bytes"].as_f64().expect("a count of bytes")
    };
    (0..MOST).map(of).sum()
}

/// How late events are on four machines, and how far apart the machines carry one out.
fn control(machines: &Machines) {
    let file = lab(machines, "late", MOST, &format!("nodes: {{n: {{count: {MOST}}}}}\n"));
    let scenario = machines.path().join("events.yaml");
    std::fs::write(&scenario, EVENTS).expect("the scenario can be written");
    machines.run(0, ["up", "--quiet", arg(&file)]);
    let mut round = 0;
    let play = || {
        round += 1;
        let out = machines.path().join(format!("out-{round}"));
        machines.run(0, ["play", "--quiet", "late", arg(&scenario), "--out", arg(&out)]);
        let text = std::fs::read_to_string(out.join("events.jsonl")).expect("there is a log");
        samples(&Played::read(&text).expect("the log is what it should be"))
    };
    compare("10,000 events over 4 machines", 2, &mut [Way::new("play", play)]);
    machines.run(0, ["down", "late"]);
}

fn samples(played: &Played) -> Vec<Sample> {
    let summary = &played.end().expect("it was played to its end").summary;
    assert_eq!((summary.done, summary.failed), (10_000, 0), "{summary:?}");
    let late = Lateness::of(played.events().flat_map(|event| &event.machines).filter_map(|on| on.late).collect());
    let apart = Lateness::of(played.events().filter_map(skew).collect());
    let figures = |what: &str, of: Option<Lateness>| {
        let of = of.expect("events took effect");
        let figure = |share: &str, nanoseconds: u64| less(&format!("{what}, {share}"), "ms", nanoseconds as f64 / 1e6);
        [figure("median", of.p50), figure("99 %", of.p99), figure("most", of.max)]
    };
    figures("late on a machine", late).into_iter().chain(figures("machines apart", apart)).collect()
}

/// From the first machine that began to carry an event out to the last, nanoseconds, by the clocks as they were compared.
fn skew(event: &Event) -> Option<u64> {
    let begun = || event.machines.iter().filter_map(|on| on.begun);
    Some(begun().max()? - begun().min()?)
}

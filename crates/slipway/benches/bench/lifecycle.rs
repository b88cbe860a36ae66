//! What a lab costs to make, to enter, to hold and to take down. `cargo bench -p slipway --bench bench -- lifecycle`.
//!
//! Promises: SPECIFICATION.md, "Lifecycle". Mininet is Debian's, with Linux bridges.

use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{Slipway, Way, arg, compare, less, pss, run as program, seconds};

pub(super) fn run() {
    let slipway = Slipway::new();
    beside_mininet(&slipway);
    by_size(&slipway);
    entering(&slipway);
    memory(&slipway);
}

fn lab(slipway: &Slipway, nodes: usize) -> std::path::PathBuf {
    slipway.lab(&format!("bench{nodes}"), &format!("nodes:\n  n: {{count: {nodes}}}\n"))
}

pub(super) fn up_and_down(slipway: &Slipway, nodes: usize) -> f64 {
    let file = lab(slipway, nodes);
    let took = seconds(|| {
        slipway.run(&["up", arg(&file)]);
        slipway.run(&["down", &format!("bench{nodes}")]);
    });
    settle();
    took
}

/// Waits until the kernel has taken apart what the last run left it, which must not fall into the next one's time. It
/// does so in the background, in order (`cleanup_net` in `net/core/net_namespace.c`): when a namespace given up now is
/// gone, and the device in it with its other end, so are all before it.
fn settle() {
    let [last, other] = ["last", "other"].map(|name| format!("slipway-bench-{name}-{}", std::process::id()));
    let ip = |words: &[&str]| Command::new("ip").args(words).output().expect("ip runs");
    ip(&["netns", "add", &last]);
    ip(&["netns", "add", &other]);
    ip(&["-n", &last, "link", "add", "a", "type", "veth", "peer", "name", "b", "netns", &other]);
    ip(&["netns", "del", &last]);
    let begun = Instant::now();
    while ip(&["-n", &other, "link", "show", "b"]).status.success() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(20));
    }
    ip(&["netns", "del", &other]);
}

fn beside_mininet(slipway: &Slipway) {
    let figure = "up + down, 100 nodes on one bridge";
    let mininet = || {
        let took = seconds(|| {
            program(Command::new("mn").args(["--switch", "lxbr", "--topo", "single,100", "--test", "none"]));
        });
        settle();
        vec![less(figure, "s", took)]
    };
    let ours = || vec![less(figure, "s", up_and_down(slipway, 100))];
    compare("A hundred nodes", 10, &mut [Way::new("mininet", mininet), Way::new("slipway", ours)]);
}

fn by_size(slipway: &Slipway) {
    let figure = "up + down, per node";
    let per_node = |nodes: u16| {
        move || vec![less(figure, "ms", up_and_down(slipway, usize::from(nodes)) * 1000.0 / f64::from(nodes))]
    };
    let mut ways = [
        Way::new("100 nodes", per_node(100)),
        Way::new("200 nodes", per_node(200)),
        Way::new("1000 nodes", per_node(1000)),
    ];
    compare("Cost of a node by the size of the lab", 5, &mut ways);
}

fn entering(slipway: &Slipway) {
    const RUNS: u32 = 50;
    let file = lab(slipway, 2);
    slipway.run(&["up", arg(&file)]);
    let each = |program: &dyn Fn()| {
        vec![less("one /bin/true", "ms", seconds(|| (0..RUNS).for_each(|_| program())) * 1000.0 / f64::from(RUNS))]
    };
    let bare = || each(&|| drop(program(&mut Command::new("/bin/true"))));
    let entered = || each(&|| drop(slipway.run(&["exec", "bench2", "n1", "--", "/bin/true"])));
    compare("A program in a node", 10, &mut [Way::new("bare", bare), Way::new("slipway exec", entered)]);
    slipway.run(&["down", "bench2"]);
}

/// The memory of the anchor and every init that no other process shares, and its share of what they do (PSS).
fn memory(slipway: &Slipway) {
    let file = lab(slipway, 200);
    slipway.run(&["up", arg(&file)]);
    let kib: u64 = processes_of_slipway().iter().map(pss).sum();
    slipway.run(&["down", "bench200"]);
    println!(
        "### Memory of a lab of 200 nodes\n\nanchor and inits, proportional set size: {kib} KiB, {} KiB a node\n",
        kib / 200
    );
}

fn processes_of_slipway() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if matches!(name.trim(), "slipway-anchor" | "slipway-init") {
            found.push(pid);
        }
    }
    found
}

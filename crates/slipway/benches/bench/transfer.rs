//! Data sets between two nodes: `slipway transfer` beside rsync and scp over ssh.
//! `cargo bench -p slipway --bench bench -- transfer`.
//!
//! All three start over ssh and fill an empty directory. Rates are of the set's bytes, from the start of the command to its
//! end. Nodes may use every congestion control of the kernel, and transfers choose one. Processor time is the whole machine's,
//! with the link's own, which is the same for all. `--small` measures the small files alone.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use slipway_measure::probe::Sample;

use super::campaign::busy;
use super::common::{Slipway, Way, arg, compare, less, more, seconds};

const LAB: &str = "bench-transfer";
/// The set's place in the sender, and where it goes in the receiver.
const SET: &str = "/set/";
const INTO: &str = "/scratch/in/";
/// Megabytes of the large file, and small files of 4 KiB.
const LARGE: usize = 512;
const SMALL: usize = 10_000;

/// The link between the two nodes.
struct Link {
    name: &'static str,
    conditions: &'static str,
    rounds: u32,
}

const LARGE_OVER: [Link; 4] = [
    Link { name: "unshaped", conditions: "", rounds: 5 },
    Link { name: "2 Gbit/s, 10 ms", conditions: "delay: 5ms, rate: 2gbit, limit: 20000", rounds: 5 },
    Link { name: "2 Gbit/s, 80 ms", conditions: "delay: 40ms, rate: 2gbit, limit: 40000", rounds: 5 },
    Link {
        name: "2 Gbit/s, 80 ms, 0.1 % loss",
        conditions: "delay: 40ms, loss: 0.1%, rate: 2gbit, limit: 40000",
        rounds: 3,
    },
];
const SMALL_OVER: Link = Link { name: "10 ms", conditions: "delay: 5ms", rounds: 3 };

pub(super) fn run() {
    let slipway = Slipway::new();
    let only_small = std::env::args().any(|word| word == "--small");
    let large = tempfile::tempdir().expect("a temporary folder");
    fill(&large.path().join("large"), LARGE);
    for path in LARGE_OVER.into_iter().filter(|_| !only_small) {
        beside(&slipway, &path, large.path(), &format!("{LARGE} MB in one file"), LARGE as f64 * 1e6);
    }
    let small = tempfile::tempdir().expect("a temporary folder");
    for number in 0..SMALL {
        fs::write(small.path().join(format!("{number}")), &number.to_string().repeat(4096).as_bytes()[..4096])
            .expect("a small file can be written");
    }
    beside(&slipway, &SMALL_OVER, small.path(), &format!("{SMALL} files of 4 KiB"), SMALL as f64 * 4096.0);
}

/// Bytes that do not compress.
fn fill(path: &Path, megabytes: usize) {
    let mut file = File::create(path).expect("the set can be written");
    let (mut state, mut block) = (1_u64, vec![0_u8; 1_000_000]);
    for _ in 0..megabytes {
        for bytes in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block).expect("the set can be written");
    }
}

fn beside(slipway: &Slipway, path: &Link, set: &Path, what: &str, bytes: f64) {
    let is_many = fs::read_dir(set).expect("the set is there").nth(1).is_some();
    let Link { name, conditions, rounds } = path;
    let text = format!(
        "lab: {LAB}\nnetworks: {{net: {{driver: bridge, conditions: {{{conditions}}}}}}}\nnodes:\n  n:\n    count: 2\n    sshd: true\n    \
         capabilities: [NET_ADMIN]\n    mounts: [\"{}:/set:ro\"]\n",
        set.display()
    );
    let file = slipway.lab(LAB, &text);
    slipway.run(&["up", "--quiet", arg(&file)]);
    let ours = env!("CARGO_BIN_EXE_slipway");
    let into = format!("n2:{INTO}");
    let figures = |words: &[&str]| {
        slipway.run(&["exec", LAB, "n2", "--", "sh", "-c", &format!("rm -rf {INTO} && mkdir {INTO}")]);
        let before = busy();
        let took = seconds(|| drop(slipway.run(&[&["exec", LAB, "n1", "--"], words].concat())));
        let spent = busy() - before;
        slipway.run(&["exec", LAB, "n2", "--", "test", "-e", &format!("{INTO}{}", first(set))]);
        vec![more("rate", "Gbit/s", bytes * 8.0 / took / 1e9), less("processor time of a GB", "s", spent / bytes * 1e9)]
    };
    let each =
        |words: Vec<String>| move || -> Vec<Sample> { figures(&words.iter().map(String::as_str).collect::<Vec<_>>()) };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut ways = vec![Way::new("rsync over ssh", each(words(&["rsync", "-a", SET, &into])))];
    // It waits some round trips for each file: minutes where there are many.
    if !is_many {
        ways.push(Way::new("scp", each(words(&["sh", "-c", &format!("scp -q -r {SET}* {into}")]))));
    }
    ways.push(Way::new("slipway transfer", each(words(&[ours, "--quiet", "transfer", "--remote", ours, SET, &into]))));
    compare(&format!("{what}, {name}"), *rounds, &mut ways);
    drop(ways);
    slipway.run(&["down", "--quiet", LAB]);
}

/// The name of one file of the set.
fn first(set: &Path) -> String {
    let entry = fs::read_dir(set).expect("the set is there").flatten().next().expect("it has a file");
    entry.file_name().to_string_lossy().into_owned()
}

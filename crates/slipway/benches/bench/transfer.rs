//! Data sets between two nodes: `slipway transfer` beside rsync and scp over ssh.
//! `cargo bench -p slipway --bench bench -- transfer`.
//!
//! All three start over ssh and fill an empty directory. Rates are of the set's bytes, from the start of the command to its
//! end. Nodes may use every congestion control of the kernel, and transfers choose one. Processor time is the whole machine's,
//! with the link's own, which is the same for all.
//!
//! `--small` measures the small files alone, and `--large` the large one alone. `--link 'TEXT'` takes the links whose names
//! contain TEXT. `--megabytes N` sets the size of the large file, `--files N` the number of small ones, `--rounds N` the
//! rounds. With `--ours`, scp is left out, and rsync where a file is large. Unshaped, iperf3 and fio show the limits.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use slipway_measure::probe::Sample;

use super::campaign::busy;
use super::common::{Slipway, Way, arg, compare, less, more, seconds};

const LAB: &str = "bench-transfer";
/// The set's place in the sender.
const SET: &str = "/set/";
/// Megabytes of the large file, and small files of 4 KiB.
const LARGE: usize = 512;
const SMALL: usize = 100_000;

/// The link between the two nodes.
struct Link {
    name: &'static str,
    conditions: &'static str,
    rounds: u32,
}

const fn link(name: &'static str, conditions: &'static str, rounds: u32) -> Link {
    Link { name, conditions, rounds }
}

const LARGE_OVER: [Link; 10] = [
    link("unshaped", "", 5),
    link("2 Gbit/s, 0 ms, no loss", "rate: 2gbit, limit: 20000", 5),
    link("2 Gbit/s, 0 ms, 0.01 % loss", "loss: 0.01%, rate: 2gbit, limit: 20000", 3),
    link("2 Gbit/s, 0 ms, 0.1 % loss", "loss: 0.1%, rate: 2gbit, limit: 20000", 3),
    link("2 Gbit/s, 10 ms, no loss", "delay: 5ms, rate: 2gbit, limit: 20000", 5),
    link("2 Gbit/s, 10 ms, 0.01 % loss", "delay: 5ms, loss: 0.01%, rate: 2gbit, limit: 20000", 3),
    link("2 Gbit/s, 10 ms, 0.1 % loss", "delay: 5ms, loss: 0.1%, rate: 2gbit, limit: 20000", 3),
    link("2 Gbit/s, 80 ms, no loss", "delay: 40ms, rate: 2gbit, limit: 40000", 5),
    link("2 Gbit/s, 80 ms, 0.01 % loss", "delay: 40ms, loss: 0.01%, rate: 2gbit, limit: 40000", 3),
    link("2 Gbit/s, 80 ms, 0.1 % loss", "delay: 40ms, loss: 0.1%, rate: 2gbit, limit: 40000", 3),
];
const SMALL_OVER: Link = link("10 ms", "delay: 5ms", 5);

/// The part of the benchmark that the command line chooses.
struct Choice {
    words: Vec<String>,
}

impl Choice {
    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// The value behind `name`.
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.value(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name} {text}: not a number")))
    }

    fn takes(&self, link: &Link) -> bool {
        self.value("--link").is_none_or(|text| link.name.contains(text))
    }
}

pub(super) fn run() {
    let slipway = Slipway::new();
    let choice = Choice { words: std::env::args().collect() };
    let megabytes = choice.number("--megabytes").unwrap_or(LARGE);
    let large = tempfile::tempdir().expect("a temporary folder");
    if !choice.has("--small") {
        fill(&large.path().join("large"), megabytes);
        for link in LARGE_OVER.into_iter().filter(|link| choice.takes(link)) {
            let what = format!("{megabytes} MB in one file");
            beside(&slipway, &choice, &link, large.path(), &what, megabytes as f64 * 1e6);
        }
    }
    if choice.has("--large") || !choice.takes(&SMALL_OVER) {
        return;
    }
    let files = choice.number("--files").unwrap_or(SMALL);
    let small = tempfile::tempdir().expect("a temporary folder");
    for number in 0..files {
        fs::write(small.path().join(format!("{number}")), &number.to_string().repeat(4096).as_bytes()[..4096])
            .expect("a small file can be written");
    }
    beside(&slipway, &choice, &SMALL_OVER, small.path(), &format!("{files} files of 4 KiB"), files as f64 * 4096.0);
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

fn beside(slipway: &Slipway, choice: &Choice, link: &Link, set: &Path, what: &str, bytes: f64) {
    let is_many = fs::read_dir(set).expect("the set is there").nth(1).is_some();
    let Link { name, conditions, rounds } = link;
    let rounds = choice.number("--rounds").and_then(|rounds| u32::try_from(rounds).ok()).unwrap_or(*rounds);
    let text = format!(
        "lab: {LAB}\nnetworks: {{net: {{driver: bridge, conditions: {{{conditions}}}}}}}\nnodes:\n  n:\n    count: 2\n    sshd: true\n    \
         capabilities: [NET_ADMIN]\n    mounts: [\"{}:/set:ro\"]\n",
        set.display()
    );
    let file = slipway.lab(LAB, &text);
    slipway.run(&["up", "--quiet", arg(&file)]);
    let ours = env!("CARGO_BIN_EXE_slipway");
    let turn = Cell::new(0);
    // A file system may look for new inodes longer where many were freed just now: each turn has a folder of its own.
    let into = || {
        turn.set(turn.get() + 1);
        format!("/scratch/in{}/", turn.get())
    };
    let on = |node: &str, words: &[&str]| drop(slipway.run(&[&["exec", LAB, node, "--"], words].concat()));
    let figures = |words: &[&str]| {
        let before = busy();
        let took = seconds(|| on("n1", words));
        let spent = busy() - before;
        vec![more("rate", "Gbit/s", bytes * 8.0 / took / 1e9), less("processor time of a GB", "s", spent / bytes * 1e9)]
    };
    // `{}` in a word stands for the folder.
    let copy = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (into, on, figures) = (&into, &on, &figures);
        move || -> Vec<Sample> {
            let folder = into();
            on("n2", &["mkdir", &folder]);
            let words: Vec<String> = words.iter().map(|word| word.replace("{}", &folder)).collect();
            let samples = figures(&words.iter().map(String::as_str).collect::<Vec<_>>());
            on("n2", &["test", "-e", &format!("{folder}{}", first(set))]);
            // Large files would fill the disk, and cost few inodes.
            if !is_many {
                on("n2", &["rm", "-rf", &folder]);
            }
            samples
        }
    };
    let tcp = format!("iperf3 --client n2 --parallel 4 --bytes {bytes} > /dev/null");
    let disk = format!(
        "fio --name=w --filename=/scratch/fio --rw=write --bs=1M --size={bytes} --end_fsync=1 > /dev/null && rm /scratch/fio"
    );
    let mut ways = Vec::new();
    if is_many || !choice.has("--ours") {
        ways.push(Way::new("rsync over ssh", copy(&["rsync", "-a", SET, "n2:{}"])));
    }
    // It waits some round trips for each file: minutes where there are many.
    if !is_many && !choice.has("--ours") {
        ways.push(Way::new("scp", copy(&["sh", "-c", &format!("scp -q -r {SET}* n2:{{}}")])));
    }
    if conditions.is_empty() {
        ways.push(Way::new("iperf3, 4 streams", || {
            on("n2", &["sh", "-c", "iperf3 --server --one-off --daemon && sleep 0.2"]);
            figures(&["sh", "-c", &tcp])
        }));
        ways.push(Way::new("fio, one file", || figures(&["sh", "-c", &disk])));
    }
    let transfer = [ours, "--quiet", "transfer", "--remote", ours, SET, "n2:{}"];
    ways.push(Way::new("slipway transfer", copy(&transfer)));
    // rsync and scp do not wait for the disk.
    ways.push(Way::new("slipway transfer --no-sync", copy(&[&transfer[..3], &["--no-sync"], &transfer[3..]].concat())));
    compare(&format!("{what}, {name}"), rounds, &mut ways);
    drop(ways);
    slipway.run(&["down", "--quiet", LAB]);
}

/// The name of one file of the set.
fn first(set: &Path) -> String {
    let entry = fs::read_dir(set).expect("the set is there").flatten().next().expect("it has a file");
    entry.file_name().to_string_lossy().into_owned()
}

//! Data sets between two nodes: `slipway transfer` beside rsync and scp over ssh, and beside what else moves data sets.
//! `cargo bench -p slipway --bench bench -- transfer`.
//!
//! All three start over ssh and fill an empty directory. Rates are of the set's bytes, from the start of the command to its
//! end. Nodes may use every congestion control of the kernel, and transfers choose one. Processor time is that of all
//! programs in both nodes; the link's own is not in it.
//!
//! The first way is the limit: the path's rate, or unshaped the smaller of iperf3's and fio's in the same round. Another
//! table has ratios to rsync. Over shaped links iperf3 with BBR shows the part of the path's rate that TCP can have.
//!
//! `--matrix` takes all nine links of 2 Gbit/s: 0, 10 and 80 ms, by no loss, 0.01 % and 0.1 %. Without it, four links show the
//! most. `--peers` adds `GridFTP`, `XRootD` and rclone; with many files, rclone only where it is asked for. `--only 'TEXT'` takes the ways whose names contain TEXT, besides the
//! limit. `--small` measures the small files alone, and `--large` the large one alone. `--link 'TEXT'` takes the links whose
//! names contain TEXT. `--megabytes N` sets the size of the large file, `--files N` the number of small ones, `--rounds N`
//! the rounds.

mod peers;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use slipway_measure::probe::Sample;

use super::common::{Slipway, Way, arg, compare_with, less, more, seconds};
use peers::Serving;

const LAB: &str = "bench-transfer";
/// The set's place in the sender.
const SET: &str = "/set/";
/// Megabytes of the large file, and small files of 4 KiB.
const LARGE: usize = 512;
const SMALL: usize = 100_000;

/// The rate of shaped links, Gbit/s.
const RATE: f64 = 2.0;
const RSYNC: &str = "rsync over ssh";

/// The link between the two nodes.
struct Link {
    name: &'static str,
    conditions: &'static str,
    rounds: u32,
}

const fn link(name: &'static str, conditions: &'static str, rounds: u32) -> Link {
    Link { name, conditions, rounds }
}

impl Link {
    /// Whether it is measured where nobody asks for more.
    fn shows_most(&self) -> bool {
        ["unshaped", "10 ms, no loss", "80 ms, no loss", "80 ms, 0.1 % loss"].iter().any(|end| self.name.ends_with(end))
    }
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

    fn takes_large(&self, link: &Link) -> bool {
        let wanted = if self.has("--matrix") { !link.conditions.is_empty() } else { link.shows_most() };
        self.takes(link) && (wanted || self.value("--link").is_some())
    }

    fn takes_way(&self, name: &str) -> bool {
        self.value("--only").is_none_or(|text| name.contains(text))
    }
}

pub(super) fn run() {
    let slipway = Slipway::new();
    let choice = Choice { words: std::env::args().collect() };
    let megabytes = choice.number("--megabytes").unwrap_or(LARGE);
    let large = tempfile::tempdir().expect("a temporary folder");
    if !choice.has("--small") {
        fill(&large.path().join("large"), megabytes);
        for link in LARGE_OVER.into_iter().filter(|link| choice.takes_large(link)) {
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

/// Measures one set over one link.
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
    let peers = if choice.has("--peers") { peers::all(ours, SET) } else { Vec::new() };
    let takes = |peer: &peers::Peer| choice.takes_way(peer.name) && !(is_many && peer.waits && !choice.has("--only"));
    let peers: Vec<_> = peers.into_iter().filter(takes).collect();
    let serving = Serving::start(slipway, LAB, &peers);
    let run = Run { slipway, set, bytes, is_many, turn: Cell::new(0) };
    let limit = if conditions.contains("rate:") {
        Some(Way::new("the path", || vec![more("rate", "Gbit/s", RATE)]))
    } else {
        conditions.is_empty().then(|| Way::new("iperf3 or fio, the smaller", || run.limit()))
    };
    let over_ssh = |options: &[&str]| {
        let begin = [ours, "--quiet", "transfer", "--remote", ours];
        run.copy(&[&begin, options, &[SET, "n2:{}"]].concat(), "")
    };
    let mut ways = vec![Way::new(RSYNC, run.copy(&["rsync", "-a", SET, "n2:{}"], ""))];
    // It waits some round trips for each file: minutes where there are many.
    if !is_many {
        ways.push(Way::new("scp", run.copy(&["sh", "-c", &format!("scp -q -r {SET}* n2:{{}}")], "")));
    }
    ways.push(Way::new("slipway transfer", over_ssh(&[])));
    // No other program waits for the disk.
    ways.push(Way::new("slipway transfer --no-sync", over_ssh(&["--no-sync"])));
    ways.extend(peers.iter().map(|peer| Way::new(peer.name, run.copy(&peer.client(is_many), peer.below))));
    if conditions.contains("rate:") {
        ways.push(Way::new("iperf3, 8 streams of BBR", || run.path(8, "--congestion bbr")));
    }
    ways.retain(|way| choice.takes_way(way.name));
    let has_rsync = ways.iter().any(|way| way.name == RSYNC);
    let baselines: &[&str] = if limit.is_some() && has_rsync { &[RSYNC] } else { &[] };
    let mut ways: Vec<_> = limit.into_iter().chain(ways).collect();
    compare_with(&format!("{what}, {name}"), rounds, &mut ways, baselines);
    drop(ways);
    drop(serving);
    slipway.run(&["down", "--quiet", LAB]);
}

/// One set over one link, run by run.
struct Run<'a> {
    slipway: &'a Slipway,
    set: &'a Path,
    bytes: f64,
    is_many: bool,
    turn: Cell<u32>,
}

impl<'r> Run<'r> {
    fn on(&self, node: &str, words: &[&str]) {
        self.slipway.run(&[&["exec", LAB, node, "--"], words].concat());
    }

    /// Processor time of all programs in both nodes so far, in seconds.
    fn spent(&self) -> f64 {
        let output = self.slipway.run(&["ps", LAB, "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let nodes = found["nodes"].as_array().expect("nodes").iter();
        nodes.map(|node| node["usage"]["cpu_ns"].as_f64().expect("it counts")).sum::<f64>() / 1e9
    }

    /// The rate of a command in node `n1`, and both nodes' processor time.
    fn figures(&self, words: &[&str]) -> Vec<Sample> {
        let before = self.spent();
        let took = seconds(|| self.on("n1", words));
        let spent = self.spent() - before;
        vec![
            more("rate", "Gbit/s", self.bytes * 8.0 / took / 1e9),
            less("processor time of a GB", "s", spent / self.bytes * 1e9),
        ]
    }

    /// A command that copies into an empty folder, for which `{}` stands in a word. The files come to lie in `below` there.
    fn copy<'a>(&'a self, words: &[&str], below: &str) -> impl FnMut() -> Vec<Sample> + use<'a, 'r> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let below = below.to_owned();
        move || {
            // A file system may look for new inodes longer where many were freed just now: each turn has a folder of its own.
            self.turn.set(self.turn.get() + 1);
            let folder = format!("/scratch/in{}/", self.turn.get());
            // Some servers give up root.
            self.on("n2", &["mkdir", "-m", "777", &folder]);
            let words: Vec<String> = words.iter().map(|word| word.replace("{}", &folder)).collect();
            let samples = self.figures(&words.iter().map(String::as_str).collect::<Vec<_>>());
            self.on("n2", &["test", "-s", &format!("{folder}{below}{}", first(self.set))]);
            // Large files would fill the disk, and cost few inodes.
            if !self.is_many {
                self.on("n2", &["rm", "-rf", &folder]);
            }
            samples
        }
    }

    /// As many bytes by iperf3, from memory to memory.
    fn path(&self, streams: u32, options: &str) -> Vec<Sample> {
        let _server = Serving::iperf3(self.slipway, LAB);
        let client = format!("iperf3 --client n2 --parallel {streams} --bytes {} {options} > /dev/null", self.bytes);
        self.figures(&["sh", "-c", &client])
    }

    /// The rates of path and disk, one after the other, and the smaller as the limit.
    fn limit(&self) -> Vec<Sample> {
        let bytes = self.bytes;
        let path = self.path(4, "");
        let write = format!("fio --name=w --filename=/scratch/fio --rw=write --bs=1M --size={bytes} --end_fsync=1");
        let took = seconds(|| self.on("n2", &["sh", "-c", &format!("{write} > /dev/null && rm /scratch/fio")]));
        let [path, disk] = [path[0].value, bytes * 8.0 / took / 1e9];
        vec![
            more("rate", "Gbit/s", path.min(disk)),
            more("rate of iperf3, 4 streams", "Gbit/s", path),
            more("rate of fio, one file", "Gbit/s", disk),
        ]
    }
}

/// The name of one file of the set.
fn first(set: &Path) -> String {
    let entry = fs::read_dir(set).expect("the set is there").flatten().next().expect("it has a file");
    entry.file_name().to_string_lossy().into_owned()
}

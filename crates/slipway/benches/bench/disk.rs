//! How well a disk is held to its limits. `cargo bench -p slipway --bench bench -- disk`.
//!
//! A program in the node does what takes two seconds at the pace that was asked for, past the page cache (direct) or
//! through it (buffered: what was written is on the disk when the clock stops; what is read was thrown out of the cache
//! before, and nothing is read ahead). Operations a second are counted direct only: what the cache makes of a program's operations is the kernel's.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, OFlags, fadvise};
use slipway_sys::block::Device;

use super::common::{Slipway, arg};

/// The word that makes this program the load instead of the benchmark.
pub(super) const LOAD: &str = "disk-load";

const ROUNDS: usize = 5;
/// Seconds at the pace asked for: until the kernel knows it, and measured.
const TIMES: [f64; 2] = [0.3, 2.0];
/// Where no limit is asked, as much as this many operations a second would be.
const FREE_OPERATIONS: f64 = 400.0;
const FILE: &str = "/scratch/data";
const FILE_BYTES: u64 = 256 << 20;
/// Of an operation where bandwidth is asked, and where operations are.
const BLOCKS: [u64; 2] = [256 << 10, 4 << 10];
/// What direct I/O is to be aligned to on any disk.
const ALIGNMENT: usize = 4096;

/// One row of the table.
struct Case {
    node: &'static str,
    action: &'static str,
    way: &'static str,
    asked: Asked,
    /// Operations a second.
    measured: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Asked {
    MegabytesPerSecond(u32),
    OperationsPerSecond(u32),
    Nothing,
}

impl Asked {
    fn block(self) -> u64 {
        BLOCKS[usize::from(matches!(self, Self::OperationsPerSecond(_)))]
    }

    /// The pace in operations a second.
    #[expect(clippy::cast_precision_loss, reason = "a block is small")]
    fn operations(self) -> f64 {
        match self {
            Self::MegabytesPerSecond(rate) => f64::from(rate) * 1e6 / self.block() as f64,
            Self::OperationsPerSecond(rate) => f64::from(rate),
            Self::Nothing => FREE_OPERATIONS,
        }
    }
}

pub(super) fn run() {
    let slipway = Slipway::new();
    let exe = std::env::current_exe().expect("this program has a file");
    let mounts = format!("mounts: [\"{}:/bench:ro\"]", exe.display());
    let text = format!("lab: disk\nnodes:\n  own: {{{mounts}, disk: {{size: 512MiB}}}}\n  shared: {{{mounts}}}\n");
    let file = slipway.lab("disk", &text);
    let machines = Device::of(file.parent().expect("a folder")).expect("it is there").is_some();
    let mut cases = cases();
    cases.retain(|case| machines || case.node == "own");
    slipway.run(&["up", arg(&file)]);
    for node in ["own", "shared"] {
        let (target, count) = (format!("of={FILE}"), format!("count={}", FILE_BYTES >> 20));
        let zeros = ["dd", "if=/dev/zero", &target, "bs=1M", &count, "oflag=direct", "status=none"];
        slipway.run(&[&["exec", "disk", node, "--"][..], &zeros].concat());
    }
    for round in 0..ROUNDS {
        for case in &mut cases {
            measure(&slipway, case, round);
        }
    }
    slipway.run(&["down", "disk"]);
    println!("### Disk limits\n\nMedian of {ROUNDS} (least – most)\n");
    println!("| disk | operation | asked | measured | off |\n| --- | --- | ---: | ---: | ---: |");
    cases.into_iter().for_each(print);
    if !machines {
        println!("\nBelow the scratch folder is no block device whose share could be limited.");
    }
    println!();
}

fn cases() -> Vec<Case> {
    use Asked::{MegabytesPerSecond, Nothing, OperationsPerSecond};
    let mut cases = Vec::new();
    let mut add = |node, action, way, asked| cases.push(Case { node, action, way, asked, measured: Vec::new() });
    for action in ["read", "write"] {
        add("own", action, "direct", Nothing);
        for way in ["direct", "buffered"] {
            for rate in [1, 10, 100] {
                add("own", action, way, MegabytesPerSecond(rate));
            }
        }
        for rate in [100, 1000] {
            add("own", action, "direct", OperationsPerSecond(rate));
        }
        for way in ["direct", "buffered"] {
            add("shared", action, way, MegabytesPerSecond(10));
        }
    }
    cases
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand operations")]
fn measure(slipway: &Slipway, case: &mut Case, round: usize) {
    let Case { node, action, way, asked, measured } = case;
    let limit = match asked {
        Asked::MegabytesPerSecond(rate) => Some(format!("disk.{action}={rate}MB/s")),
        Asked::OperationsPerSecond(rate) => Some(format!("disk.{action}_iops={rate}")),
        Asked::Nothing => None,
    };
    if let Some(limit) = &limit {
        slipway.run(&["set", "disk", node, limit]);
    }
    let block = asked.block().to_string();
    let [before, counted] = TIMES.map(|time| ((asked.operations() * time).round() as u64).max(1));
    let (before, operations) = (before.to_string(), counted.to_string());
    let output = slipway.run(&["exec", "disk", node, "--", "/bench", LOAD, action, way, &block, &before, &operations]);
    let text = String::from_utf8_lossy(&output.stdout);
    let pace: f64 = text.trim().parse().expect("the load says its pace");
    measured.push(pace);
    eprintln!("disk {node}, {action}, {way}, {}: round {round}, {}", said(*asked), figure(*asked, pace));
    if let Some((key, _)) = limit.as_deref().and_then(|limit| limit.split_once('=')) {
        slipway.run(&["set", "disk", node, &format!("{key}=none")]);
    }
}

fn said(asked: Asked) -> String {
    match asked {
        Asked::MegabytesPerSecond(rate) => format!("{rate} MB/s"),
        Asked::OperationsPerSecond(rate) => format!("{rate} /s"),
        Asked::Nothing => "no limit".to_owned(),
    }
}

/// A pace in the unit that it was asked in.
#[expect(clippy::cast_precision_loss, reason = "a block is small")]
fn figure(asked: Asked, pace: f64) -> String {
    match asked {
        Asked::OperationsPerSecond(_) => format!("{pace:.1}"),
        _ => format!("{:.2}", pace * asked.block() as f64 / 1e6),
    }
}

fn print(case: Case) {
    let Case { node, action, way, asked, mut measured } = case;
    measured.sort_by(f64::total_cmp);
    let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|index| measured[index]);
    let off = match asked {
        Asked::Nothing => "–".to_owned(),
        _ => format!("{:+.1} %", (median / asked.operations() - 1.0) * 100.0),
    };
    let [low, middle, high] = [least, median, most].map(|pace| figure(asked, pace));
    println!("| {node} | {action}, {way} | {} | {middle} ({low} – {high}) | {off} |", said(asked));
}

/// The load: prints its pace in operations a second.
pub(super) fn load(words: [&str; 5]) {
    let [action, way, block, before, operations] = words;
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let (block, before, operations) = (number(block), number(before), number(operations));
    let (direct, write) = (way == "direct", action == "write");
    let pace = pace(Path::new(FILE), direct, write, block, [before, operations]);
    println!("{}", pace.expect("the disk can be read and written"));
}

#[expect(clippy::cast_precision_loss, reason = "some thousand operations")]
fn pace(path: &Path, direct: bool, write: bool, block: u64, [before, operations]: [u64; 2]) -> io::Result<f64> {
    let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let file = File::options().read(true).write(write).custom_flags(flags.bits().cast_signed()).open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let length = usize::try_from(block).expect("small");
    let mut room = vec![0; length + ALIGNMENT];
    let aligned = room.as_ptr().align_offset(ALIGNMENT);
    let bytes = &mut room[aligned..aligned + length];
    let mut go = |operations: std::ops::Range<u64>| {
        operations
            .map(|number| number * block % FILE_BYTES)
            .try_for_each(|at| if write { file.write_all_at(bytes, at) } else { file.read_exact_at(bytes, at) })?;
        if write { file.sync_data() } else { Ok(()) }
    };
    go(0..before)?;
    let begun = Instant::now();
    go(before..before + operations)?;
    Ok(operations as f64 / begun.elapsed().as_secs_f64())
}

//! Campaigns: `cargo bench -p slipway --bench bench -- campaign-overhead`, `-memory`, `-storage`, `-elastic` or `-energyplus`.
//!
//! `--points=N` sets the number of points of the first two and the last, `--seconds=N` the length of the day. With `--quick`
//! all are small. Peers are installed into `target/bench-venv` at the first run.
//!
//! Promises: SPECIFICATION.md, "Campaigns".

mod elastic;
mod energyplus;
mod overhead;
mod storage;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::common::{self, Slipway};

pub(super) use elastic::run as elastic;
pub(super) use energyplus::run as energyplus;
pub(super) use overhead::{memory, run as overhead};
pub(super) use storage::run as storage;

/// Versions of the peers, as pip knows them.
const PEERS: [&str; 2] = ["hyperqueue==0.27.0", "distributed==2026.8.0"];
/// Workers at once: the processors of this machine.
static WORKERS: LazyLock<u32> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1)));

/// A number that `--NAME=N` sets.
fn option(name: &str, usual: u32, quick: u32) -> u32 {
    let head = format!("--{name}=");
    let given = std::env::args().find_map(|word| word.strip_prefix(&head).map(str::to_owned));
    let quick = std::env::args().any(|word| word == "--quick").then_some(quick);
    given.map(|number| number.parse().expect("a number")).or(quick).unwrap_or(usual)
}

/// A campaign with a folder of its own.
struct Campaign {
    slipway: Slipway,
    folder: tempfile::TempDir,
}

impl Campaign {
    /// `text` is the file without its first line.
    fn new(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir_in(scratch()).expect("a temporary folder");
        let file = format!("campaign: {name}\n{text}");
        std::fs::write(folder.path().join("campaign.yaml"), file).expect("the campaign file can be written");
        Self { slipway: Slipway::new(), folder }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.slipway.command(&[&["--json", "campaign"], words].concat());
        command.current_dir(self.folder.path());
        command
    }

    /// Runs the campaign to its end. Returns its summary.
    fn run(&self) -> Value {
        answer(&common::run(&mut self.command(&["run"])).stdout)
    }

    fn start(&self) -> Child {
        let mut command = self.command(&["run"]);
        command.stdout(Stdio::piped()).spawn().expect("slipway can be started")
    }

    fn ask(&self, words: &[&str]) -> Value {
        answer(&common::run(&mut self.command(words)).stdout)
    }
}

fn answer(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("an answer in JSON")
}

/// A folder for large files, on the disk that builds are on: /tmp may be memory.
fn scratch() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned();
    std::fs::create_dir_all(&folder).expect("the folder for benchmarks can be made");
    folder
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/bench/campaign").join(name)
}

/// Python with the peers.
fn python() -> PathBuf {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-venv");
    let python = venv.join("bin/python");
    if !python.exists() {
        common::run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    }
    let installed = venv.join("peers");
    let wanted = PEERS.join("\n");
    if std::fs::read_to_string(&installed).ok().as_ref() != Some(&wanted) {
        common::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PEERS));
        std::fs::write(&installed, wanted).expect("the environment can be written");
    }
    python
}

/// Processor time of the whole machine since it started, in seconds: all but idle and waiting for disks (`proc_stat(5)`).
pub(super) fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat can be read");
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let all: f64 = numbers.iter().take(8).sum();
    (all - numbers[3] - numbers[4]) / ticks()
}

/// Processor time of a process alone, in seconds; `None` where it is gone (`proc_pid_stat(5)`).
fn processor_time(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / ticks())
}

fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Greatest memory of a process so far, in MiB; `None` where it is gone.
fn peak(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Looks at a process until it ends. Returns the last value that could be read.
fn watch<T>(child: &mut Child, look: impl Fn(u32) -> Option<T>) -> T {
    let mut last = None;
    loop {
        last = look(child.id()).or(last);
        if child.try_wait().expect("it can be asked").is_some() {
            return last.expect("it ran for a while");
        }
        sleep(Duration::from_millis(20));
    }
}

/// The share of a sorted list below which `share` of its values lie.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let place = ((values.len().max(1) - 1) as f64 * share).round() as usize;
    values.get(place).copied().unwrap_or(0.0)
}

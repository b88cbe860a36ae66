//! Benchmarks of a disk: sequential reads and writes of a file in a folder, by fio.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use slipway_document::units::{ByteRate, Bytes};
use slipway_measure::bottleneck::{Counters, Sides};
use slipway_measure::probe::{ENGINES, Fio, Probe, Sample};
use slipway_sys::block::Device;
use slipway_sys::signals::Taken;
use tempfile::TempDir;

use super::hold::{Hold, Readahead};
use super::watch::{Watch, Watched};
use super::{Bed, LIMIT, Plan, Ready, Task, Way, local};
use crate::StudyError;
use crate::rounds::Stop;

/// Names of both tasks, reads first.
const TASKS: [&str; 2] = ["fio read", "fio write"];
/// The requests of the limit: as large and as many at once as disks take.
const LIMIT_BLOCK: u64 = 1 << 20;
const LIMIT_DEPTH: u16 = 32;
/// A part of the free space stays free.
const ROOM: f64 = 0.9;

/// A folder on a disk, and the ways to measure it.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The folder. Files are made in a folder of their own in it, and removed.
    pub folder: PathBuf,
    /// Bytes of the file.
    pub size: Bytes,
    /// Bytes of a request, several to compare them.
    pub blocks: Vec<Bytes>,
    /// How data pass the page cache.
    pub modes: Vec<Mode>,
    /// Requests under way at once past the page cache.
    pub depth: u16,
    /// Bytes to read ahead, several to compare them. For reads through the page cache.
    pub readaheads: Vec<Bytes>,
    /// The disk's own limit; measured where `None`.
    pub limit: Option<ByteRate>,
    /// Seconds after which a pass ends early.
    pub most_seconds: u16,
}

/// How data pass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Past it (`O_DIRECT`).
    Direct,
    /// Through it. The time of a write ends when the cache has the data.
    Buffered,
    /// Writes through it; the time ends when the data are on the disk (fdatasync).
    Synced,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Buffered, Self::Synced];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Synced => "fdatasync",
        }
    }
}

/// A folder with the file that is read.
pub(super) struct Folder {
    room: TempDir,
    watched: Watched,
    timeout: Duration,
}

impl Disk {
    /// The ways of the benchmark and the origin of its limit.
    pub(super) fn describe(&self) -> (Vec<Way>, String) {
        self.ways("io_uring", &self.folder, None)
    }

    /// Makes the file to read.
    pub(super) fn prepare(&self, plan: &Plan, interrupt: &Taken) -> Result<(Ready, Folder), StudyError> {
        if !local::is_there("fio") {
            return Err(StudyError::Tool("fio"));
        }
        self.check_room()?;
        let doing = format!("make files in {}", self.folder.display());
        let folder = tempfile::Builder::new().prefix(".slipway-bench-").tempdir_in(&self.folder);
        let folder = folder.map_err(StudyError::io(doing.clone()))?;
        let device = Device::of(folder.path()).map_err(StudyError::io(doing.clone()))?;
        if !self.readaheads.is_empty() {
            self.check_readahead(device)?;
        }
        let file = File::create(folder.path().join("read")).map_err(StudyError::io(doing.clone()))?;
        match fill(file, self.size.0, interrupt) {
            Ok(()) => {}
            Err(Stop::Interrupted(signal)) => return Err(StudyError::BenchInterrupted(signal)),
            Err(Stop::Failed(why)) => return Err(StudyError::io(doing)(std::io::Error::other(why))),
        }
        let engine = self.engine(&folder, (plan.timeout, interrupt))?;
        let (ways, limit) = self.ways(engine, folder.path(), device);
        let place = self.folder.display().to_string();
        let name =
            self.folder.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned());
        let ready = Ready {
            name,
            kind: "disk",
            limit,
            sides: Sides { sender: place.clone(), receiver: place },
            tasks: TASKS.to_vec(),
            ways,
            left_out: Vec::new(),
        };
        let watched = Watched { disk: device, ..Watched::default() };
        Ok((ready, Folder { room: folder, watched, timeout: plan.timeout }))
    }

    /// Two files are there at once: the one that is read and the one that is written.
    fn check_room(&self) -> Result<(), StudyError> {
        let found = rustix::fs::statvfs(&self.folder)
            .map_err(|error| StudyError::io(format!("look at {}", self.folder.display()))(error.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let needed = self.size.0.saturating_mul(2);
        if needed as f64 > free as f64 * ROOM {
            return Err(StudyError::Room { folder: self.folder.clone(), needed: Bytes(needed), free: Bytes(free) });
        }
        Ok(())
    }

    /// The setting is the whole machine's, so only a device that serves nobody else may have another.
    fn check_readahead(&self, device: Option<Device>) -> Result<(), StudyError> {
        match device {
            Some(device) if device.is_loop() && device.readahead().is_some() => Ok(()),
            _ => Err(StudyError::Readahead(self.folder.clone())),
        }
    }

    /// The best way to give requests to the kernel that works in this folder.
    fn engine(&self, folder: &TempDir, bounds: (Duration, &Taken)) -> Result<&'static str, StudyError> {
        let mut last = String::new();
        for engine in ENGINES {
            let trial = Fio { size: 1 << 20, ..self.fio(engine, &folder.path().join("read"), false) };
            let probe = Probe::Fio(Fio { direct: self.modes.contains(&Mode::Direct), ..trial });
            match local::measure(&probe, Ipv4Addr::LOCALHOST.into(), bounds, &mut || ()) {
                Ok(_) => return Ok(engine),
                Err(Stop::Interrupted(signal)) => return Err(StudyError::BenchInterrupted(signal)),
                Err(Stop::Failed(why)) => last = why,
            }
        }
        let hint = "Hint: a file system without direct access, such as a tmpfs of an old kernel, takes --mode buffered,fdatasync";
        Err(StudyError::io(format!("read {}", self.folder.display()))(std::io::Error::other(format!("{last}\n{hint}"))))
    }

    fn fio(&self, engine: &str, file: &std::path::Path, write: bool) -> Fio {
        Fio {
            file: file.to_owned(),
            write,
            size: self.size.0,
            block: LIMIT_BLOCK,
            depth: 1,
            direct: false,
            sync: false,
            most_seconds: self.most_seconds,
            engine: engine.to_owned(),
        }
    }

    fn ways(&self, engine: &str, folder: &std::path::Path, device: Option<Device>) -> (Vec<Way>, String) {
        let pass = |write: bool| self.fio(engine, &folder.join(if write { "write" } else { "read" }), write);
        let probe = |fio: Fio| Some(Task::Probe { probe: Probe::Fio(fio), loopback: false });
        let depth = if engine == "psync" { 1 } else { LIMIT_DEPTH };
        let (tasks, limit) = if let Some(ByteRate(bytes)) = self.limit {
            let known = |figure: &str| Some(Task::Known(Sample::headline(figure, "MB/s", bytes as f64 / 1e6)));
            (vec![known("sequential read"), known("sequential write")], format!("{}, as given", ByteRate(bytes)))
        } else {
            let deepest = |write| probe(Fio { direct: true, depth, ..pass(write) });
            let limit = format!(
                "direct access with {depth} requests of {} at once, measured in the same rounds",
                Bytes(LIMIT_BLOCK)
            );
            (vec![deepest(false), deepest(true)], limit)
        };
        let mechanism = format!("fio, {engine}");
        let mut ways = vec![Way { name: LIMIT.to_owned(), mechanism: limit.clone(), hold: Hold::Nothing, tasks }];
        for &Bytes(block) in &self.blocks {
            for &mode in &self.modes {
                let direct = mode == Mode::Direct;
                let depth = if direct && engine != "psync" { self.depth } else { 1 };
                let of = |write| Fio { block, direct, depth, sync: mode == Mode::Synced, ..pass(write) };
                let at_once = if depth > 1 { format!(", {depth} at once") } else { String::new() };
                let name = format!("{}, {}{at_once}", mode.word(), Bytes(block));
                let writes = probe(of(true));
                let read_too = mode != Mode::Synced;
                let varied = if mode == Mode::Buffered { self.readaheads.as_slice() } else { &[] };
                for &Bytes(readahead) in varied {
                    let hold = device.map_or(Hold::Nothing, |device| Hold::Readahead(device, readahead));
                    let name = format!("{name}, readahead {}", Bytes(readahead));
                    ways.push(Way { name, mechanism: mechanism.clone(), hold, tasks: vec![probe(of(false)), None] });
                }
                let reads = probe(of(false)).filter(|_| read_too && varied.is_empty());
                ways.push(Way { name, mechanism: mechanism.clone(), hold: Hold::Nothing, tasks: vec![reads, writes] });
            }
        }
        (ways, limit)
    }
}

impl Bed for Folder {
    fn measure(&self, probe: &Probe, _: bool, hold: &Hold, interrupt: &Taken) -> Result<(Vec<Sample>, Counters), Stop> {
        let _held = match *hold {
            Hold::Readahead(device, bytes) => Some(Readahead::set(device, bytes)?),
            Hold::Nothing | Hold::Mtu(_) => None,
        };
        let mut watch = Watch::new(&self.watched);
        let samples = local::measure(probe, nowhere(), (self.timeout, interrupt), &mut || watch.look())?;
        let counters = watch.end(&samples);
        Ok((samples, counters))
    }

    fn commands(&self, probe: &Probe) -> Vec<String> {
        let inside = self.room.path().to_string_lossy().into_owned();
        probe.steps(nowhere()).iter().map(|step| step.client.join(" ").replace(&inside, "FOLDER")).collect()
    }
}

/// fio has no server.
fn nowhere() -> IpAddr {
    Ipv4Addr::UNSPECIFIED.into()
}

/// Fills the file with what no disk can compress, and waits until it is there.
fn fill(mut file: File, size: u64, interrupt: &Taken) -> Result<(), Stop> {
    let mut block = vec![0; 1 << 20];
    ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut block);
    let mut left = size;
    let mut number: u64 = 0;
    while left > 0 {
        // Blocks differ, so that no disk stores one of them for all.
        block[..8].copy_from_slice(&number.to_ne_bytes());
        number += 1;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..length]).map_err(Stop::failed)?;
        left -= length as u64;
        if slipway_sys::process::wait_for_end(interrupt, Duration::ZERO).map_err(Stop::failed)? {
            return Err(Stop::came(interrupt));
        }
    }
    file.sync_all().map_err(Stop::failed)
}

//! Benchmarks of transfers: one data set to another host, by `slipway transfer`, rsync and scp.
//!
//! All of them start their other end over ssh, and write into an empty folder each time. The limit is the smaller of the path's TCP
//! rate and the rate at which the disk at the other end is written.

mod site;

use std::path::PathBuf;

use slipway_document::units::Rate;
use slipway_measure::probe::{Ceiling, Fio, Probe, RATE, Sample, Stream, Transfer as Copy};
use slipway_sys::signals::Taken;

use super::hold::Hold;
use super::path::Ends;
use super::{LIMIT, Plan, Ready, Refused, Task, Way};
use crate::StudyError;
use site::Site;

/// The figure of what a transfer costs: seconds of all processors that can be seen from here, the kernel's part included.
pub const COST: &str = "processor time per GB";
/// The way of `slipway transfer`.
const OWN: &str = "slipway transfer";

/// A data set, its way, and the programs that copy it.
#[derive(Debug)]
pub struct Transfer {
    /// The ends. The data are at the first.
    pub ends: Ends,
    /// The other end, as ssh at the first knows it: `HOST` or `USER@HOST`.
    pub host: String,
    /// A file or directory at the first end.
    pub data: PathBuf,
    /// A folder at the other end. Copies go to a folder of their own in it, which is removed.
    pub into: String,
    /// The ssh command, with options.
    pub ssh: Vec<String>,
    /// The slipway program at the first end.
    pub program: String,
    /// The slipway program at the other end.
    pub remote: String,
    /// The programs beside it.
    pub beside: Vec<Beside>,
    /// `slipway transfer` ends without waiting for the disk, as the others do.
    pub no_sync: bool,
    /// Seconds of iperf3's test, and after which fio's ends early.
    pub seconds: u16,
    /// TCP port of iperf3's server.
    pub port: u16,
    /// The limit; measured where `None`.
    pub limit: Option<Rate>,
}

/// A program to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// `rsync -a` over ssh.
    Rsync,
    /// `scp -rp`.
    Scp,
}

impl Beside {
    /// The program's name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Rsync => "rsync",
            Self::Scp => "scp",
        }
    }
}

/// Facts about both ends. Errors say why something is not there.
struct Found {
    /// The folder for copies at the other end.
    room: String,
    /// Bytes of the data set.
    bytes: u64,
    path: Result<Stream, String>,
    disk: Result<Fio, String>,
    beside: Vec<(Beside, Result<(), String>)>,
}

impl Transfer {
    /// The ways of the benchmark and the origin of its limit, with everything at hand.
    pub(super) fn describe(&self) -> (Vec<Way>, String) {
        let found = Found {
            room: self.into.clone(),
            bytes: 0,
            path: Ok(self.stream()),
            disk: Ok(self.fio("io_uring", &self.into, 0, true)),
            beside: self.beside.iter().map(|&one| (one, Ok(()))).collect(),
        };
        let (ways, limit, _) = self.ways(&found);
        (ways, limit)
    }

    /// Makes the folder for copies, and finds out what can be measured.
    pub(super) fn prepare<'a>(&'a self, plan: &Plan, interrupt: &'a Taken) -> Result<(Ready, Site<'a>), StudyError> {
        let (site, found) = Site::new(self, plan, interrupt)?;
        if let (None, Err(path), Err(disk)) = (self.limit, &found.path, &found.disk) {
            let why = format!("the path: {path}; the disk: {disk}\nHint: --limit gives a rate");
            return Err(StudyError::io("measure the limit")(std::io::Error::other(why)));
        }
        let (ways, limit, left_out) = self.ways(&found);
        let ready = Ready {
            name: site.name(),
            kind: "transfer",
            limit,
            sides: site.sides(),
            tasks: vec!["transfer"],
            ways,
            left_out,
        };
        Ok((ready, site))
    }

    fn stream(&self) -> Stream {
        Stream { seconds: self.seconds, port: self.port, ..Stream::default() }
    }

    fn fio(&self, engine: &str, room: &str, size: u64, direct: bool) -> Fio {
        Fio {
            file: format!("{room}/fio").into(),
            write: true,
            size,
            block: site::BLOCK,
            depth: if engine == "psync" { 1 } else { site::DEPTH },
            direct,
            sync: !direct,
            most_seconds: self.seconds,
            engine: engine.to_owned(),
        }
    }

    /// The words before a command that runs at the other end.
    fn shell(&self) -> Vec<String> {
        // Behind `--` no host is taken for an option.
        self.ssh.iter().cloned().chain(["--".to_owned(), self.host.clone()]).collect()
    }

    fn ways(&self, found: &Found) -> (Vec<Way>, String, Vec<Refused>) {
        let (task, limit) = self.ceiling(found);
        let way = |name: &str, mechanism: &str, task| Way {
            name: name.to_owned(),
            mechanism: mechanism.to_owned(),
            hold: Hold::Nothing,
            tasks: vec![Some(task)],
        };
        let copy = |argv| Task::Probe { probe: Probe::Transfer(Copy { argv, bytes: found.bytes }), loopback: false };
        let end = if self.no_sync { "TLS 1.3" } else { "TLS 1.3, ends when the data are on the disk" };
        let mut ways = vec![way(LIMIT, &limit, task), way(OWN, end, copy(self.own(&found.room)))];
        let mut left_out = Vec::new();
        for (one, there) in &found.beside {
            match (there, one) {
                (Err(why), _) => left_out.push(Refused { way: one.word().to_owned(), why: why.clone() }),
                (_, Beside::Rsync) => ways.push(way(one.word(), "ssh", copy(self.rsync(&found.room)))),
                (_, Beside::Scp) => ways.push(way(one.word(), "ssh", copy(self.scp(&found.room)))),
            }
        }
        (ways, limit, left_out)
    }

    fn ceiling(&self, found: &Found) -> (Task, String) {
        if let Some(Rate(bits)) = self.limit {
            return (
                Task::Known(Sample::headline(RATE, "Gb/s", bits as f64 / 1e9)),
                format!("{}, as given", Rate(bits)),
            );
        }
        let host = &self.host;
        let limit = match (&found.path, &found.disk) {
            (Ok(_), Err(why)) => format!("iperf3's rate to {host}, measured in the same rounds; not its disk's: {why}"),
            (Err(why), Ok(_)) => {
                format!("fio's writes at {host}, measured in the same rounds; not the path's rate: {why}")
            }
            _ => format!("the smaller of iperf3's rate to {host} and fio's writes there, measured in the same rounds"),
        };
        let (path, disk) = (found.path.clone().ok(), found.disk.clone().ok());
        let probe = Probe::Ceiling(Ceiling { path, disk, shell: self.shell() });
        (Task::Probe { probe, loopback: false }, limit)
    }

    fn own(&self, room: &str) -> Vec<String> {
        let mut words = vec![self.program.clone(), "transfer".into(), "--json".into()];
        words.extend(["--ssh".into(), self.ssh.join(" "), "--remote".into(), self.remote.clone()]);
        words.extend(self.no_sync.then(|| "--no-sync".to_owned()));
        words.extend([self.data.display().to_string(), format!("{}:{room}/run", self.host)]);
        words
    }

    fn rsync(&self, room: &str) -> Vec<String> {
        let words = ["rsync".into(), "-a".into(), "-e".into(), self.ssh.join(" "), "--".into()];
        words.into_iter().chain(self.copy_words(room)).collect()
    }

    fn scp(&self, room: &str) -> Vec<String> {
        let (program, options) =
            self.ssh.split_first().map_or(("ssh", &[][..]), |(first, rest)| (first.as_str(), rest));
        // scp has another word for the port, since `-p` keeps times.
        let options = options.iter().map(|option| if option == "-p" { "-P".to_owned() } else { option.clone() });
        let words = ["scp".into(), "-q".into(), "-rp".into(), "-S".into(), program.to_owned()];
        words.into_iter().chain(options).chain(["--".into()]).chain(self.copy_words(room)).collect()
    }

    fn copy_words(&self, room: &str) -> [String; 2] {
        [self.data.display().to_string(), format!("{}:{room}/run/", self.host)]
    }
}

//! Both ends of a transfer: a folder for copies at the other, and programs at either.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use slipway_document::units::Bytes;
use slipway_engine::exec::Launcher;
use slipway_engine::probe::{Between, ProbeError};
use slipway_measure::bottleneck::{Counters, Sides};
use slipway_measure::probe::{ENGINES, Fio, Output, Probe, Sample, Stream, there};
use slipway_sys::block::Device;
use slipway_sys::counters::{processors, shares};
use slipway_sys::signals::Taken;

use super::super::hold::Hold;
use super::super::path::Ends;
use super::super::watch::{Data, Watch, Watched};
use super::super::{Bed, Plan, local};
use super::{COST, Found, Transfer};
use crate::StudyError;
use crate::rounds::Stop;

/// fio's requests: as large and as many at once as disks take.
pub(super) const BLOCK: u64 = 1 << 20;
pub(super) const DEPTH: u16 = 32;
/// Bytes of fio's file.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 1 << 30;
/// A part of the free space stays free.
const ROOM: f64 = 0.9;
/// The name of the folder for copies begins with it.
const FOLDER: &str = ".slipway-bench-";

/// Adds up the sizes of the files in `$1`, and tells the programs there. `$2` is slipway.
const WEIGH: &str = r#"command -v "$2" >/dev/null && echo "has slipway"
test -e "$1" || { echo "it is not there" >&2; exit 1; }
find "$1" -type f -printf '%s\n' | awk '{ bytes += $1 } END { printf "bytes %.0f\n", bytes }'
for one in rsync scp iperf3; do command -v $one >/dev/null && echo "has $one"; done; true"#;
/// Makes a folder in `$1`; tells its path, the free space, and the programs there. `$2` is slipway.
const SETTLE: &str = r#"command -v "$2" >/dev/null && echo "has slipway"
for one in rsync scp fio; do command -v $one >/dev/null && echo "has $one"; done
stat -f -c 'free %a %S' -- "$1" && room=$(mktemp -d -p "$1" .slipway-bench-XXXXXX) && echo "room $room""#;

/// The ends, prepared. The folder for copies is removed with this value.
pub(in super::super) struct Site<'a> {
    transfer: &'a Transfer,
    launcher: Launcher,
    watched: Watched,
    timeout: Duration,
    interrupt: &'a Taken,
    room: String,
    bytes: u64,
}

impl<'a> Site<'a> {
    pub(super) fn new(transfer: &'a Transfer, plan: &Plan, interrupt: &'a Taken) -> Result<(Self, Found), StudyError> {
        let launcher = Launcher::new().map_err(StudyError::io("prepare to start programs"))?;
        let (timeout, watched) = (plan.timeout, Watched::default());
        let mut site = Self { transfer, launcher, watched, timeout, interrupt, room: String::new(), bytes: 0 };
        let data = transfer.data.display().to_string();
        let here = site.say(&script(WEIGH, &[&data, &transfer.program]), &format!("read {data}"))?;
        site.bytes = here.lines().find_map(|line| line.strip_prefix("bytes ")?.parse().ok()).unwrap_or(0);
        if site.bytes == 0 {
            let why = std::io::Error::other("it has no bytes to transfer");
            return Err(StudyError::io(format!("read {data}"))(why));
        }
        let over_there = there(&transfer.shell(), &script(SETTLE, &[&transfer.into, &transfer.remote]));
        let settled = site.say(&over_there, &format!("make a folder in {}:{}", transfer.host, transfer.into))?;
        let word = |first: &str| settled.lines().find_map(|line| line.strip_prefix(first));
        // It is removed at the end: nothing else may bear its name.
        let is_own = |room: &&str| room.rsplit('/').next().is_some_and(|name| name.starts_with(FOLDER));
        let Some(room) = word("room ").filter(is_own) else {
            let why = std::io::Error::other("the other end names none");
            return Err(StudyError::io(format!("make a folder at {}", transfer.host))(why));
        };
        room.clone_into(&mut site.room);
        for (said, program, place) in
            [(&here, &transfer.program, site.sides().sender), (&settled, &transfer.remote, transfer.host.clone())]
        {
            if !said.lines().any(|line| line == "has slipway") {
                let hint = "Hint: --remote names it at the receiver; a node with an image mounts it";
                let why = std::io::Error::other(format!("there is no {program}\n{hint}"));
                return Err(StudyError::io(format!("start slipway at {place}"))(why));
            }
        }
        site.check_room(word("free "))?;
        site.watched = site.watched()?;
        let found = site.find(&here, &settled)?;
        Ok((site, found))
    }

    /// The programs of both ends, by the words that these said.
    fn find(&self, here: &str, settled: &str) -> Result<Found, StudyError> {
        let is_in = |said: &str, program: &str| said.lines().any(|line| line.strip_prefix("has ") == Some(program));
        let host = &self.transfer.host;
        let beside = self.transfer.beside.iter().map(|&one| {
            let there = match (is_in(here, one.word()), is_in(settled, one.word())) {
                (false, _) => Err("it is not installed at the sender".to_owned()),
                (_, false) => Err(format!("it is not installed at {host}")),
                _ => Ok(()),
            };
            (one, there)
        });
        let beside = beside.collect();
        let skipped = "a limit is given";
        let (path, disk) = match (self.transfer.limit, is_in(here, "iperf3"), is_in(settled, "fio")) {
            (Some(_), ..) => (Err(skipped.to_owned()), Err(skipped.to_owned())),
            (None, has_iperf3, has_fio) => {
                let no_iperf3 = || Err("iperf3 is not installed at the sender".to_owned());
                let no_fio = || Err(format!("fio is not installed at {host}"));
                let path = if has_iperf3 { self.try_path()? } else { no_iperf3() };
                (path, if has_fio { self.try_disk()? } else { no_fio() })
            }
        };
        Ok(Found { room: self.room.clone(), bytes: self.bytes, path, disk, beside })
    }

    /// Whether a server answers at another machine. Nodes start theirs for each test.
    fn try_path(&self) -> Result<Result<Stream, String>, StudyError> {
        let stream = self.transfer.stream();
        let Ends::Peer(address) = self.transfer.ends else { return Ok(Ok(stream)) };
        let trial = Stream { seconds: 1, ..stream.clone() };
        let output = self.run(&trial.client(address), &mut || ()).map_err(stopped("try iperf3"))?;
        Ok(match Probe::Stream(trial).read(&[output]) {
            Ok(_) => Ok(stream),
            Err(_) => Err(format!("no `slipway bench serve` answers at {address}, port {}", stream.port)),
        })
    }

    /// The best way to write that works at the other end.
    fn try_disk(&self) -> Result<Result<Fio, String>, StudyError> {
        let mut last = String::new();
        let ways = ENGINES.map(|engine| (engine, true)).into_iter().chain([("psync", false)]);
        for (engine, direct) in ways {
            let trial = self.transfer.fio(engine, &self.room, BLOCK, direct);
            let argv = there(&self.transfer.shell(), &trial.argv());
            let output = self.run(&argv, &mut || ()).map_err(stopped("try fio"))?;
            match Probe::Fio(trial.clone()).read(&[output]) {
                Ok(_) => {
                    let size = self.bytes.clamp(LEAST, MOST).next_multiple_of(BLOCK);
                    return Ok(Ok(Fio { size, ..trial }));
                }
                Err(why) => last = why.to_string(),
            }
        }
        Ok(Err(format!("failed to {last}")))
    }

    fn check_room(&self, free: Option<&str>) -> Result<(), StudyError> {
        let mut numbers = free.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (Some(blocks), Some(size)) = (numbers.next(), numbers.next()) else { return Ok(()) };
        let free = blocks.saturating_mul(size);
        let needed = self.bytes.max(LEAST);
        if needed as f64 > free as f64 * ROOM {
            let folder = format!("{}:{}", self.transfer.host, self.transfer.into).into();
            return Err(StudyError::Room { folder, needed: Bytes(needed), free: Bytes(free) });
        }
        Ok(())
    }

    fn watched(&self) -> Result<Watched, StudyError> {
        Ok(match &self.transfer.ends {
            Ends::Nodes { lab, client, server } => {
                let (from, to) = (lab.init(*client)?.pid, lab.init(*server)?.pid);
                let [from_name, to_name] = [*client, *server].map(|node| lab.lab.nodes[node].name.clone());
                let of_server = lab.lab.nodes[*server].interfaces.iter();
                let addresses = of_server.flat_map(|one| [Some(IpAddr::from(one.ipv4)), one.ipv6.map(IpAddr::from)]);
                let sender = Some((from, Data::To(addresses.flatten().collect())));
                // Both ends are on this machine, so its counters have the disk of the other end.
                let root = Path::new("/proc").join(to.to_string()).join("root");
                let disk = self.room.strip_prefix('/').and_then(|room| Device::of(&root.join(room)).ok().flatten());
                Watched { nets: vec![(from_name, from), (to_name, to)], sender, disk }
            }
            Ends::Peer(address) => {
                let own = rustix::process::getpid().as_raw_nonzero().get();
                let sender = Some((own, Data::To(vec![address.to_canonical()])));
                Watched { nets: vec![("this machine".to_owned(), own)], sender, disk: None }
            }
        })
    }

    pub(super) fn name(&self) -> String {
        match &self.transfer.ends {
            Ends::Nodes { lab, .. } => lab.lab.name.clone(),
            Ends::Peer(address) => address.to_string().replace(':', "-"),
        }
    }

    pub(super) fn sides(&self) -> Sides {
        match &self.transfer.ends {
            Ends::Nodes { lab, client, server } => {
                let [sender, receiver] = [*client, *server].map(|node| lab.lab.nodes[node].name.clone());
                Sides { sender, receiver }
            }
            Ends::Peer(_) => Sides { sender: "this machine".to_owned(), receiver: self.transfer.host.clone() },
        }
    }

    /// Runs a program at the sender to its end.
    fn run(&self, argv: &[String], look: &mut dyn FnMut()) -> Result<Output, Stop> {
        match &self.transfer.ends {
            Ends::Nodes { .. } => self.between(|between| between.run_program(&self.launcher, argv, look)),
            Ends::Peer(_) => local::run(argv, (self.timeout, self.interrupt), look),
        }
    }

    /// Does something between the nodes.
    fn between<T>(&self, work: impl FnOnce(&Between<'_>) -> Result<T, ProbeError>) -> Result<T, Stop> {
        let Ends::Nodes { lab, client, server } = &self.transfer.ends else {
            return Err(Stop::failed("enter nodes: there are none"));
        };
        let (timeout, interrupt) = (self.timeout, self.interrupt);
        work(&Between { lab, server: *server, client: *client, timeout, interrupt }).map_err(|error| match error {
            ProbeError::Interrupted => Stop::came(interrupt),
            error => Stop::failed(error),
        })
    }

    /// The standard output of a program at the sender that must end well.
    fn say(&self, argv: &[String], doing: &str) -> Result<String, StudyError> {
        let output = self.run(argv, &mut || ()).map_err(stopped(doing))?;
        if output.code == 0 {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = slipway_document::text::printable(&String::from_utf8_lossy(&output.stderr));
        let why = if said.trim().is_empty() { format!("exit code {}", output.code) } else { said.trim().to_owned() };
        Err(StudyError::io(doing.to_owned())(std::io::Error::other(why)))
    }

    /// Empties the folder for a copy.
    fn empty(&self) -> Result<(), Stop> {
        let words = script(r#"rm -rf -- "$1/run" && mkdir -- "$1/run""#, &[&self.room]);
        let output = self.run(&there(&self.transfer.shell(), &words), &mut || ())?;
        if output.code == 0 { Ok(()) } else { Err(Stop::failed(format!("empty {}/run", self.room))) }
    }
}

impl Bed for Site<'_> {
    fn measure(&self, probe: &Probe, _: bool, _: &Hold, interrupt: &Taken) -> Result<(Vec<Sample>, Counters), Stop> {
        let bytes = match probe {
            Probe::Transfer(transfer) => Some(transfer.bytes),
            _ => None,
        };
        if bytes.is_some() {
            self.empty()?;
        }
        let (begun, before) = (Instant::now(), processors().unwrap_or_default());
        let mut watch = Watch::new(&self.watched);
        let look = &mut || watch.look();
        let mut samples = match &self.transfer.ends {
            Ends::Nodes { lab, server, .. } => {
                let address = Between::address_of(&lab.lab, *server);
                self.between(|between| between.watch(&self.launcher, probe, address, look))?
            }
            Ends::Peer(address) => {
                let mut outputs = Vec::new();
                for step in probe.steps(*address) {
                    outputs.push(local::run(&step.client, (self.timeout, interrupt), look)?);
                    look();
                }
                probe.read(&outputs).map_err(Stop::failed)?
            }
        };
        if let Some(bytes) = bytes {
            let after = processors().unwrap_or_default();
            let busy: f64 = shares(&before, &after).iter().map(|one| (one.busy - one.stolen).max(0.0)).sum();
            let seconds = busy * begun.elapsed().as_secs_f64();
            samples.push(Sample::detail(COST, "s", seconds / (bytes as f64 / 1e9)));
        }
        let counters = watch.end(&samples);
        Ok((samples, counters))
    }

    fn commands(&self, probe: &Probe) -> Vec<String> {
        let address = match &self.transfer.ends {
            Ends::Nodes { lab, server, .. } => Between::address_of(&lab.lab, *server),
            Ends::Peer(address) => *address,
        };
        probe.steps(address).iter().map(|step| step.client.join(" ").replace(&self.room, "FOLDER")).collect()
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if !self.room.is_empty() {
            let words = ["rm", "-rf", "--", &self.room].map(str::to_owned);
            if let Err(Stop::Failed(why)) = self.run(&there(&self.transfer.shell(), &words), &mut || ()) {
                tracing::warn!("{} stays at {}: {why}", self.room, self.transfer.host);
            }
        }
    }
}

/// The words that run a script with arguments.
fn script(text: &str, arguments: &[&str]) -> Vec<String> {
    ["sh", "-c", text, "sh"].iter().chain(arguments).map(|&word| word.to_owned()).collect()
}

fn stopped(doing: &str) -> impl Fn(Stop) -> StudyError {
    let doing = doing.to_owned();
    move |stop| match stop {
        Stop::Interrupted(signal) => StudyError::BenchInterrupted(signal),
        Stop::Failed(why) => StudyError::io(doing.clone())(std::io::Error::other(why)),
    }
}

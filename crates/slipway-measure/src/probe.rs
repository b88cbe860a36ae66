//! The measuring jobs: what to start, and how to read what it says.
//!
//! A probe never starts a program. It says which programs to start on which of two nodes ([`Probe::steps`]), the
//! caller runs them, and hands back what they wrote ([`Probe::read`]). So the same probe runs under every driver,
//! natively, or from a file on disk in a test.
//!
//! Output of programs is input like any other: readers accept any bytes and answer with samples or a [`ReadError`].

mod command;
mod fio;
mod iperf3;
mod netpipe;
mod ping;
mod stream;
mod transfer;

use slipway_document::text::is_hidden;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_lab::model::{Figure, Job};

pub use command::{Command, PickError};
pub use fio::{ENGINES, Fio};
pub use iperf3::Iperf3;
pub use netpipe::Netpipe;
pub use ping::Ping;
pub use stream::Stream;
pub use transfer::{Ceiling, RATE, Transfer, there};

/// A measuring job.
#[derive(Debug, Clone)]
pub enum Probe {
    /// TCP throughput.
    Iperf3(Iperf3),
    /// TCP latency and throughput over message sizes.
    Netpipe(Netpipe),
    /// ICMP round trips.
    Ping(Ping),
    /// Any program, and the figure picked from its output.
    Command(Command),
    /// One test of TCP or UDP, set in one way.
    Stream(Stream),
    /// One pass over a file of a disk.
    Fio(Fio),
    /// One copy of a data set to another host.
    Transfer(Transfer),
    /// The limit of such copies.
    Ceiling(Ceiling),
}

impl Probe {
    /// The names that [`Probe::builtin`] knows.
    pub const BUILTIN: [&str; 3] = ["iperf3", "netpipe", "ping"];

    /// A built-in probe with its default settings.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        match name {
            "iperf3" => Some(Self::Iperf3(Iperf3::default())),
            "netpipe" => Some(Self::Netpipe(Netpipe::default())),
            "ping" => Some(Self::Ping(Ping::default())),
            _ => None,
        }
    }

    /// The probe that reads the figure of a lab's own job; its wall time where the job names no figure.
    pub fn of_job(job: &Job) -> Result<Self, PickError> {
        let wall_time = command::wall_time();
        let figure = job.figure.as_ref().unwrap_or(&wall_time);
        Self::of_command(&job.command, figure)
    }

    /// The probe that reads `figure` from the output of any command.
    pub fn of_command(argv: &[String], figure: &Figure) -> Result<Self, PickError> {
        Ok(Self::Command(Command::new(argv, figure)?))
    }

    /// The job's name in records and reports: `iperf3`, `netpipe`, `ping`, or the program's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Iperf3(_) => "iperf3",
            Self::Netpipe(_) => "netpipe",
            Self::Ping(_) => "ping",
            Self::Command(command) => command.name(),
            Self::Stream(stream) => stream.name(),
            Self::Fio(fio) => fio.name(),
            Self::Transfer(transfer) => transfer.name(),
            Self::Ceiling(ceiling) => ceiling.name(),
        }
    }

    /// The programs to run, one step after the other. `server` is the address of the node that serves, on the network
    /// that is measured.
    ///
    /// A [`Command`] has one step, without a server. An MPI job is started by the caller's own launcher instead, and
    /// that launcher's output goes to [`Probe::read`].
    #[must_use]
    pub fn steps(&self, server: IpAddr) -> Vec<Step> {
        match self {
            Self::Iperf3(probe) => probe.steps(server),
            Self::Netpipe(probe) => probe.steps(server),
            Self::Ping(probe) => probe.steps(server),
            Self::Command(probe) => probe.steps(),
            Self::Stream(probe) => probe.steps(server),
            Self::Fio(probe) => probe.steps(),
            Self::Transfer(probe) => probe.steps(),
            Self::Ceiling(probe) => probe.steps(server),
        }
    }

    /// Reads the samples from the output of the steps' clients. `outputs`: one for each step, in order.
    pub fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        match self {
            Self::Iperf3(probe) => probe.read(outputs),
            Self::Netpipe(probe) => probe.read(outputs),
            Self::Ping(probe) => probe.read(outputs),
            Self::Command(probe) => probe.read(outputs),
            Self::Stream(probe) => probe.read(outputs),
            Self::Fio(probe) => probe.read(outputs),
            Self::Transfer(probe) => probe.read(outputs),
            Self::Ceiling(probe) => probe.read(outputs),
        }
    }
}

/// One server and one client, started in that order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The program on the serving node. `None`: nothing needs to.
    pub server: Option<Server>,
    /// argv of the program on the client node, whose output is the result.
    pub client: Vec<String>,
}

/// A server that serves one client and ends by itself. Its exit code says nothing (`NPtcp`'s differs from run to run);
/// where its client failed, it still waits for one: end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// argv.
    pub argv: Vec<String>,
    /// It is ready when this TCP port listens in the serving node (`/proc/PID/net/tcp` and `tcp6`, state `0A`).
    /// Not every server says so in words, and none says so before it listens. Should the server end before, it failed.
    pub port: u16,
}

/// Output and exit of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code; 128 + signal for a program ended by a signal, as shells say it.
    pub code: i32,
    /// From start to end.
    pub wall: Duration,
}

/// One measured figure of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its name in reports, e.g. `TCP throughput, 4 streams`. Unique within the job.
    pub figure: String,
    /// Unit, e.g. `Gb/s`. Empty for a count.
    pub unit: String,
    /// True where a greater value is better.
    pub higher_is_better: bool,
    /// True for what the job is run for; false for what explains it (retransmits, processor time).
    pub headline: bool,
    /// The value, finite, in `unit`.
    pub value: f64,
    /// The figure over message sizes, for probes that measure such a curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
}

impl Sample {
    /// A figure for which the job is run; a greater value is better.
    #[must_use]
    pub fn headline(figure: &str, unit: &str, value: f64) -> Self {
        Self { higher_is_better: true, headline: true, ..Self::detail(figure, unit, value) }
    }

    /// A figure that explains another; a smaller value is better.
    #[must_use]
    pub fn detail(figure: &str, unit: &str, value: f64) -> Self {
        Self {
            figure: figure.to_owned(),
            unit: unit.to_owned(),
            higher_is_better: false,
            headline: false,
            value,
            curve: Vec::new(),
        }
    }
}

/// One message size of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Message size, bytes.
    pub bytes: u64,
    /// One way, microseconds.
    pub micros: f64,
}

impl Point {
    /// Throughput, Mb/s (10⁶ bits a second).
    #[must_use]
    pub fn megabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.micros
    }
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    /// The program ended with an error.
    #[error(
        "run {program}: it ended with exit code {code} and said “{said}”. Hint: run the same command with `slipway exec` to see more"
    )]
    Failed {
        /// The program.
        program: String,
        /// The program's exit code.
        code: i32,
        /// The end of what it said, at most [`SAID`] characters.
        said: String,
    },
    /// The output is not what the program writes when all is well.
    #[error(
        "find {what} in the output of {program}. Hint: the output may be cut, or of another version; compare with a run by hand"
    )]
    Missing {
        /// The program.
        program: String,
        /// The pattern or path that found nothing.
        what: String,
    },
    /// A step's output was not handed over.
    #[error("read {program}: {expected} outputs expected, {given} given. Hint: hand over one output for each step")]
    Steps {
        /// The program.
        program: String,
        /// Steps of the probe.
        expected: usize,
        /// Outputs given.
        given: usize,
    },
}

/// Characters of what a program printed on each stream that errors repeat.
pub const SAID: usize = 200;

impl Output {
    /// The standard output of a program that ended well, else why not.
    fn succeeded(&self, program: &str) -> Result<&Self, ReadError> {
        if self.code == 0 {
            return Ok(self);
        }
        Err(ReadError::Failed { program: program.to_owned(), code: self.code, said: self.words() })
    }

    /// The beginning of standard error, where causes are told before their consequences, and the end of standard output, where
    /// `NPtcp` complains. On one line; rules of dashes are left out.
    fn words(&self) -> String {
        let is_rule = |word: &&str| word.len() > 4 && word.chars().all(|c| "-=*#".contains(c));
        let line = |bytes: &[u8]| -> Vec<char> {
            let text = String::from_utf8_lossy(bytes);
            let words: Vec<&str> = text.split_whitespace().filter(|word| !is_rule(word)).collect();
            words.join(" ").chars().filter(|&c| !is_hidden(c)).collect()
        };
        let (stdout, stderr) = (line(&self.stdout), line(&self.stderr));
        let (first, last) = (stderr.iter().take(SAID), stdout[stdout.len().saturating_sub(SAID)..].iter());
        let between = if stdout.is_empty() || stderr.is_empty() { "" } else { " … " };
        first.copied().chain(between.chars()).chain(last.copied()).collect()
    }
}

/// One output for each of `expected` steps, else why not.
fn each<'a>(program: &str, expected: usize, outputs: &'a [Output]) -> Result<&'a [Output], ReadError> {
    if outputs.len() == expected {
        return Ok(outputs);
    }
    Err(ReadError::Steps { program: program.to_owned(), expected, given: outputs.len() })
}

/// The one output of a probe with one step.
fn only<'a>(program: &str, outputs: &'a [Output]) -> Result<&'a Output, ReadError> {
    Ok(&each(program, 1, outputs)?[0])
}

/// An argv of string slices.
fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn output(stdout: &[u8], stderr: &[u8], code: i32) -> Output {
        Output { stdout: stdout.to_vec(), stderr: stderr.to_vec(), code, wall: Duration::from_millis(1500) }
    }

    #[test]
    fn every_built_in_name_is_a_probe_of_that_name() {
        for name in Probe::BUILTIN {
            assert_eq!(Probe::builtin(name).unwrap().name(), name);
        }
        assert!(Probe::builtin("fio").is_none());
    }

    #[test]
    fn an_output_too_few_is_refused() {
        for name in Probe::BUILTIN {
            assert!(matches!(Probe::builtin(name).unwrap().read(&[]), Err(ReadError::Steps { given: 0, .. })));
        }
    }

    #[test]
    fn words_are_short_and_on_one_line() {
        let said = output(b"", &"é\n\u{1b}[31m".repeat(1000).into_bytes(), 1).words();
        assert_eq!(said.chars().count(), SAID);
        assert!(!said.contains(char::is_control));
    }

    #[test]
    fn the_first_complaint_is_told_and_the_last_output() {
        let stderr = format!("--------\ndropped inbound connection\n{}", "a consequence\n".repeat(100));
        let said = output(&[&b"x ".repeat(500)[..], b"the end"].concat(), stderr.as_bytes(), 1).words();
        assert!(said.starts_with("dropped inbound connection a consequence"), "{said}");
        assert!(said.ends_with(" x the end") && said.chars().count() == 2 * SAID + 3, "{said}");
    }

    proptest! {
        /// Bytes come from containers: any of them give samples or an error, and samples are finite.
        #[test]
        fn no_output_makes_a_reader_panic(
            stdout in proptest::collection::vec(any::<u8>(), 0..300),
            stderr in "[0-9:.,>a-z \n-]{0,300}",
            cut in 0_usize..8000,
        ) {
            let fixtures: [&[u8]; 4] = [
                include_bytes!("../tests/fixtures/iperf3-4-streams.json"),
                include_bytes!("../tests/fixtures/netpipe.txt"),
                include_bytes!("../tests/fixtures/ping.txt"),
                &stdout,
            ];
            for name in Probe::BUILTIN {
                let probe = Probe::builtin(name).unwrap();
                let steps = probe.steps("10.0.0.1".parse().unwrap()).len();
                for text in fixtures {
                    let mut text = text[..cut.min(text.len())].to_vec();
                    text.extend_from_slice(stderr.as_bytes());
                    if let Ok(samples) = probe.read(&vec![output(&text, &text, 0); steps]) {
                        prop_assert!(samples.iter().all(|sample| sample.value.is_finite()));
                    }
                }
            }
        }
    }
}

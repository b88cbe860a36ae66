//! Transfers of a data set to another host by ssh, and their limit: the path's rate and the rate of the disk at its end.

use std::net::IpAddr;

use super::{Fio, Output, ReadError, Sample, Step, Stream, each, only};

/// The figure of a transfer and of its limit.
pub const RATE: &str = "transfer rate";

/// A program that copies a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// argv. The program ends when all is there.
    pub argv: Vec<String>,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The smaller of two rates. One of them may be absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// The path's TCP.
    pub path: Option<Stream>,
    /// Writes to the disk at the other end.
    pub disk: Option<Fio>,
    /// The words before a command that runs at the other end, such as `ssh host`.
    pub shell: Vec<String>,
}

impl Transfer {
    /// The job's name in records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        "transfer"
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        vec![Step { server: None, client: self.argv.clone() }]
    }

    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let program = self.argv.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
        let seconds = only(program, outputs)?.succeeded(program)?.wall.as_secs_f64().max(1e-9);
        let rate = self.bytes as f64 * 8.0 / seconds / 1e9;
        Ok(vec![Sample::headline(RATE, "Gb/s", rate), Sample::detail("seconds", "s", seconds)])
    }
}

impl Ceiling {
    /// The job's name in records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (&self.path, &self.disk) {
            (Some(_), Some(_)) => "iperf3 and fio",
            (Some(_), None) => "iperf3",
            _ => "fio",
        }
    }

    pub(super) fn steps(&self, server: IpAddr) -> Vec<Step> {
        let path = self.path.iter().flat_map(|stream| stream.steps(server));
        let disk = self.disk.iter().map(|fio| Step { server: None, client: there(&self.shell, &fio.argv()) });
        path.chain(disk).collect()
    }

    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let expected = usize::from(self.path.is_some()) + usize::from(self.disk.is_some());
        let mut outputs = each(self.name(), expected, outputs)?.iter();
        let mut rates = Vec::new();
        if let Some((stream, output)) = self.path.as_ref().and_then(|stream| Some((stream, outputs.next()?))) {
            rates.push(("TCP rate", headline(&stream.read(std::slice::from_ref(output))?)));
        }
        if let Some((fio, output)) = self.disk.as_ref().and_then(|fio| Some((fio, outputs.next()?))) {
            // From megabytes to gigabits.
            rates.push(("disk write rate", headline(&fio.read(std::slice::from_ref(output))?) * 8.0 / 1e3));
        }
        let least = rates.iter().map(|(_, rate)| *rate).reduce(f64::min);
        let least = least.ok_or_else(|| ReadError::Missing { program: self.name().into(), what: "a rate".into() })?;
        let more = rates
            .into_iter()
            .map(|(name, rate)| Sample { higher_is_better: true, ..Sample::detail(name, "Gb/s", rate) });
        Ok([Sample::headline(RATE, "Gb/s", least)].into_iter().chain(more).collect())
    }
}

fn headline(samples: &[Sample]) -> f64 {
    samples.iter().find(|sample| sample.headline).map_or(0.0, |sample| sample.value)
}

/// The words that run `command` by `shell`, a remote shell with its host. Shells over there split one line into words, so each
/// word has quotes.
#[must_use]
pub fn there(shell: &[String], command: &[String]) -> Vec<String> {
    let line: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    shell.iter().cloned().chain([line.join(" ")]).collect()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use std::time::Duration;

    use super::*;

    fn output(stdout: &[u8], code: i32) -> Output {
        Output { stdout: stdout.to_vec(), stderr: Vec::new(), code, wall: Duration::from_secs(2) }
    }

    fn fio() -> Fio {
        Fio {
            file: "/data/it's".into(),
            write: true,
            size: 1 << 20,
            block: 1 << 20,
            depth: 1,
            direct: true,
            sync: false,
            most_seconds: 1,
            engine: "psync".into(),
        }
    }

    #[test]
    fn a_transfer_is_its_bytes_by_its_time() {
        let transfer = Transfer { argv: vec!["/usr/bin/rsync".into()], bytes: 1_000_000_000 };
        let samples = transfer.read(&[output(b"", 0)]).unwrap();
        assert_eq!((samples[0].figure.as_str(), samples[0].value, samples[1].value), (RATE, 4.0, 2.0));
        let error = transfer.read(&[output(b"no space", 12)]).unwrap_err();
        assert!(matches!(error, ReadError::Failed { program, code: 12, .. } if program == "rsync"));
    }

    #[test]
    fn the_limit_is_the_smaller_rate() {
        let written = include_bytes!("../../tests/fixtures/fio-write.json");
        let sent = include_bytes!("../../tests/fixtures/iperf3-4-streams.json");
        let both = Ceiling { path: Some(Stream::default()), disk: Some(fio()), shell: vec!["ssh".into(), "n2".into()] };
        let samples = both.read(&[output(sent, 0), output(written, 0)]).unwrap();
        assert_eq!(samples[0].value.total_cmp(&samples[1].value.min(samples[2].value)), Ordering::Equal);
        assert!(samples[1..].iter().all(|sample| !sample.headline && sample.value > 0.0));
        let one = Ceiling { path: None, ..both.clone() };
        let alone = one.read(&[output(written, 0)]).unwrap()[0].value;
        assert_eq!(alone.total_cmp(&samples[2].value), Ordering::Equal);
        assert!(matches!(both.read(&[output(sent, 0)]), Err(ReadError::Steps { expected: 2, given: 1, .. })));
        assert!(Ceiling { disk: None, ..one }.read(&[]).is_err(), "nothing measures nothing");
    }

    #[test]
    fn a_remote_shell_gets_each_word_whole() {
        let ceiling = Ceiling { path: None, disk: Some(fio()), shell: vec!["ssh".into(), "n2".into()] };
        let [step] = &ceiling.steps(IpAddr::from([10, 0, 0, 2]))[..] else { panic!("one step") };
        assert_eq!(step.client[..2], ["ssh", "n2"]);
        assert!(step.client[2].contains(r"'--filename=/data/it'\''s'"), "{:?}", step.client);
        assert_eq!(step.client.len(), 3);
    }
}

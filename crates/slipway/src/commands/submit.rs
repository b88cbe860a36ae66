//! `slipway submit`

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use slipway_document::text::printable;
use slipway_document::units::{Bytes, Seconds, UnitError};
use slipway_engine::rsh::quoted;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Between two looks at the job's output: no file system that machines share tells of writes on another.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Run a lab as a job of Slurm, over the machines that it gives
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command writes a script whose last line is `slipway run FILE`, hands it to
sbatch, and shows the job's output until its end. The exit code is the job's.
Ctrl-C leaves the job alone; scancel ends it, and the lab with it.

Slipway has to be on every machine, and the lab file's folder under the same
path. Words after -- are for `slipway run`.

Examples:
  slipway submit lab.yaml --nodes 3 --time 10m
  slipway submit lab.yaml --nodes 4 --cores 8 -- --mpi openmpi -n 32 -- hpcc
  slipway submit lab.yaml --nodes 3 --dry-run      the script")]
pub(crate) struct Args {
    /// Lab file
    file: PathBuf,
    /// Machines
    #[arg(short = 'N', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// Cores of each machine [default: Slurm's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    cores: Option<u32>,
    /// Memory of each machine [default: Slurm's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Slurm ends the job after this time [default: Slurm's]
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Seconds>,
    /// Slurm's partition [default: Slurm's]
    #[arg(long, value_name = "NAME", value_parser = word)]
    partition: Option<String>,
    /// Submit, and do not wait
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    dry_run: DryRun,
    /// Options and program for `slipway run`
    #[arg(last = true, value_name = "RUN")]
    run: Vec<String>,
}

/// A time as everywhere, and `10m` as well: with batch systems that is no other unit than minutes.
fn time(text: &str) -> Result<Seconds, String> {
    let minutes = text.strip_suffix('m').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let text = minutes.map_or_else(|| text.to_owned(), |number| format!("{number}min"));
    text.parse().map_err(|error: UnitError| error.to_string())
}

fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.,".contains(c);
    if !text.is_empty() && text.chars().all(fits) { Ok(text.to_owned()) } else { Err("that is no partition".to_owned()) }
}

#[derive(Serialize)]
struct Planned {
    script: String,
}

#[derive(Serialize)]
struct Submitted {
    /// Slurm's number of the job.
    job: u64,
    script: String,
    /// The file with what the job says.
    output: PathBuf,
    /// The job's exit code. `None`: nobody waited for it.
    code: Option<u8>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let lab = labs::read(Some(&self.file))?;
        let here = std::env::current_dir().map_err(Failure::io("find the current folder"))?;
        let script = self.script(&lab.name, &here);
        if self.dry_run.dry_run {
            context.answer(&Planned { script }, |planned| planned.script.clone())?;
            return Ok(Exit::Success);
        }
        let mut sbatch = self.sbatch(&script)?;
        let job = number(&mut sbatch)?;
        let output = here.join(format!("slipway-{}-{job}.out", lab.name));
        if !context.global.quiet && !context.global.json {
            eprintln!("job {job} is submitted; `scancel {job}` ends it, and {} has its output", output.display());
        }
        let show = !context.global.json && !self.detach;
        let code = follow(&mut sbatch, &output, show)?;
        let submitted = Submitted { job, script, output, code: (!self.detach).then_some(code) };
        if context.global.json {
            context.answer(&submitted, |_| String::new())?;
        }
        Ok(if code == 0 { Exit::Success } else { Exit::Program(code) })
    }

    /// The job's script (`sbatch(1)`).
    fn script(&self, lab: &str, here: &Path) -> String {
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let mut lines = vec!["#!/bin/sh".to_owned()];
        let mut option = |name: &str, value: String| lines.push(format!("#SBATCH --{name}={value}"));
        option("job-name", lab.to_owned());
        option("nodes", self.nodes.to_string());
        option("ntasks-per-node", 1.to_string());
        if let Some(cores) = self.cores {
            option("cpus-per-task", cores.to_string());
        }
        if let Some(memory) = self.memory {
            option("mem", format!("{}M", memory.0.div_ceil(1 << 20)));
        }
        if let Some(time) = self.time {
            option("time", limit(time));
        }
        if let Some(partition) = &self.partition {
            option("partition", partition.clone());
        }
        lines.push(format!("cd {} || exit", quoted(&here.display().to_string())));
        let words = std::iter::once(file.display().to_string()).chain(self.run.iter().cloned());
        let words: Vec<String> = words.map(|word| quoted(&word)).collect();
        lines.push(format!("exec slipway run {}", words.join(" ")));
        lines.join("\n") + "\n"
    }

    /// Hands the script to sbatch, which then waits for the job's end.
    fn sbatch(&self, script: &str) -> Result<Child, Failure> {
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--output=slipway-%x-%j.out"]).args((!self.detach).then_some("--wait"));
        let missing = |error: io::Error| {
            let hint = "Hint: submit on a machine with Slurm's commands (Debian: slurm-client)";
            Failure::new(Exit::Unable, &format!("start sbatch: {error}\n{hint}"))
        };
        let mut sbatch = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(missing)?;
        // Dropped here, so that sbatch sees the script's end.
        if let Some(mut to) = sbatch.stdin.take() {
            // One that has ended tells why on standard error.
            let _ = to.write_all(script.as_bytes());
        }
        Ok(sbatch)
    }
}

/// A time limit as Slurm reads it: `D-HH:MM:SS`.
fn limit(time: Seconds) -> String {
    let all = time.duration().as_secs() + u64::from(time.duration().subsec_nanos() > 0);
    format!("{}-{:02}:{:02}:{:02}", all / 86400, all / 3600 % 24, all / 60 % 60, all % 60)
}

/// The job's number, which sbatch says at once: `NUMBER` or `NUMBER;CLUSTER`.
fn number(sbatch: &mut Child) -> Result<u64, Failure> {
    let mut line = String::new();
    if let Some(from) = sbatch.stdout.as_mut() {
        let mut from = BufReader::new(io::Read::take(from, 200));
        from.read_line(&mut line).map_err(Failure::io("hear sbatch"))?;
    }
    let number = line.trim().split(';').next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| {
        let ended = sbatch.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Failure::new(Exit::Failed, &format!("submit the job: sbatch gave it no number ({ended})"))
    })
}

/// Shows what the job writes until sbatch ends, and gives the job's exit code.
fn follow(sbatch: &mut Child, output: &Path, show: bool) -> Result<u8, Failure> {
    let mut file = None;
    loop {
        let ended = sbatch.try_wait().map_err(Failure::io("wait for sbatch"))?;
        if show {
            file = file.or_else(|| File::open(output).ok());
            copy(file.as_mut())?;
        }
        if let Some(status) = ended {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Passes on what is new in the file. Control characters are made visible: what a node prints must not steer a terminal.
fn copy(file: Option<&mut File>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let mut new = Vec::new();
    io::Read::read_to_end(file, &mut new).map_err(Failure::io("read the job's output"))?;
    let mut out = io::stdout().lock();
    let text = printable(&String::from_utf8_lossy(&new)).into_bytes();
    out.write_all(&text).and_then(|()| out.flush()).map_err(Failure::io("write the job's output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_slurms() {
        assert_eq!(time("10m").map(|time| time.0), time("600s").map(|time| time.0));
        assert!(time("m").is_err() && time("1ms").is_ok());
        assert_eq!(limit(Seconds(600.0)), "0-00:10:00");
        assert_eq!(limit(Seconds(90_061.5)), "1-01:01:02");
    }
}

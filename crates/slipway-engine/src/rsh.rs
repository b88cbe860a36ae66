//! How commands reach other machines: ssh, Slurm's `srun` within a job, or what stands in their place.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use slipway_lab::model::Machine;
use slipway_sys::interfaces::with_address;

/// Names the command in the place of ssh. Its words are separated by spaces; the destination and the words to execute follow.
pub const VARIABLE: &str = "SLIPWAY_RSH";
/// No question for a password: nobody would see it among the answers of several machines. A machine that says nothing for a
/// minute is lost.
const USUAL: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=20";
/// A step of a job on one machine (`srun(1)`): it shares the job's cores with all other steps, and says nothing of itself.
const STEP: [&str; 10] = [
    "srun",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--ntasks-per-node=1",
    "--cpu-bind=none",
    "--chdir=/",
    "--quiet",
    // Slurm holds what ends no line back, which messages of a job may not.
    "--unbuffered",
    "--no-kill",
];
/// Name of the program on other machines.
const PROGRAM: &str = "slipway";

/// This program's own file is not found.
#[derive(Debug, thiserror::Error)]
#[error("find this program's own file: {0}")]
pub struct RshError(#[from] io::Error);

/// The remote shell.
#[derive(Debug, Clone)]
pub struct Rsh {
    /// Those of `SLIPWAY_RSH`.
    words: Option<Vec<String>>,
    /// This program's own file, for this machine's part.
    own: PathBuf,
}

impl Rsh {
    /// The one that `SLIPWAY_RSH` names; else `srun` for machines of a Slurm job, and ssh for all others.
    ///
    /// # Errors
    /// When this program's own file is not found.
    pub fn from_env() -> Result<Self, RshError> {
        let words = std::env::var(VARIABLE).ok().filter(|words| !words.trim().is_empty());
        let words = words.map(|words| words.split_whitespace().map(str::to_owned).collect());
        Ok(Self { words, own: slipway_sys::exe::path()? })
    }

    /// A command of Slipway on a machine: this program itself where the machine is this one. `tty`: with a terminal there.
    #[must_use]
    pub fn slipway<S: AsRef<OsStr>>(
        &self,
        machine: &Machine,
        tty: bool,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        if is_here(machine) {
            return self.here(words);
        }
        if self.words.is_none()
            && let Some(mut command) = step(machine)
        {
            if tty {
                command.arg("--pty");
            }
            // No shell is between.
            command.arg(PROGRAM).args(words);
            return command;
        }
        let usual = || USUAL.split_whitespace().map(str::to_owned).collect();
        let shell: Vec<String> = self.words.clone().unwrap_or_else(usual);
        let mut command = Command::new(&shell[0]);
        // The file's destinations are no options (`slipway_lab` sees to it), and ssh joins the words with spaces for a shell.
        command.args(&shell[1..]);
        if tty && Path::new(&shell[0]).file_name().is_some_and(|name| name == "ssh") {
            command.arg("-t");
        }
        command.arg(&machine.ssh).arg(PROGRAM);
        command.args(words.into_iter().map(|word| quoted(&word.as_ref().to_string_lossy())));
        command
    }

    /// A command of Slipway on this machine.
    #[must_use]
    pub fn here<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.own);
        command.args(words);
        command
    }

    /// A command of Slipway that is there for as long as a lab. In a Slurm job that is a step of its own, on this machine too: Slurm
    /// asks a step to end, and then waits, but kills whatever a script leaves behind.
    #[must_use]
    pub fn standing<S: AsRef<OsStr>>(&self, machine: &Machine, words: impl IntoIterator<Item = S>) -> Command {
        match step(machine).filter(|_| self.words.is_none()) {
            Some(mut command) => {
                command.arg(PROGRAM).args(words);
                command
            }
            None => self.slipway(machine, false, words),
        }
    }

    /// In words, for a user to try.
    #[must_use]
    pub fn shown(&self, machine: &Machine) -> String {
        match (&self.words, machine.job) {
            (None, Some(job)) => format!("srun --overlap {}", to_step(machine, job).join(" ")),
            (None, None) => format!("{USUAL} {}", machine.ssh),
            (Some(words), _) => format!("{} {}", words.join(" "), machine.ssh),
        }
    }
}

/// A step on a machine of a job.
fn step(machine: &Machine) -> Option<Command> {
    let mut command = Command::new(STEP[0]);
    command.args(&STEP[1..]).args(to_step(machine, machine.job?));
    Some(command)
}

/// The options that lead to a machine of a job.
fn to_step(machine: &Machine, job: u32) -> [String; 2] {
    [format!("--jobid={job}"), format!("--nodelist={}", machine.ssh)]
}

/// Whether a machine is this one: it has its address.
#[must_use]
pub fn is_here(machine: &Machine) -> bool {
    with_address(machine.address.into()).is_ok_and(|found| found.is_some())
}

/// A word that a shell takes as it is.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_words_as_they_are() {
        assert_eq!(quoted("a-b_c.d/e=f"), "a-b_c.d/e=f");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("$(rm -rf /); it's"), "'$(rm -rf /); it'\\''s'");
    }
}

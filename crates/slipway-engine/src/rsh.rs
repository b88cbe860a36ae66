//! How commands reach other machines: ssh, or what stands in its place.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use slipway_lab::model::Machine;
use slipway_sys::interfaces::with_address;

/// Names the command in the place of ssh. Its words are separated by spaces; the destination and the words to execute follow.
pub const VARIABLE: &str = "SLIPWAY_RSH";
/// No question for a password: nobody would see it among the answers of several machines.
const USUAL: &str = "ssh -o BatchMode=yes";
/// Name of the program on other machines.
const PROGRAM: &str = "slipway";

/// This program's own file is not found.
#[derive(Debug, thiserror::Error)]
#[error("find this program's own file: {0}")]
pub struct RshError(#[from] io::Error);

/// The remote shell.
#[derive(Debug, Clone)]
pub struct Rsh {
    words: Vec<String>,
    /// This program's own file, for this machine's part.
    own: PathBuf,
}

impl Rsh {
    /// The one that `SLIPWAY_RSH` names, or ssh.
    ///
    /// # Errors
    /// When this program's own file is not found.
    pub fn from_env() -> Result<Self, RshError> {
        let words = std::env::var(VARIABLE).ok().filter(|words| !words.trim().is_empty());
        let words = words.as_deref().unwrap_or(USUAL).split_whitespace().map(str::to_owned).collect();
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
        let mut command = Command::new(&self.words[0]);
        // The file's destinations are no options (`slipway_lab` sees to it), and ssh joins the words with spaces for a shell.
        command.args(&self.words[1..]);
        if tty && Path::new(&self.words[0]).file_name().is_some_and(|name| name == "ssh") {
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

    /// In words, for a user to try.
    #[must_use]
    pub fn shown(&self, machine: &Machine) -> String {
        format!("{} {}", self.words.join(" "), machine.ssh)
    }
}

/// Whether a machine is this one: it has its address.
#[must_use]
pub fn is_here(machine: &Machine) -> bool {
    with_address(machine.address.into()).is_ok_and(|found| found.is_some())
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
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

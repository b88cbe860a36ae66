//! The machine's Python interpreter.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::EnvironmentError;
use crate::run;

/// Prints all that an environment depends on: it links to the interpreter, and has packages for its version and machine.
const SELF: &str = "import os, sys, sysconfig; \
    print(os.path.realpath(sys.executable), sys.version, sysconfig.get_platform(), sep='\\n')";

/// `python3`, as `PATH` has it.
#[derive(Debug)]
pub(super) struct Interpreter {
    /// Its own path, whatever links lead to it.
    program: PathBuf,
    /// Path, version and platform, in lines.
    pub(super) version: String,
}

impl Interpreter {
    pub(super) fn find() -> Result<Self, EnvironmentError> {
        let output = Command::new("python3").args(["-I", "-c", SELF]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => EnvironmentError::NoPython,
            _ => EnvironmentError::io("run", Path::new("python3"))(error),
        })?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        let program = PathBuf::from(version.lines().next().unwrap_or_default());
        if !output.status.success() || !program.is_absolute() {
            let what = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(EnvironmentError::Interpreter(what));
        }
        Ok(Self { program, version })
    }

    /// Makes an empty environment with pip.
    pub(super) fn venv(&self, folder: &Path, lock: &File) -> Result<(), EnvironmentError> {
        let mut command = Command::new(&self.program);
        command.args(["-I", "-m", "venv"]).arg(folder);
        let mut said = String::new();
        let (ended, errors) = run(command, lock, &mut |line| {
            said.push_str(line);
            said.push('\n');
        })?;
        if ended {
            return Ok(());
        }
        // Debian's interpreter says the first on standard output where its package python3-venv is missing.
        let is_missing =
            ["ensurepip", "No module named venv"].iter().any(|word| said.contains(word) || errors.contains(word));
        let what = if errors.trim().is_empty() { said } else { errors };
        Err(if is_missing { EnvironmentError::NoVenv } else { EnvironmentError::Interpreter(what.trim().to_owned()) })
    }
}

//! Tables of results, which a program of its own makes: `slipway-query`, beside this one (docs/adr/0041).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use slipway_campaign::design::Rows;

use super::Study;

/// The program's file name.
const PROGRAM: &str = "slipway-query";

/// The reason why the program that makes tables does not do its work. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// It is not there.
    #[error(
        "find the program {}: {source}\nHint: it belongs beside slipway; `make install` installs both, `cargo build -p slipway-query` builds it", path.display()
    )]
    Missing {
        /// The path where it should be.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It cannot be executed.
    #[error("execute {}: {source}", path.display())]
    Execute {
        /// The program.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It ended with an error of its own.
    #[error("{0}")]
    Failed(String),
    /// Its answer is none.
    #[error("read the answer of {PROGRAM}: {0}\nHint: install both programs from one build")]
    Answer(#[from] serde_json::Error),
}

/// A contradiction between tables and queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFault {
    /// The file.
    pub file: String,
    /// The fault, in a sentence.
    pub what: String,
}

/// The program, with the arguments that all of its commands share.
///
/// # Errors
/// Where it is not beside this program.
pub fn program() -> Result<Command, TablesError> {
    let own = slipway_sys::exe::path().map_err(|source| TablesError::Missing { path: PROGRAM.into(), source })?;
    let path = own.with_file_name(PROGRAM);
    match path.metadata() {
        Ok(_) => {
            let mut command = Command::new(path);
            command.args(["--caller", env!("CARGO_PKG_VERSION")]);
            Ok(command)
        }
        Err(source) => Err(TablesError::Missing { path, source }),
    }
}

/// Brings a campaign's tables up to date, all of them.
///
/// # Errors
/// Where the program fails.
pub fn update(study: &Study) -> Result<(), TablesError> {
    run(program()?.arg("update").arg(study.folder())).map(drop)
}

/// Compares a campaign's tables with its queue and its stored series. Where no tables were made yet, none are wrong.
///
/// # Errors
/// Where the program fails. Differences are no error.
pub fn verify(study: &Study) -> Result<Vec<TableFault>, TablesError> {
    if !study.folder().join("tables/results").exists() {
        return Ok(Vec::new());
    }
    Ok(serde_json::from_slice(&run(program()?.arg("verify").arg(study.folder()))?)?)
}

/// Reads columns of a Parquet file, as far as it has them.
pub(super) fn list<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<Rows, TablesError> {
    Ok(serde_json::from_slice(&run(program()?.arg("list").arg(path).args(names))?)?)
}

/// Runs the program to its end. Returns what it wrote.
fn run(command: &mut Command) -> Result<Vec<u8>, TablesError> {
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|source| TablesError::Execute { path: command.get_program().into(), source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim_end();
    let account = words.rsplit_once("slipway: failed to ").map_or(words, |(_, account)| account);
    Err(TablesError::Failed(if account.is_empty() {
        format!("run {PROGRAM}: it ended with {}", output.status)
    } else {
        account.to_owned()
    }))
}

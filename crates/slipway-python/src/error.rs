//! Reasons why there is no environment.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Lines of pip's errors in a message.
const LINES: usize = 6;
/// The beginning of pip's error for a missing version, as in
/// "ERROR: Could not find a version that satisfies the requirement numpy==99 (from versions: 1.3.0, …)".
const UNKNOWN: &str = "Could not find a version that satisfies the requirement ";

/// The reason why there is no environment. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A requirement that does not name one version.
    #[error("understand the Python package `{0}`\nHint: name one version, as in `numpy==2.4.0`")]
    Requirement(String),
    /// No interpreter.
    #[error("find python3\nHint: apt-get install python3 python3-venv")]
    NoPython,
    /// An interpreter without what makes environments.
    #[error("make a Python environment: this python3 has no venv or no pip\nHint: apt-get install python3-venv")]
    NoVenv,
    /// The interpreter itself fails.
    #[error("run python3: {0}")]
    Interpreter(String),
    /// The package index cannot be reached.
    #[error(
        "fetch the Python package {package}: the package index cannot be reached: {why}\nHint: check the network, or name another index in pip.conf or PIP_INDEX_URL"
    )]
    Network {
        /// The package, or all requirements where pip does not say.
        package: String,
        /// pip's words.
        why: String,
    },
    /// The package index has no such package for this interpreter.
    #[error(
        "fetch the Python package {package}: {why}\nHint: check the name and the version; it must have a wheel for this python3"
    )]
    Package {
        /// The package.
        package: String,
        /// pip's words.
        why: String,
    },
    /// pip fails otherwise.
    #[error("install {packages} with pip: {why}")]
    Pip {
        /// All requirements.
        packages: String,
        /// pip's last lines.
        why: String,
    },
    /// A file operation.
    #[error("{doing} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
}

impl EnvironmentError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "\nHint: run as root, or name a folder of your own for Python environments with SLIPWAY_PYTHON"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nHint: make room, or name another folder for Python environments with SLIPWAY_PYTHON"
        }
        _ => "",
    }
}

/// The last `most` bytes that a program writes; it is read to its end, so that the program does not wait.
pub(super) fn words(mut from: impl Read, most: u64) -> String {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * most {
            kept.drain(..kept.len() - most);
        }
    }
    slipway_document::text::printable(&String::from_utf8_lossy(&kept))
}

/// Explains pip's errors.
pub(super) fn explain(errors: &str, requirements: &[&str]) -> EnvironmentError {
    // "WARNING: Retrying (Retry(total=1, …)) after connection broken by 'NewConnectionError(…)': /simple/numpy/"
    let broken = errors.lines().find(|line| line.contains("after connection broken by"));
    let unknown = errors.lines().find_map(|line| line.split_once(UNKNOWN)).map(|(_, rest)| rest);
    let package = || unknown.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    if let Some(line) = broken {
        let why = line.split_once("broken by ").map_or(line, |(_, why)| why);
        let why = why.rsplit_once(": /").map_or(why, |(why, _)| why);
        let package = package().unwrap_or_else(|| requirements.join(" "));
        return EnvironmentError::Network { package, why: why.trim_matches(['\'', '"']).to_owned() };
    }
    if let (Some(package), Some(rest)) = (package(), unknown) {
        let versions =
            rest.split_once("(from versions: ").map_or("none", |(_, versions)| versions.trim_end_matches(')'));
        let latest: Vec<&str> = versions.rsplit(", ").take(LINES).collect();
        return EnvironmentError::Package {
            package,
            why: format!("the index has no such version (latest: {})", latest.join(", ")),
        };
    }
    let lines: Vec<&str> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
    let why = lines[lines.len().saturating_sub(LINES)..].join("\n");
    EnvironmentError::Pip { packages: requirements.join(" "), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_without_network_names_the_package() {
        let errors = "\
WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/numpy/
ERROR: Could not find a version that satisfies the requirement numpy==2.4.0 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.0
";
        let error = explain(errors, &["six==1.17.0", "numpy==2.4.0"]);
        assert!(
            matches!(&error, EnvironmentError::Network { package, why } if package == "numpy==2.4.0" && why.contains("name resolution")),
            "{error:?}"
        );
    }

    #[test]
    fn pip_without_the_version_names_those_that_there_are() {
        let errors = "ERROR: Could not find a version that satisfies the requirement six==99 (from versions: 1.15.0, 1.16.0, 1.17.0)\n";
        let error = explain(errors, &["six==99"]).to_string();
        assert!(error.contains("six==99") && error.contains("latest: 1.17.0, 1.16.0"), "{error}");
    }

    #[test]
    fn a_program_that_writes_on_and_on_keeps_its_last_words() {
        let text = "x".repeat(10_000) + "end";
        let kept = words(text.as_bytes(), 100);
        assert!(kept.ends_with("end") && kept.len() <= 200, "{}", kept.len());
    }
}

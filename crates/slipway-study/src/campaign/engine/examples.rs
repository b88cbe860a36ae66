//! Models and weather files that come with EnergyPlus' Python package.

use std::fs;
use std::path::PathBuf;

use slipway_document::{FileError, suggest};
use slipway_python::Environment;

use super::EngineError;

/// The example whose name begins so, whatever its case. Without an environment nothing is known of examples.
pub(super) fn find(
    environment: Option<&Environment>,
    kind: &str,
    name: &str,
) -> Result<Vec<(Option<PathBuf>, PathBuf)>, EngineError> {
    let Some(environment) = environment else { return Ok(Vec::new()) };
    let folder = environment.packages()?.join("pyenergyplus/data").join(kind);
    let entries = fs::read_dir(&folder).map_err(FileError::of("read", &folder))?;
    let mut known: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    known.sort_unstable();
    let begins = |file: &&String| file.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let found: Vec<&String> = known.iter().filter(begins).collect();
    let failed = |what| EngineError::Example { name: name.to_owned(), what };
    match found[..] {
        [file] => Ok(vec![(None, folder.join(file))]),
        [] => Err(failed(format!("the package has none\nHint: {}", suggest(name, &known)))),
        _ => {
            let names: Vec<&str> = found.iter().map(|file| file.as_str()).collect();
            Err(failed(format!("several begin so\nHint: write more of one of {}", names.join(", "))))
        }
    }
}

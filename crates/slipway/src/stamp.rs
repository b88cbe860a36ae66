//! Folders for results, named by what and when.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;

/// Now, in UTC (RFC 3339).
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Where results go that no option places. `SLIPWAY_RESULTS` names another folder.
const RESULTS: &str = "slipway-results";

/// Makes the folder `named`, or `WHAT-LAB-TIME` in [`RESULTS`]. It must be new: results are never mixed.
pub(crate) fn folder(named: Option<&Path>, what: &str, lab: &str) -> Result<PathBuf, Failure> {
    let folder = if let Some(named) = named {
        named.to_owned()
    } else {
        let results = std::env::var_os("SLIPWAY_RESULTS").map_or_else(|| PathBuf::from(RESULTS), PathBuf::from);
        fs::create_dir_all(&results).map_err(Failure::io(format!("make folder {}", results.display())))?;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        results.join(format!("{what}-{lab}-{}", time.replace([':', '-', '.'], "")))
    };
    fs::create_dir(&folder).map_err(|error| {
        let shown = folder.display();
        Failure::usage(format!("make folder {shown}: {error}\nHint: name one that is not there yet with --out"))
    })?;
    Ok(folder)
}

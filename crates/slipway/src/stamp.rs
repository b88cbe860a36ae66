//! Folders for results, named by what and when.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;

/// Now, in UTC (RFC 3339).
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Makes the folder `named`, or `slipway-WHAT-LAB-TIME` in the current one. It must be new: results are never mixed.
pub(crate) fn folder(named: Option<&Path>, what: &str, lab: &str) -> Result<PathBuf, Failure> {
    let stamped = || {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        PathBuf::from(format!("slipway-{what}-{lab}-{}", time.replace([':', '-', '.'], "")))
    };
    let folder = named.map_or_else(stamped, Path::to_owned);
    fs::create_dir(&folder).map_err(|error| {
        let shown = folder.display();
        Failure::usage(format!("make folder {shown}: {error}\nHint: name one that is not there yet with --out"))
    })?;
    Ok(folder)
}

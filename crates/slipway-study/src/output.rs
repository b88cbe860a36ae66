//! Folders for results.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::StudyError;

/// Now, in UTC (RFC 3339).
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The folder that a study makes for its results. It must be new: results are never mixed.
#[derive(Debug, Clone)]
pub enum Output {
    /// This folder.
    At(PathBuf),
    /// A folder in this one, named after the study, the lab and the time. This one is made where it does not exist.
    Within(PathBuf),
}

impl Output {
    /// Makes the folder of a study of the kind `kind` on `lab`.
    pub(crate) fn make(&self, kind: &str, lab: &str) -> Result<PathBuf, StudyError> {
        let folder = match self {
            Self::At(folder) => folder.clone(),
            Self::Within(parent) => {
                fs::create_dir_all(parent).map_err(StudyError::io(format!("make folder {}", parent.display())))?;
                let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
                parent.join(format!("{kind}-{lab}-{}", time.replace([':', '-', '.'], "")))
            }
        };
        match fs::create_dir(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(StudyError::Output { path: folder, source }),
        }
    }
}

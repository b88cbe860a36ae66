//! The error of a file operation, for all crates that read and write files.

use std::io;
use std::path::{Path, PathBuf};

/// A file operation that failed. It fits "failed to …".
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}", path.display())]
pub struct FileError {
    /// Verb, as in "open".
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the action.
    pub source: io::Error,
}

impl FileError {
    /// Names the action and the file that an error is about.
    pub fn of(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { doing, path: path.clone(), source }
    }
}

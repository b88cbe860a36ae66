//! Matrices of delays, read from the files that a lab names.

use std::io;
use std::path::PathBuf;

use slipway_lab::matrix::{self, Matrix};
use slipway_lab::model::Lab;

/// Why a matrix cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// Its file cannot be read.
    #[error("read matrix {}: {source}\nHint: its path in the lab file is relative to that file", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is wrong.
    #[error("read matrix {}, line {}, column {}: {}\nHint: {}", path.display(), error.line, error.column, error.what, error.help)]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Where in it, what, and what to do.
        error: matrix::MatrixError,
    },
}

/// Reads all matrices of a lab, in its order.
///
/// # Errors
/// The first that cannot be read, or is wrong.
pub fn read_matrices(lab: &Lab) -> Result<Vec<Matrix>, MatrixError> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|source| MatrixError::Io { path: path.clone(), source })?;
        matrix::parse(&text, lab).map_err(|error| MatrixError::Wrong { path: path.clone(), error })
    };
    lab.matrices.iter().map(|file| read(&file.path)).collect()
}

//! Why a node's root could not be made.

use std::io;
use std::path::{Path, PathBuf};

use slipway_sys::mount::MountError;

/// Why a root could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootfsError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("{doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::File { doing, path, source }
}

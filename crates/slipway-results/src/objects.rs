//! Files of results, by the digest of their content.
//!
//! A worker packs the folder of an attempt into its own folder `out`, the only place that it may write to. Each file
//! becomes an object: compressed, and named by the SHA-256 of its plain content. A *manifest* is an object too: the list
//! of an attempt's files. The coordinator gets digests, and moves the objects to storage without reading them, so its
//! processor time does not depend on the size of results. Each read compares content and digest.

mod content;
mod directory;
mod gc;
mod manifest;
mod out;
mod pack;
mod remote;
pub mod service;
mod unpack;
mod waiting;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use slipway_campaign::model::Keep;

use crate::digest::Digest;

pub use content::{read, verify};
pub use directory::Directory;
pub use gc::{Swept, gc};
pub use manifest::{Entry, Manifest, Skipped};
pub use out::Out;
pub use pack::{Limits, PackError, Packed, pack};
pub use remote::Remote;
pub use unpack::unpack;
pub use waiting::Waiting;

/// Storage of objects.
pub trait Storage: Send + Sync {
    /// Takes objects over from a worker's folder `out`. An object that storage already has is dropped there, and so a
    /// repeated call changes nothing. Returns the bytes by which storage grew.
    fn adopt(&self, out: &Path, digests: &[Digest]) -> Result<u64, ObjectError>;

    /// Opens an object's compressed bytes. [`read()`] gives plain and checked ones.
    fn open(&self, digest: &Digest) -> Result<Box<dyn Read>, ObjectError>;

    /// Names every object, in any order.
    fn list(&self, see: &mut dyn FnMut(Object) -> Result<(), ObjectError>) -> Result<(), ObjectError>;

    /// Removes an object. One that is gone is no error.
    fn remove(&self, digest: &Digest) -> Result<(), ObjectError>;
}

/// An object in storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub digest: Digest,
    /// Compressed size in bytes.
    pub stored: u64,
    /// Time when a result last named it.
    pub adopted: SystemTime,
}

/// The reason why an object cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A file operation failed.
    #[error("{doing} {}: {source}{}", path.display(), room(source))]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// A worker named an object that it did not write.
    #[error("adopt object {0}: neither the worker's folder nor storage has it")]
    Missing(Digest),
    /// Storage lacks the object.
    #[error(
        "read object {0}: storage does not have it\nHint: `slipway campaign verify` lists the points that it belongs to"
    )]
    Gone(Digest),
    /// The content is not the one that the digest names.
    #[error("read object {digest}: {source}\nHint: `slipway campaign verify` lists the points that it belongs to")]
    Content {
        /// The object.
        digest: Digest,
        /// The fault.
        source: io::Error,
    },
    /// The server that has the objects, or the program that speaks to it.
    #[error("{0}")]
    Service(String),
    /// The object is no manifest.
    #[error("read manifest {digest}: {what}")]
    Manifest {
        /// The object.
        digest: Digest,
        /// The fault.
        what: String,
    },
}

impl ObjectError {
    fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    /// The error of a read: of the object's content, unless the storage itself failed.
    pub fn reading(digest: &Digest) -> impl FnOnce(io::Error) -> Self + use<> {
        let digest = *digest;
        move |source| match source.downcast::<Self>() {
            Ok(error) => error,
            Err(source) => Self::Content { digest, source },
        }
    }
}

/// Whether the files of a point stay in storage.
#[must_use]
pub fn keeps(keep: Keep, failed: bool) -> bool {
    match keep {
        Keep::All => true,
        Keep::Failures => failed,
        Keep::Tables => false,
    }
}

/// File name of an object.
fn file_name(digest: &Digest) -> String {
    format!("{digest}.zst")
}

fn room(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nHint: make room; `slipway campaign gc --dry-run` says what it would remove"
        }
        _ => "",
    }
}

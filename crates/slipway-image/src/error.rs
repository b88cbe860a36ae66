//! Errors of images.

use std::io;
use std::path::{Path, PathBuf};

/// The action of [`ImageError::Io`] when the image itself could not be opened.
pub(super) const OPEN: &str = "open image";

/// The reason why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file operation failed.
    #[error("{doing} {}: {source}{}", path.display(), hint_for(doing, source))]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// The archive cannot be read, or is not one.
    #[error("read archive {}: {what}", archive.display())]
    Archive {
        /// The file.
        archive: PathBuf,
        /// The fault.
        what: String,
    },
    /// The archive asks for something that no image may have.
    #[error("unpack {}: entry `{entry}` {why}", archive.display())]
    Refused {
        /// The file.
        archive: PathBuf,
        /// The entry's name, escaped.
        entry: String,
        /// The fault of the member, and the next step.
        why: String,
    },
    /// The entry is fine but this machine did not take it.
    #[error("unpack {}: write entry `{entry}`: {source}{}", archive.display(), hint(source))]
    Write {
        /// The file.
        archive: PathBuf,
        /// The entry's name, escaped.
        entry: String,
        /// The error of the action.
        source: io::Error,
    },
    /// The bytes are not those that the image's manifest names.
    #[error(
        "read {}: its sha256 is {found}, the image says {expected}\nHint: the image is damaged or was tampered with; fetch or build it again", path.display()
    )]
    Digest {
        /// The blob.
        path: PathBuf,
        /// Hexadecimal.
        expected: String,
        /// Hexadecimal.
        found: String,
    },
    /// An image folder's JSON is not what the specifications say.
    #[error("read image {}: {what}", path.display())]
    Layout {
        /// The file within the folder.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// No image of that name, or several and no name was given.
    #[error("choose an image in {}: {what}\nHint: set `reference` to one of: {}", path.display(), names.join(", "))]
    Reference {
        /// Folder or archive.
        path: PathBuf,
        /// "it holds several", or "none is named x".
        what: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// A reference was given for something that is one root file system.
    #[error(
        "choose an image in {}: it is one root file system, not a set of named images\nHint: leave `reference` out", .0.display()
    )]
    NoReferences(PathBuf),
    /// Neither a directory nor a regular file.
    #[error(
        "open image {}: it is neither a directory nor an archive\nHint: an image is `host`, a directory, a tar (also gzip or zstd), or an OCI or docker image", .0.display()
    )]
    NotAnImage(PathBuf),
    /// `SLIPWAY_IMAGE_MAX` cannot be read.
    #[error("read SLIPWAY_IMAGE_MAX=`{text}`: {error}\nHint: write a size with its unit, as in 100GiB")]
    Limit {
        /// The text, as given.
        text: String,
        /// The fault.
        error: String,
    },
    /// More layers than overlayfs can stack.
    #[error(
        "stack image `{image}`: it has {layers} layers, and overlayfs takes 500\nHint: squash it (`buildah commit --squash`)"
    )]
    TooManyLayers {
        /// The image's name in the lab.
        image: String,
        /// The number of layers, bases included.
        layers: usize,
    },
}

impl ImageError {
    pub(super) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source: source.into() }
    }
}

fn hint_for(doing: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if doing == OPEN => "\nHint: check the path in the lab file",
        io::ErrorKind::PermissionDenied if doing == OPEN => "",
        _ => hint(error),
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nHint: make room, or name another folder for unpacked images with SLIPWAY_IMAGES"
        }
        io::ErrorKind::Unsupported => {
            "\nHint: the folder of unpacked images must be on a file system with extended attributes; name another with SLIPWAY_IMAGES"
        }
        io::ErrorKind::PermissionDenied => {
            "\nHint: run as root, or name a folder of your own for unpacked images with SLIPWAY_IMAGES"
        }
        _ => "",
    }
}

/// Refuses content with another digest than it should have.
pub(super) fn check_digest(path: &Path, expected: &str, found: &str) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::Digest { path: path.to_owned(), expected: expected.to_owned(), found: found.to_owned() })
}

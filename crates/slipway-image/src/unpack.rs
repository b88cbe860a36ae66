//! From an archive to a folder.

use std::fs::File;
use std::io;
use std::path::Path;

use super::error::ImageError;
use super::member::{Fault, Members, shown};
use super::stream::{self, Limits, Sums};
use super::tree::{Place, Refusal, Tree};

/// An archive or layer to unpack.
pub(super) struct Archive<'a> {
    pub(super) file: File,
    /// For messages.
    pub(super) path: &'a Path,
    /// True where the caller compares the sums with those of a manifest.
    pub(super) verified: bool,
}

/// Unpacks an archive into the empty folder `into`.
pub(super) fn unpack(
    archive: Archive<'_>,
    into: &Path,
    limits: &Limits,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Sums, ImageError> {
    let Archive { file, path: archive, verified } = archive;
    let failed = |problem| match problem {
        Problem::Stream(Fault::Io(error)) => {
            ImageError::Archive { archive: archive.to_owned(), what: error.to_string() }
        }
        Problem::Stream(Fault::Malformed(what)) => ImageError::Archive { archive: archive.to_owned(), what },
        Problem::Entry(entry, Refusal::Why(why)) => {
            ImageError::Refused { archive: archive.to_owned(), entry, why: why.to_owned() }
        }
        Problem::Entry(entry, Refusal::Write(source)) => {
            ImageError::Write { archive: archive.to_owned(), entry, source }
        }
    };
    let mut tree = Tree::new(into, limits.entries).map_err(ImageError::io("open", into))?;
    let ((), sums) = stream::read(file, limits, progress, |content| {
        let members = Members::new(content);
        let mut members = if verified { members.without_end_mark() } else { members };
        while let Some(member) = members.next()? {
            tree.place(&member, &mut members).map_err(|problem| match problem {
                Place::Stream(fault) => Problem::Stream(fault),
                Place::Refusal(refusal) => Problem::Entry(shown(&member.path), refusal),
            })?;
        }
        Ok(())
    })
    .map_err(failed)?;
    tree.finish().map_err(ImageError::io("write", into))?;
    Ok(sums)
}

enum Problem {
    Stream(Fault),
    Entry(String, Refusal),
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Stream(fault)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Stream(error.into())
    }
}

//! Removal of objects that no result names.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::{Manifest, ObjectError, Storage};
use crate::digest::Digest;

/// The objects that a collection removed, or would remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Number of objects.
    pub objects: u64,
    /// Their compressed size in bytes.
    pub bytes: u64,
}

/// Removes all objects but these manifests, the files in them and `others`. Objects that a worker wrote less than
/// `grace` ago stay: the results that name them may not be recorded yet. A dry run removes nothing.
///
/// # Errors
/// A manifest that cannot be read ends the collection before it removes anything.
pub fn gc(
    storage: &dyn Storage,
    manifests: impl IntoIterator<Item = Digest>,
    others: impl IntoIterator<Item = Digest>,
    grace: Duration,
    dry_run: bool,
) -> Result<Swept, ObjectError> {
    let young = SystemTime::now() - grace;
    let mut live: HashSet<Digest> = others.into_iter().collect();
    for digest in manifests {
        if live.insert(digest) {
            live.extend(Manifest::read(storage, &digest)?.files.iter().map(|file| file.digest));
        }
    }
    let mut swept = Swept::default();
    storage.list(&mut |object| {
        if live.contains(&object.digest) || object.adopted > young {
            return Ok(());
        }
        swept.objects += 1;
        swept.bytes += object.stored;
        if dry_run { Ok(()) } else { storage.remove(&object.digest) }
    })?;
    Ok(swept)
}

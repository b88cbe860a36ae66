//! Files that set values again after a reboot. The journal knows each one's text, so that removing them is exact.

mod text;
mod tuned;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::journal::{Entry, Journal, JournalError, replace};
use super::key::Key;
use super::persisted::{FILES, LARGEST, Persisted, TUNED};

pub(super) use text::is_ours;

/// Files could not be written or removed.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The file system.
    #[error("keep settings in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of that name is not Slipway's, or somebody edited it.
    #[error("replace {}: Slipway did not write what is in it\nHint: look at the file; --override (with `rollback`: --force) replaces it", .0.display())]
    Foreign(PathBuf),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Has the settings `keys` set again after a reboot, by files below `root`. Gives the settings that no file can set, with the
/// reason. With `force`, a file that somebody else wrote is replaced; its text comes back with [`unpersist`].
///
/// # Errors
/// [`PersistError::Foreign`] for such a file without `force`: no file changed then.
pub fn persist(
    journal: &mut Journal,
    root: &Path,
    keys: &[Key],
    force: bool,
) -> Result<Vec<(Key, &'static str)>, PersistError> {
    let lost: Vec<(Key, &str)> = keys.iter().filter_map(|key| Some((key.clone(), text::obstacle(key)?))).collect();
    let mut entries = journal.entries().to_vec();
    for entry in entries.iter_mut().filter(|entry| keys.contains(&entry.key) && text::obstacle(&entry.key).is_none()) {
        entry.persisted = true;
    }
    sync(journal, root, &entries, force)?;
    Ok(lost)
}

/// The standing of Slipway's profile of tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunedProfile {
    /// The profile is there, and tuned does not use it.
    Written,
    /// tuned uses it.
    Active,
    /// tuned is told to use it, and it is gone.
    Lost,
}

/// The standing of the profile below `root`; `None` where it is neither there nor asked for.
#[must_use]
pub fn tuned_profile(journal: &Journal, root: &Path) -> Option<TunedProfile> {
    let is_there = journal.files().iter().any(|file| file.path == TUNED);
    match (is_there, tuned::is_active(root)) {
        (true, true) => Some(TunedProfile::Active),
        (true, false) => Some(TunedProfile::Written),
        (false, true) => Some(TunedProfile::Lost),
        (false, false) => None,
    }
}

/// Brings the files below `root` in line with the journal's entries: those without one go.
///
/// # Errors
/// [`PersistError::Foreign`] where somebody edited a file, unless `force` is given.
pub fn unpersist(journal: &mut Journal, root: &Path, force: bool) -> Result<(), PersistError> {
    let entries = journal.entries().to_vec();
    sync(journal, root, &entries, force)
}

/// Checks all files, notes in the journal what they will be, then writes them.
fn sync(journal: &mut Journal, root: &Path, entries: &[Entry], force: bool) -> Result<(), PersistError> {
    let mut next = Vec::new();
    let mut gone = Vec::new();
    for path in FILES {
        let known = journal.files().iter().find(|file| file.path == path);
        let body = match path {
            TUNED if !tuned::is_installed(root) => String::new(),
            TUNED => {
                tuned::body(path, entries, tuned::included(root, known.map(|known| known.text.as_str())).as_deref())
            }
            _ => text::body(path, entries),
        };
        if known.is_none() && body.is_empty() {
            continue;
        }
        let full = root.join(path);
        let there = read(&full)?;
        let ours =
            |text: &String| known.is_some_and(|known| *text == known.text || Some(text) == known.before.as_ref());
        let foreign = there.filter(|text| !ours(text) && known.and_then(|known| known.former.as_ref()) != Some(text));
        if foreign.is_some() && !force {
            return Err(PersistError::Foreign(full));
        }
        let former = known.and_then(|known| known.former.clone());
        if body.is_empty() {
            gone.push((full, former));
            continue;
        }
        // A rollback need not restore somebody's edit of Slipway's own file.
        let former = former.or(foreign.filter(|text| !is_ours(text)));
        let text = match known {
            Some(known) if text::body_of(&known.text) == body => known.text.clone(),
            _ => text::whole(entries, path, &body),
        };
        let before = known.map(|known| known.text.clone());
        next.push(Persisted { path: path.to_owned(), text, before, former });
    }
    let old = journal.files().to_vec();
    let kept = old.iter().filter(|file| !next.iter().any(|new| new.path == file.path)).cloned();
    let during: Vec<Persisted> = next.iter().cloned().chain(kept).collect();
    journal.change(|all, files| {
        *files = during;
        for entry in all {
            entry.persisted = entries.iter().any(|other| other.key == entry.key && other.persisted);
        }
    })?;
    for file in &next {
        write(&root.join(&file.path), &file.text)?;
    }
    for (path, former) in &gone {
        match former {
            Some(former) => write(path, former)?,
            None => remove(path)?,
        }
    }
    Ok(journal.change(|_, files| *files = next)?)
}

/// A file's text; `None` where there is none. Anything but a regular file is foreign, and so is one that is too large.
fn read(path: &Path) -> Result<Option<String>, PersistError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= LARGEST as u64 => {
            fs::read_to_string(path).map(Some).map_err(io_error(path))
        }
        Ok(_) => Err(PersistError::Foreign(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path)(error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), PersistError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| replace(path, text.as_bytes(), 0o644))
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(io_error(path))
}

fn remove(path: &Path) -> Result<(), PersistError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(path)(error)),
        _ => {}
    }
    // The profile's folder is Slipway's own. One in which somebody put more files stays.
    if path.ends_with(TUNED)
        && let Some(folder) = path.parent()
    {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> PersistError {
    |source| PersistError::Io { path: path.to_owned(), source }
}

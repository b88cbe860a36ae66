//! Plans become settings: all of them, or none.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::journal::{Entry, Journal, JournalError};
use super::kernel::{Kernel, SettingError, accepts, unchanged};
use super::plan::{Change, Plan};

/// A setting after it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The change that was planned.
    #[serde(flatten)]
    pub change: Change,
    /// The value that the kernel has now; it may have rounded the one that was asked for.
    pub now: String,
}

/// A plan could not be carried out. The settings that had changed are as before, unless `left` names them.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An earlier command ended half-way.
    #[error(
        "change settings: an earlier command ended in the middle\nHint: `slipway tune rollback` restores the former values"
    )]
    Unfinished,
    /// The values in the journal are those of an earlier boot.
    #[error(
        "change settings: the journal is from before the last reboot\nHint: `slipway tune rollback` closes it, and removes its files"
    )]
    EarlierBoot,
    /// The setting has changed since the plan was made.
    #[error("change {key}: it is `{is}` now, and was `{was}` when the plan was made\nHint: look at the plan again", key = change.wish.key, was = change.is)]
    Moved {
        /// The change.
        change: Box<Change>,
        /// The value now.
        is: String,
    },
    /// The kernel has another value than it was given.
    #[error("verify {key}: it was set to `{want}`, and is `{is}`", key = change.wish.key, want = change.wish.want)]
    Unverified {
        /// The change.
        change: Box<Change>,
        /// The value now.
        is: String,
    },
    /// The kernel.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A change failed, and undoing those before it failed too.
    #[error(
        "{because}; then it failed to restore {left}\nHint: `slipway tune status` shows what differs, `slipway tune rollback` tries again"
    )]
    Stuck {
        /// The first failure.
        because: String,
        /// The settings that are not as before, and why.
        left: String,
    },
}

/// Carries the plan out. Each setting's former value is in the journal before the kernel gets the new one, and the value is read
/// back after. When one fails, those before it are restored.
///
/// # Errors
/// See [`ApplyError`]; apart from [`ApplyError::Stuck`], the settings are as before.
pub fn apply(kernel: &mut impl Kernel, journal: &mut Journal, plan: &Plan) -> Result<Vec<Applied>, ApplyError> {
    if journal.is_unfinished() {
        return Err(ApplyError::Unfinished);
    }
    if journal.is_of_an_earlier_boot() && !(journal.entries().is_empty() && journal.files().is_empty()) {
        return Err(ApplyError::EarlierBoot);
    }
    let before: Vec<Entry> = journal.entries().to_vec();
    let mut applied = Vec::new();
    for change in &plan.changes {
        match one(kernel, journal, change) {
            Ok(now) => applied.push(Applied { change: change.clone(), now }),
            Err(error) => return Err(undo(kernel, journal, &before, &applied, change, error)),
        }
    }
    Ok(applied)
}

/// Changes one setting.
fn one(kernel: &mut impl Kernel, journal: &mut Journal, change: &Change) -> Result<String, ApplyError> {
    let key = &change.wish.key;
    let is = kernel.read(key)?;
    if !unchanged(key, &is, &change.is) {
        return Err(ApplyError::Moved { change: Box::new(change.clone()), is });
    }
    journal.change(|entries, _| begin(entries, change))?;
    kernel.write(key, &change.wish.want)?;
    let now = kernel.read(key)?;
    if !accepts(key, &change.wish.want, &now) {
        return Err(ApplyError::Unverified { change: Box::new(change.clone()), is: now });
    }
    journal.change(|entries, _| finish(entries, change, &now))?;
    Ok(now)
}

/// Notes that a change begins. The former value stays the one from before the first change.
fn begin(entries: &mut Vec<Entry>, change: &Change) {
    let wish = &change.wish;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if let Some(entry) = entries.iter_mut().find(|entry| entry.key == wish.key) {
        // A drifted value is neither the former one nor Slipway's. The change takes it over; rolling back restores the former.
        (entry.pending, entry.wrote, entry.at) = (Some(wish.want.clone()), Some(change.is.clone()), at);
        (entry.rule, entry.why) = (wish.rule.clone(), wish.why.clone());
        return;
    }
    entries.push(Entry {
        key: wish.key.clone(),
        former: change.is.clone(),
        wrote: None,
        pending: Some(wish.want.clone()),
        rule: wish.rule.clone(),
        why: wish.why.clone(),
        at,
        persisted: false,
    });
}

fn finish(entries: &mut [Entry], change: &Change, now: &str) {
    if let Some(entry) = entries.iter_mut().find(|entry| entry.key == change.wish.key) {
        (entry.pending, entry.wrote) = (None, Some(now.to_owned()));
    }
}

/// Restores what had changed, the last first, and the entries of before.
fn undo(
    kernel: &mut impl Kernel,
    journal: &mut Journal,
    before: &[Entry],
    applied: &[Applied],
    failed: &Change,
    error: ApplyError,
) -> ApplyError {
    let begun = applied.iter().map(|applied| &applied.change).chain([failed]);
    let mut left = Vec::new();
    for change in begun.collect::<Vec<_>>().into_iter().rev() {
        let key = &change.wish.key;
        if matches!(&error, ApplyError::Moved { change: moved, .. } if moved.wish.key == *key) {
            continue;
        }
        // Until the value is back, both it and the new one are Slipway's: a crash in between leaves no riddle.
        let noted = journal.change(|entries, _| {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *key) {
                entry.pending = entry.wrote.replace(change.is.clone()).or(entry.pending.take());
            }
        });
        left.extend(noted.err().map(|error| error.to_string()));
        match restore(kernel, change) {
            Ok(()) => {
                let former = before.iter().find(|entry| entry.key == *key).cloned();
                let done = journal.change(|entries, _| {
                    entries.retain(|entry| entry.key != *key);
                    entries.extend(former);
                });
                left.extend(done.err().map(|error| error.to_string()));
            }
            Err(error) => left.push(error.to_string()),
        }
    }
    // The order of before, where an older entry was taken out and put back.
    let place = |entry: &Entry| before.iter().position(|old| old.key == entry.key).unwrap_or(usize::MAX);
    left.extend(journal.change(|entries, _| entries.sort_by_key(place)).err().map(|error| error.to_string()));
    if left.is_empty() { error } else { ApplyError::Stuck { because: error.to_string(), left: left.join("; ") } }
}

/// Gives a setting the value from before a change, and reads it back.
fn restore(kernel: &mut impl Kernel, change: &Change) -> Result<(), SettingError> {
    let key = &change.wish.key;
    if !unchanged(key, &kernel.read(key)?, &change.is) {
        kernel.write(key, &change.is)?;
        let now = kernel.read(key)?;
        if !unchanged(key, &now, &change.is) {
            return Err(SettingError::value(key, &change.is, "the kernel took another value"));
        }
    }
    Ok(())
}

//! The way back: former values, whatever happened meanwhile.

use serde::Serialize;

use super::journal::{Entry, Journal, JournalError};
use super::kernel::{Kernel, SettingError, accepts, unchanged};
use super::key::Key;

/// The result of rolling back a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", content = "detail", rename_all = "kebab-case")]
pub enum Fate {
    /// It has its former value again.
    Restored,
    /// It had its former value already.
    Already,
    /// The reboot had undone the change, and the value is no business of Slipway's any more.
    Rebooted,
    /// The device or the parameter is gone, and its value with it.
    Gone,
    /// Someone has changed it since: the value is neither Slipway's nor the former one. It stays, and so does the entry.
    Drifted,
    /// The kernel refused. The entry stays.
    Failed(String),
}

/// A setting, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The setting.
    pub key: Key,
    /// The value that was to be restored.
    pub former: String,
    /// The value that was found; `None` where there was none to read.
    pub found: Option<String>,
    /// Its fate.
    #[serde(flatten)]
    pub fate: Fate,
}

impl Outcome {
    /// Whether the setting is done with.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !matches!(self.fate, Fate::Drifted | Fate::Failed(_))
    }
}

/// Restores the former value of each setting that `chosen` takes, the last change first. A setting that someone else changed
/// meanwhile stays as it is, unless `force` is given. One that fails does not keep the others from their values.
///
/// An entry leaves the journal only after its setting has the former value. So a rollback that is killed can be run again.
///
/// # Errors
/// When the journal cannot be written.
pub fn rollback(
    kernel: &mut impl Kernel,
    journal: &mut Journal,
    force: bool,
    chosen: impl Fn(&Entry) -> bool,
) -> Result<Vec<Outcome>, JournalError> {
    let rebooted = journal.is_of_an_earlier_boot();
    let entries: Vec<Entry> = journal.entries().iter().rev().filter(|entry| chosen(entry)).cloned().collect();
    let mut outcomes = Vec::new();
    for entry in entries {
        let outcome = one(kernel, &entry, rebooted, force);
        if outcome.is_done() {
            journal.change(|entries, _| entries.retain(|other| other.key != entry.key))?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn one(kernel: &mut impl Kernel, entry: &Entry, rebooted: bool, force: bool) -> Outcome {
    let outcome = |found, fate| Outcome { key: entry.key.clone(), former: entry.former.clone(), found, fate };
    let found = match kernel.read(&entry.key) {
        Ok(found) => found,
        Err(SettingError::Missing(_)) => return outcome(None, Fate::Gone),
        Err(error) => return outcome(None, Fate::Failed(error.to_string())),
    };
    let fate = if unchanged(&entry.key, &found, &entry.former) {
        Fate::Already
    } else if rebooted && !(entry.persisted && is_ours(entry, &found)) {
        Fate::Rebooted
    } else if force || is_ours(entry, &found) {
        match restore(kernel, entry) {
            Ok(()) => Fate::Restored,
            Err(why) => Fate::Failed(why),
        }
    } else {
        Fate::Drifted
    };
    outcome(Some(found), fate)
}

/// Whether a value is one that Slipway gave: the last change's, or the one that may have been interrupted.
pub(super) fn is_ours(entry: &Entry, found: &str) -> bool {
    entry.wrote.as_ref().is_some_and(|wrote| unchanged(&entry.key, wrote, found))
        || entry.pending.as_ref().is_some_and(|pending| accepts(&entry.key, pending, found))
}

fn restore(kernel: &mut impl Kernel, entry: &Entry) -> Result<(), String> {
    kernel.write(&entry.key, &entry.former).map_err(|error| error.to_string())?;
    let now = kernel.read(&entry.key).map_err(|error| error.to_string())?;
    if unchanged(&entry.key, &now, &entry.former) {
        return Ok(());
    }
    Err(format!("the kernel made `{now}` of `{}`", entry.former))
}

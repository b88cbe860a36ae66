//! Drift: what Slipway set, and what is so still.

use serde::Serialize;

use super::journal::{Entry, Journal};
use super::kernel::{Kernel, SettingError, unchanged};
use super::rollback::is_ours;

/// How a setting stands against the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It has the value that Slipway set.
    Kept,
    /// A command ended in the middle of changing it.
    Unfinished,
    /// It has its former value.
    Former,
    /// Someone has changed it since.
    Drifted,
    /// The device or the parameter is gone.
    Gone,
    /// The kernel does not tell it.
    Unknown,
}

/// A setting in the journal, and its value now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The journal's entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// The value now.
    pub is: Option<String>,
    /// The standing of the setting against the journal.
    pub standing: Standing,
}

/// Compares each setting in the journal with the kernel's value. Nothing changes.
#[must_use]
pub fn drift(kernel: &impl Kernel, journal: &Journal) -> Vec<Drift> {
    journal.entries().iter().map(|entry| one(kernel, entry)).collect()
}

fn one(kernel: &impl Kernel, entry: &Entry) -> Drift {
    let (is, standing) = match kernel.read(&entry.key) {
        Ok(is) => {
            let standing = if entry.pending.is_some() {
                Standing::Unfinished
            } else if is_ours(entry, &is) {
                Standing::Kept
            } else if unchanged(&entry.key, &entry.former, &is) {
                Standing::Former
            } else {
                Standing::Drifted
            };
            (Some(is), standing)
        }
        Err(SettingError::Missing(_)) => (None, Standing::Gone),
        Err(_) => (None, Standing::Unknown),
    };
    Drift { entry: entry.clone(), is, standing }
}

//! The seam between settings and the kernel, and which values count as the ones that were asked for.

use std::io;

use rustix::io::Errno;

use super::key::{BlockKnob, Key, NicKnob};
use slipway_document::cpus::Cpus;

/// Longest value, bytes.
pub(super) const LONGEST_VALUE: usize = 8192;
/// A page of the largest kind, KiB: the kernel rounds readahead down to pages.
const PAGE_KIB: u64 = 64;

/// Reads and writes settings. A value that [`read`](Self::read) gave can be written as it is, and restores the setting exactly.
pub trait Kernel {
    /// The value now. Numbers in it are separated by single spaces.
    ///
    /// # Errors
    /// [`SettingError::Missing`] where this machine has no such setting.
    fn read(&self, key: &Key) -> Result<String, SettingError>;

    /// Sets the value. The kernel may round it.
    ///
    /// # Errors
    /// [`SettingError::Refused`] with the kernel's error.
    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError>;
}

/// Reading or writing a setting failed.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting, or no such device.
    #[error("find {0} on this machine")]
    Missing(Key),
    /// The kernel could not tell it.
    #[error("read {key}: {source}")]
    Unread {
        /// The setting.
        key: Key,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel did not take the value.
    #[error("set {key} to `{value}`: {source}")]
    Refused {
        /// The setting.
        key: Key,
        /// The value.
        value: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The value cannot be one of this setting's.
    #[error("set {key} to `{value}`: {why}")]
    Value {
        /// The setting.
        key: Key,
        /// The value.
        value: String,
        /// The reason.
        why: &'static str,
    },
}

impl SettingError {
    /// Sorts a failure to read: a file or device that is not there is a missing setting.
    pub(super) fn reading(key: &Key) -> impl FnOnce(io::Error) -> Self {
        |source| match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::OPNOTSUPP) => Self::Missing(key.clone()),
            _ => Self::Unread { key: key.clone(), source },
        }
    }

    pub(super) fn writing(key: &Key, value: &str) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Refused { key: key.clone(), value: value.to_owned(), source }
    }

    pub(super) fn value(key: &Key, value: &str, why: &'static str) -> Self {
        Self::Value { key: key.clone(), value: value.to_owned(), why }
    }
}

/// A value with single spaces between its words.
pub(super) fn tidy(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a value is one line that can be shown and written.
pub(super) fn is_sound(value: &str) -> bool {
    value.len() <= LONGEST_VALUE && !value.chars().any(char::is_control)
}

/// Whether two values of a setting are the same one. The default queueing discipline of an interface is: its kind is the kernel's
/// business, and differs between an interface that is up and one that is down.
#[must_use]
pub fn unchanged(key: &Key, one: &str, other: &str) -> bool {
    let is_default = |value: &str| value.starts_with("default ");
    let defaults = matches!(key, Key::Nic { what: NicKnob::Qdisc, .. }) && is_default(one) && is_default(other);
    defaults || tidy(one) == tidy(other)
}

/// Whether the value `is` is what came of asking for `want`, by the rule of the setting:
///
/// - a ring may be larger, up to twice as large: drivers round up to a power of two;
/// - a delay of interrupts may differ by a quarter or 2 µs: hardware counts in ticks of its own;
/// - readahead may be smaller by less than a page of the largest kind;
/// - processors may be written as another list or mask of the same ones;
/// - a queueing discipline may be the interface's default.
#[must_use]
pub fn accepts(key: &Key, want: &str, is: &str) -> bool {
    if unchanged(key, want, is) {
        return true;
    }
    let numbers = || Some((want.trim().parse::<u64>().ok()?, is.trim().parse::<u64>().ok()?));
    match key {
        Key::Nic { what: NicKnob::RingRx | NicKnob::RingTx, .. } => {
            numbers().is_some_and(|(want, is)| is >= want && is <= want.saturating_mul(2))
        }
        Key::Nic { what: NicKnob::CoalesceRxUsecs | NicKnob::CoalesceTxUsecs, .. } => {
            numbers().is_some_and(|(want, is)| want != 0 && want.abs_diff(is) <= (want / 4).max(2))
        }
        Key::Block { what: BlockKnob::ReadAheadKib, .. } => {
            numbers().is_some_and(|(want, is)| is <= want && want - is < PAGE_KIB)
        }
        Key::Nic { what: NicKnob::Rps(_) | NicKnob::Xps(_), .. } => mask(want) == mask(is),
        Key::Irq { .. } => list(want).is_some_and(|want| Some(want) == list(is)),
        Key::Nic { what: NicKnob::Qdisc, .. } => is.strip_prefix("default ").is_some_and(|is| is == want),
        // A feature that is as it was asked for, while something else was requested before, counts.
        Key::Nic { what: NicKnob::Feature(_), .. } => is.split(' ').next() == Some(want),
        _ => false,
    }
}

/// A mask without the zeros and commas that the kernel adds.
fn mask(text: &str) -> String {
    let digits: String = text.trim().chars().filter(|char| *char != ',').collect();
    digits.trim_start_matches('0').to_ascii_lowercase()
}

/// The processors of a list, where it names any.
fn list(text: &str) -> Option<Cpus> {
    text.parse().ok().filter(|Cpus(cpus)| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roundings_that_a_knob_allows() {
        let accepted = |key: &str, want, is| accepts(&key.parse().expect("a key"), want, is);
        assert!(accepted("nic eth0 ring-rx", "3000", "4096") && !accepted("nic eth0 ring-rx", "3000", "2048"));
        assert!(!accepted("nic eth0 ring-rx", "3000", "8192"));
        assert!(accepted("block sda readahead", "1001", "1000") && !accepted("block sda readahead", "1001", "128"));
        assert!(
            accepted("nic eth0 coalesce-rx-usecs", "100", "96") && !accepted("nic eth0 coalesce-rx-usecs", "0", "2")
        );
        assert!(accepted("irq 24", "0,1,2,3", "0-3") && !accepted("irq 24", "0-3", "0-4"));
        assert!(accepted("nic eth0 xps 0", "3", "00000000,00000003") && !accepted("nic eth0 xps 0", "3", "30"));
        assert!(
            accepted("nic eth0 qdisc", "fq", "default fq") && !accepted("nic eth0 qdisc", "fq", "default pfifo_fast")
        );
        assert!(accepted("nic eth0 feature rx-gro", "off", "off [requested on]"));
        assert!(
            accepted("sysctl net.ipv4.tcp_rmem", "1 2 3", "1\t2\t3") && !accepted("sysctl vm.swappiness", "10", "11")
        );
        assert!(!accepted("irq 24", "0-4000000000", "0"), "no list is that long");
    }
}

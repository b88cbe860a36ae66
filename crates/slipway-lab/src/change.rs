//! Changes of conditions, and the words that they are written in: `delay=20ms loss=0.5% rate=none`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use slipway_document::suggest;
use slipway_document::units::{Value, shortened};

pub use crate::check::Problem;
use crate::condition::{Limits, LinkConditions};

/// A set of keys, each of which has a value or not.
pub trait Keys: Clone + Default {
    /// All keys, in the order in which they are written.
    const NAMES: &'static [&'static str];
    /// Keys that a running lab cannot change, and why.
    const FIXED: &'static [(&'static str, &'static str)] = &[];

    /// Sets a key from its written value. `Err` says what is wrong and what to write.
    fn put(&mut self, key: &str, text: &str) -> Result<(), WordError>;

    /// Takes a key's value away. Takes a key away. Words that are no key have nothing to take.
    fn clear(&mut self, key: &str);

    /// The keys that have a value, and the value as it is written.
    fn words(&self) -> Vec<(&'static str, String)>;

    /// Key by key: its own value, where it has none that of `under`.
    #[must_use]
    fn over(&self, under: &Self) -> Self;

    /// Faults of these values: impossible ones, and ones that need another key; empty where all can hold.
    fn problems(&self) -> Vec<Problem>;
}

/// The reason why words are no change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// Not `key=value`.
    #[error("`{word}` is not of the form key=value; write for example {example}")]
    NoKey {
        /// The word, as written.
        word: String,
        /// Words that are right.
        example: &'static str,
    },
    /// There is no such key.
    #[error("there is no key `{key}`; {suggestion}")]
    UnknownKey {
        /// The key, as written.
        key: String,
        /// The key that was probably meant.
        suggestion: String,
    },
    /// A key is set more than once.
    #[error("`{0}` is here twice; keep one of the two")]
    Twice(String),
    /// A key's value cannot be read.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: String,
        /// The fault, and a valid value.
        problem: String,
    },
    /// A key cannot change while the lab runs.
    #[error("`{key}` cannot change: {why}")]
    Fixed {
        /// The key.
        key: String,
        /// The reason, and the next step.
        why: &'static str,
    },
}

/// Keys that change: set, or taken away. Those it does not name stay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Change<T: Default> {
    /// New values.
    #[serde(default)]
    pub set: T,
    /// Keys that go back to none, by name.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub clear: Vec<String>,
}

/// A change of link conditions.
pub type LinkChange = Change<LinkConditions>;

/// A change of what a node may use: its processor time, memory, disk and processes.
pub type NodeChange = Change<Limits>;

/// Whether a `key=value` word is about what a node may use, and not about a link.
#[must_use]
pub fn is_of_nodes(word: &str) -> bool {
    let key = word.split('=').next().unwrap_or(word);
    Limits::NAMES.contains(&key) || key.starts_with("disk.")
}

/// The word for no value.
pub const NONE: &str = "none";

impl<T: Keys> Change<T> {
    /// Reads `key=value` words; `key=none` takes a key away. A word without `=` goes on with the value before it, as in
    /// `loss=gemodel 1% 10%`.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, WordError> {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for word in words.iter().flat_map(|words| words.as_ref().split_whitespace()) {
            match (word.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) => pairs.push((key, value.to_owned())),
                (None, Some((_, value))) => {
                    value.push(' ');
                    value.push_str(word);
                }
                (None, None) => {
                    let example = "`delay=20ms` for a link, `cpu=50%` for a node";
                    return Err(WordError::NoKey { word: shortened(word), example });
                }
            }
        }
        let mut change = Self::default();
        for (i, (key, value)) in pairs.iter().enumerate() {
            if pairs[..i].iter().any(|(earlier, _)| earlier == key) {
                return Err(WordError::Twice(shortened(key)));
            }
            if let Some((_, why)) = T::FIXED.iter().find(|(fixed, _)| fixed == key) {
                return Err(WordError::Fixed { key: shortened(key), why });
            }
            change.put(key, value)?;
        }
        Ok(change)
    }

    /// Sets a key, or with `none` takes it away.
    pub(crate) fn put(&mut self, key: &str, text: &str) -> Result<(), WordError> {
        if text != NONE {
            return self.set.put(key, text);
        }
        if !T::NAMES.contains(&key) {
            return Err(unknown::<T>(key));
        }
        self.clear.push(key.to_owned());
        Ok(())
    }

    /// The values after the change, from those before it.
    #[must_use]
    pub fn apply(&self, before: &T) -> T {
        let mut after = self.set.over(before);
        for key in &self.clear {
            after.clear(key);
        }
        after
    }

    /// As [`apply`](Self::apply); the first problem where the outcome cannot hold.
    pub fn checked(&self, before: &T) -> Result<T, Problem> {
        let after = self.apply(before);
        match after.problems().into_iter().next() {
            None => Ok(after),
            Some(problem) => Err(problem),
        }
    }

    /// True if it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clear.is_empty() && self.set.words().is_empty()
    }
}

impl<T: Keys> FromStr for Change<T> {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Self::parse(&[text])
    }
}

impl<T: Keys> fmt::Display for Change<T> {
    /// As the words that it is read from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_words(&self.set, f)?;
        let mut gap = if self.set.words().is_empty() { "" } else { " " };
        for key in &self.clear {
            write!(f, "{gap}{key}={NONE}")?;
            gap = " ";
        }
        Ok(())
    }
}

impl fmt::Display for LinkConditions {
    /// As the words that [`LinkChange`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_words(self, f)
    }
}

/// `key=value` words with a space between.
fn write_words<T: Keys>(values: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let words: Vec<_> = values.words().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    f.write_str(&words.join(" "))
}

fn unknown<T: Keys>(key: &str) -> WordError {
    WordError::UnknownKey { key: shortened(key), suggestion: suggest(key, T::NAMES) }
}

/// [`Keys`] of a type: each name, and the field that holds its value.
macro_rules! keys {
    ($type:ident, $problems:path, [$($fixed:expr),*], $($name:literal $($field:ident).+,)+) => {
        impl Keys for $type {
            const NAMES: &'static [&'static str] = &[$($name),+];
            const FIXED: &'static [(&'static str, &'static str)] = &[$($fixed),*];

            fn put(&mut self, key: &str, text: &str) -> Result<(), WordError> {
                let wrong = |problem| WordError::Value { key: key.to_owned(), problem };
                match key {
                    $($name => self.$($field).+ = Some(Value::read(text).map_err(wrong)?),)+
                    _ => return Err(unknown::<Self>(key)),
                }
                Ok(())
            }

            fn clear(&mut self, key: &str) {
                match key {
                    $($name => self.$($field).+ = None,)+
                    _ => {}
                }
            }

            fn words(&self) -> Vec<(&'static str, String)> {
                let mut words = Vec::new();
                $(if let Some(value) = &self.$($field).+ {
                    words.push(($name, value.to_string()));
                })+
                words
            }

            fn over(&self, under: &Self) -> Self {
                let mut merged = under.clone();
                $(if self.$($field).+.is_some() {
                    merged.$($field).+ = self.$($field).+;
                })+
                merged
            }

            fn problems(&self) -> Vec<Problem> {
                $problems(self)
            }
        }
    };
}

keys! {
    LinkConditions, crate::check::link, [],
    "delay" delay,
    "jitter" jitter,
    "distribution" distribution,
    "delay_correlation" delay_correlation,
    "loss" loss,
    "loss_correlation" loss_correlation,
    "corrupt" corrupt,
    "duplicate" duplicate,
    "reorder" reorder,
    "reorder_correlation" reorder_correlation,
    "gap" gap,
    "rate" rate,
    "limit" limit,
    "queue" queue,
}

keys! {
    Limits, crate::check::limits,
    [("disk.size", "a disk is made when its node starts; write `disk: {size: …}` in the lab file")],
    "cpu" cpu,
    "cpu_period" cpu_period,
    "memory" memory,
    "memory_soft" memory_soft,
    "swap" swap,
    "pids" pids,
    "disk.size" disk.size,
    "disk.read" disk.read,
    "disk.write" disk.write,
    "disk.read_iops" disk.read_iops,
    "disk.write_iops" disk.write_iops,
}

//! Rules: what a machine should be set to, why, and for which kernels and drivers that holds. Each is a file.

mod builtin;
mod file;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use slipway_document::FileError;
use slipway_document::errors::DocumentErrors;

use crate::formula::Formula;
use crate::kernel::Range;

pub use crate::names::Per;
pub use crate::target::Profile;
pub use builtin::FILES as BUILT_IN;
pub use file::parse;

/// Rules that a folder may have.
const MOST: usize = 1000;
/// Longest file of a rule, bytes.
const LONGEST: u64 = 64 << 10;

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name, such as `tcp-receive-buffer`.
    pub id: String,
    /// The state that it wants, in a few words.
    pub title: String,
    /// The group that it belongs to, such as `tcp-buffers`.
    pub group: String,
    /// The size of its effect.
    pub effect: Effect,
    /// Uses of a machine that it is for.
    pub profiles: Vec<Profile>,
    /// The things that it looks at, one by one.
    pub per: Per,
    /// Kernels that it holds for.
    pub kernel: Range,
    /// Drivers that it holds for; all where there are none.
    pub drivers: Vec<String>,
    /// Conditions, and the reason why the rule does not apply where one is not fulfilled.
    pub when: Vec<(Formula, String)>,
    /// Values by name, each of which may use those before it.
    pub lets: Vec<(String, Formula)>,
    /// The value now.
    pub is: Formula,
    /// The value wanted.
    pub want: Formula,
    /// Whether the value now is good; else it must equal the one wanted.
    pub good: Option<Formula>,
    /// The reason, with `{name}` and `{name:size}` in it.
    pub why: String,
    /// The gain.
    pub gain: String,
    /// The danger of following it.
    pub risk: String,
    /// Its origin.
    pub source: Origin,
    /// The setting to change, or the steps by hand.
    pub apply: Apply,
    /// How to see that it is followed.
    pub verify: String,
    /// Where it is kept over a reboot.
    pub persist: String,
}

/// The size of a rule's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Throughput may double, or transfers fail without it.
    Large,
    /// It shows in measurements.
    Some,
    /// It helps under conditions of its own.
    Small,
}

/// The document that a rule comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a source: a map of `title`, `date`, `url` and `checked`")]
pub struct Origin {
    /// The title of the document.
    pub title: String,
    /// Its address, where it has one.
    pub url: Option<String>,
    /// The day or year that it is of.
    pub date: String,
    /// The day on which somebody last held the rule against it. `None`: nobody has, since it could not be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
}

/// The way to follow a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apply {
    /// By setting this; `{nic}`, `{irq}` and `{block}` stand for the thing that the rule looks at.
    Key(String),
    /// By hand.
    Advice(String),
}

/// Rules that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A rule is wrong.
    #[error("{0}")]
    Rule(Box<DocumentErrors>),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Two rules have one name.
    #[error(
        "read rules: two are called `{0}`\nHint: give each rule an `id` of its own; to replace a rule that comes with Slipway, add `replaces: true`"
    )]
    Twice(String),
    /// Too many.
    #[error("read rules: {0} has more than {MOST} files")]
    TooMany(String),
}

/// Rules in the order of their groups and names.
#[derive(Debug, Clone)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// Those that come with Slipway.
    ///
    /// # Errors
    /// A file is wrong. A test sees to it that none is.
    pub fn built_in() -> Result<Self, RulesError> {
        let rules =
            BUILT_IN.iter().map(|(name, text)| parse(name, text).map(|(rule, _)| rule).map_err(RulesError::Rule));
        Self::of(rules.collect::<Result<_, _>>()?)
    }

    /// Some of those that come with Slipway, by their names. A name that no rule has is left out.
    ///
    /// # Errors
    /// As [`built_in`](Self::built_in).
    pub fn named(names: &[&str]) -> Result<Self, RulesError> {
        let is_named = |file: &str| {
            let name = file.strip_prefix("rules/").and_then(|file| file.strip_suffix(".yaml"));
            name.is_some_and(|name| names.contains(&name))
        };
        let files = BUILT_IN.iter().filter(|(file, _)| is_named(file));
        let rules = files.map(|(name, text)| parse(name, text).map(|(rule, _)| rule).map_err(RulesError::Rule));
        Self::of(rules.collect::<Result<_, _>>()?)
    }

    /// Adds the rules of a folder, `*.yaml`.
    ///
    /// # Errors
    /// It cannot be read, a rule is wrong, or has the name of another without `replaces: true`.
    pub fn with_folder(mut self, folder: &Path) -> Result<Self, RulesError> {
        let failed = FileError::of("read", folder);
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                paths.push(path);
            }
            if paths.len() > MOST {
                return Err(RulesError::TooMany(folder.display().to_string()));
            }
        }
        paths.sort();
        for path in paths {
            let text = read(&path)?;
            let (rule, replaces) = parse(&path.display().to_string(), &text).map_err(RulesError::Rule)?;
            if replaces {
                self.0.retain(|other| other.id != rule.id);
            }
            self.0.push(rule);
        }
        Self::of(self.0)
    }

    fn of(mut rules: Vec<Rule>) -> Result<Self, RulesError> {
        rules.sort_by(|one, other| (&one.group, &one.id).cmp(&(&other.group, &other.id)));
        match rules.windows(2).find(|pair| pair[0].id == pair[1].id) {
            Some(pair) => Err(RulesError::Twice(pair[0].id.clone())),
            None => Ok(Self(rules)),
        }
    }
}

fn read(path: &Path) -> Result<String, FileError> {
    use std::io::Read as _;
    let failed = FileError::of("read", path);
    let mut text = String::new();
    let file = fs::File::open(path).map_err(&failed)?;
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(&failed)?;
    Ok(text)
}

//! One rule's word on one thing.

use serde::Serialize;

use crate::rules::{Effect, Origin};
use crate::setting::{Key, Wish};

/// A verdict, in the order in which people read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A change is advised.
    Advised,
    /// A fact that the rule needs is unknown.
    CannotTell,
    /// All is well.
    Good,
    /// The rule is not for this machine, kernel, driver or use.
    NotApplicable,
}

/// One rule's word on one thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The rule's name.
    pub rule: String,
    /// The state that it wants, in a few words.
    pub title: String,
    /// The group that it belongs to.
    pub group: String,
    /// The size of its effect.
    pub effect: Effect,
    /// The thing, such as `nic eth0`.
    pub subject: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason of a verdict without values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The setting, where Slipway can make it.
    pub key: Option<Key>,
    /// The value now.
    pub is: Option<String>,
    /// The value wanted.
    pub want: Option<String>,
    /// The reason of the rule.
    pub why: String,
    /// The gain.
    pub gain: String,
    /// The danger.
    pub risk: String,
    /// The command that follows it, or the steps by hand.
    pub how: String,
    /// How to see that it is followed.
    pub verify: String,
    /// Where it is kept over a reboot.
    pub persist: String,
    /// The rule's origin.
    pub source: Origin,
}

impl Advice {
    /// The setting as a wish.
    #[must_use]
    pub fn wish(&self) -> Option<Wish> {
        Some(Wish { key: self.key.clone()?, want: self.want.clone()?, rule: self.rule.clone(), why: self.why.clone() })
    }
}

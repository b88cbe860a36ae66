//! From wishes to a plan: a value that says everything before anything changes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::journal::Entry;
use super::kernel::{Kernel, accepts, is_sound};
use super::key::{Key, NicKnob};
use super::owner::{Owner, Owners};
use super::scope::Scope;

/// A setting that a rule, or a person, wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wish {
    /// The setting.
    pub key: Key,
    /// The value.
    pub want: String,
    /// The rule that advises it.
    pub rule: String,
    /// The reason, for people.
    pub why: String,
}

/// A setting that would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The wish.
    #[serde(flatten)]
    pub wish: Wish,
    /// The value now.
    pub is: String,
    /// Others that set it too.
    pub owners: Vec<Owner>,
}

/// A wish that cannot be fulfilled here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The wish.
    #[serde(flatten)]
    pub wish: Wish,
    /// The obstacle.
    pub obstacle: String,
}

/// All that `apply` would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Settings that change, in this order.
    pub changes: Vec<Change>,
    /// Wishes that are fulfilled already.
    pub same: Vec<Wish>,
    /// Wishes that cannot be fulfilled here.
    pub refused: Vec<Refusal>,
}

impl Plan {
    /// Whether the plan would take a setting from someone else.
    #[must_use]
    pub fn takes_over(&self) -> bool {
        self.changes.iter().any(|change| !change.owners.is_empty())
    }
}

/// Reads each setting, and says what fulfilling `wishes` would change. Nothing changes. Modules come first, because other
/// settings may need them. Of two wishes for one setting with different values, both are refused.
#[must_use]
pub fn plan(kernel: &impl Kernel, scope: &Scope, owners: &Owners, entries: &[Entry], wishes: Vec<Wish>) -> Plan {
    let mut plan = Plan::default();
    let mut asked: BTreeMap<Key, Vec<Wish>> = BTreeMap::new();
    for wish in &wishes {
        asked.entry(wish.key.clone()).or_default().push(wish.clone());
    }
    let (modules, others): (Vec<Wish>, Vec<Wish>) =
        wishes.into_iter().partition(|wish| matches!(wish.key, Key::Module(_)));
    for wish in modules.into_iter().chain(others) {
        let Some(same_key) = asked.remove(&wish.key) else { continue };
        if let Some(other) = same_key.iter().find(|other| other.want != wish.want) {
            let obstacle = format!("{} wants `{}`, and {} wants `{}`", wish.rule, wish.want, other.rule, other.want);
            plan.refused.extend(same_key.iter().cloned().map(|wish| Refusal { wish, obstacle: obstacle.clone() }));
            continue;
        }
        let is = match look(kernel, scope, entries, &wish) {
            Ok(is) => is,
            Err(obstacle) => {
                plan.refused.push(Refusal { wish, obstacle });
                continue;
            }
        };
        if accepts(&wish.key, &wish.want, &is) {
            plan.same.push(wish);
        } else {
            let owners = owners.of(&wish.key);
            plan.changes.push(Change { wish, is, owners });
        }
    }
    plan
}

fn look(kernel: &impl Kernel, scope: &Scope, entries: &[Entry], wish: &Wish) -> Result<String, String> {
    if !is_sound(&wish.want) || wish.want.trim().is_empty() {
        return Err("the value is not one short line".to_owned());
    }
    scope.allows(&wish.key)?;
    let is = kernel.read(&wish.key).map_err(|error| error.to_string())?;
    let own = entries.iter().any(|entry| entry.key == wish.key);
    if matches!(wish.key, Key::Nic { what: NicKnob::Qdisc, .. }) && !own && !accepts(&wish.key, &wish.want, &is) {
        // Its settings and classes would be lost.
        match is.strip_prefix("default ") {
            None => return Err(format!("somebody put {is} there, with settings that Slipway cannot restore")),
            Some("mq") => {
                let hint = "it has a discipline for each queue; `sysctl net.core.default_qdisc` rules new ones";
                return Err(hint.to_owned());
            }
            Some(_) => {}
        }
    }
    Ok(is)
}

//! Rules that want different values of one setting.

use serde::Serialize;

use super::advice::{Advice, Verdict};
use super::one::Look;
use crate::setting::Key;

/// Two rules that cannot both be followed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    /// The setting.
    pub key: Key,
    /// The rule that advises a change.
    pub rule: String,
    /// The value that it wants.
    pub want: String,
    /// The rule that does not accept that value.
    pub against: String,
}

/// Every advised value must be one that the other rules of the same setting accept, those that are content now among them.
pub(super) fn find(advices: &[(Advice, Look<'_>)]) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let advised = advices.iter().filter(|(advice, _)| advice.verdict == Verdict::Advised);
    for (advice, _) in advised {
        let (Some(key), Some(want)) = (&advice.key, &advice.want) else { continue };
        let others = advices.iter().filter(|(other, _)| other.key.as_ref() == Some(key) && other.rule != advice.rule);
        for (other, look) in others {
            if look.accepts(want) == Some(false) {
                conflicts.push(Conflict {
                    key: key.clone(),
                    rule: advice.rule.clone(),
                    want: want.clone(),
                    against: other.rule.clone(),
                });
            }
        }
    }
    conflicts.sort();
    conflicts
}

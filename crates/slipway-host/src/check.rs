//! Rules held against facts: what is good, what is advised, what nobody can tell.

mod advice;
mod conflict;
mod one;

use serde::Serialize;

use crate::facts::{Fact, Facts};
use crate::names::Subject;
use crate::rules::{Per, Rules};
use crate::setting::Wish;

pub use crate::target::Target;
pub use advice::{Advice, Verdict};
pub use conflict::Conflict;

/// The result of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    /// The use of the machine that was asked about.
    pub target: Target,
    /// One advice for each rule and thing that it looks at: those that change most come first.
    pub advices: Vec<Advice>,
    /// Rules that want different values of one setting.
    pub conflicts: Vec<Conflict>,
}

impl Checked {
    /// The number of advices with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.advices.iter().filter(|advice| advice.verdict == verdict).count()
    }

    /// Advice to change something, the largest effect first.
    pub fn advised(&self) -> impl Iterator<Item = &Advice> {
        self.advices.iter().filter(|advice| advice.verdict == Verdict::Advised)
    }

    /// Settings that are advised, for [`plan`](crate::setting::plan). Those that are to be made by hand stay out.
    #[must_use]
    pub fn wishes(&self) -> Vec<Wish> {
        self.advised().filter_map(Advice::wish).collect()
    }
}

/// Holds every rule against the facts. Nothing is changed.
#[must_use]
pub fn check(facts: &Facts, rules: &Rules, target: &Target) -> Checked {
    let mut looks = Vec::new();
    for rule in &rules.0 {
        let subjects = subjects(facts, rule.per);
        looks.extend(subjects.into_iter().map(|subject| one::Look { facts, target, rule, subject }));
    }
    let mut advices: Vec<(Advice, one::Look<'_>)> = looks.into_iter().map(|look| (look.advice(), look)).collect();
    let conflicts = conflict::find(&advices);
    advices.sort_by_key(|(advice, _)| (advice.verdict, advice.effect));
    Checked { target: target.clone(), advices: advices.into_iter().map(|(advice, _)| advice).collect(), conflicts }
}

/// The things of a kind. An interface without a link has nothing to do with data.
fn subjects(facts: &Facts, per: Per) -> Vec<Subject<'_>> {
    let nics = facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true));
    match per {
        Per::Machine => vec![Subject::Machine],
        Per::Nic => nics.map(Subject::Nic).collect(),
        Per::Irq => nics.flat_map(|nic| nic.interrupts.iter().map(move |irq| Subject::Irq(nic, irq))).collect(),
        Per::Block => facts.blocks.iter().map(Subject::Block).collect(),
    }
}

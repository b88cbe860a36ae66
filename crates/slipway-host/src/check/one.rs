//! One rule held against one thing.

use super::advice::{Advice, Verdict};
use crate::facts::Facts;
use crate::formula::Value;
use crate::names::{self, Subject};
use crate::rules::{Apply, Rule};
use crate::target::Target;

/// A rule and the thing that it looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) facts: &'a Facts,
    pub(super) target: &'a Target,
    pub(super) rule: &'a Rule,
    pub(super) subject: Subject<'a>,
}

/// A verdict and what led to it.
struct Found {
    verdict: Verdict,
    reason: Option<String>,
    is: Option<String>,
    want: Option<String>,
}

impl Found {
    fn without_values(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: Some(reason.into()), is: None, want: None }
    }
}

impl Look<'_> {
    pub(super) fn advice(&self) -> Advice {
        let rule = self.rule;
        let found = self.found().unwrap_or_else(|found| found);
        let key = match &rule.apply {
            Apply::Key(key) => self.fill(key, None).parse().ok(),
            Apply::Advice(_) => None,
        };
        let how = match &rule.apply {
            Apply::Key(_) => "slipway tune apply".to_owned(),
            Apply::Advice(advice) => self.fill(advice, found.want.as_deref()),
        };
        let want = found.want.as_deref();
        Advice {
            rule: rule.id.clone(),
            title: rule.title.clone(),
            group: rule.group.clone(),
            effect: rule.effect,
            subject: self.name(),
            verdict: found.verdict,
            reason: found.reason,
            key,
            is: found.is.clone(),
            why: self.fill(&rule.why, want),
            gain: self.fill(&rule.gain, want),
            risk: rule.risk.clone(),
            how,
            verify: self.fill(&rule.verify, want),
            persist: rule.persist.clone(),
            source: rule.source.clone(),
            want: found.want,
        }
    }

    /// Whether the rule would call this value good; `None` where it has no opinion.
    pub(super) fn accepts(&self, value: &str) -> Option<bool> {
        self.applies().ok()?;
        self.is_good(&Value::read(value), &self.value(&self.rule.want, Some(value)).text().ok()?).ok()
    }

    fn found(&self) -> Result<Found, Found> {
        self.applies()?;
        let cannot_tell = |reason: String| Found::without_values(Verdict::CannotTell, reason);
        let is = self.value(&self.rule.is, None);
        let text = is.text().map_err(cannot_tell)?;
        let want = self.value(&self.rule.want, Some(&text)).text().map_err(cannot_tell)?;
        let is_good = self.is_good(&is, &want).map_err(cannot_tell)?;
        let verdict = if is_good { Verdict::Good } else { Verdict::Advised };
        Ok(Found { verdict, reason: None, is: Some(text), want: Some(want) })
    }

    /// `Err` with the verdict that the rule is not for this, or that nobody can tell.
    fn applies(&self) -> Result<(), Found> {
        let not = |reason: String| Err(Found::without_values(Verdict::NotApplicable, reason));
        let rule = self.rule;
        if !rule.profiles.contains(&self.target.profile) {
            let profiles: Vec<&str> = rule.profiles.iter().map(|profile| profile.name()).collect();
            return not(format!("it is for profile {}", profiles.join(" and ")));
        }
        match self.facts.system.version.as_result() {
            Ok(version) if !rule.kernel.holds(*version) => {
                return not(format!("it holds for kernels {}; this one is {version}", rule.kernel));
            }
            Err(reason) if rule.kernel != crate::kernel::Range::default() => {
                return Err(Found::without_values(Verdict::CannotTell, reason));
            }
            _ => {}
        }
        if let (false, Subject::Nic(nic) | Subject::Irq(nic, _)) = (rule.drivers.is_empty(), self.subject) {
            match nic.driver.as_result() {
                Ok(driver) if rule.drivers.contains(driver) => {}
                Ok(driver) => return not(format!("it holds for {}; this driver is {driver}", rule.drivers.join(", "))),
                Err(reason) => return Err(Found::without_values(Verdict::CannotTell, reason)),
            }
        }
        for (condition, otherwise) in &rule.when {
            match self.value(condition, None).truth() {
                Ok(true) => {}
                Ok(false) => return not(self.fill(otherwise, None)),
                Err(reason) => return Err(Found::without_values(Verdict::CannotTell, reason)),
            }
        }
        Ok(())
    }

    fn is_good(&self, is: &Value, want: &str) -> Result<bool, String> {
        let Some(good) = &self.rule.good else {
            return Ok(is.text()? == want);
        };
        good.value(&|name| match name {
            "is" => is.clone(),
            "want" => Value::read(want),
            name => self.fact(name, self.rule.lets.len()),
        })
        .truth()
    }

    fn value(&self, formula: &crate::formula::Formula, is: Option<&str>) -> Value {
        formula.value(&|name| match (name, is) {
            ("is", Some(is)) => Value::read(is),
            _ => self.fact(name, self.rule.lets.len()),
        })
    }

    /// A fact, or one of the first `lets` values of the rule. A value sees those before it, so this ends.
    fn fact(&self, name: &str, lets: usize) -> Value {
        let before = self.rule.lets.get(..lets).unwrap_or_default();
        match before.iter().rposition(|(known, _)| known == name) {
            Some(at) => self.rule.lets[at].1.value(&|name| self.fact(name, at)),
            None => names::value(self.facts, self.target, self.subject, name),
        }
    }

    fn fill(&self, text: &str, want: Option<&str>) -> String {
        names::fill(text, &|name| match (name, self.subject) {
            ("want", _) => want.map_or_else(|| Value::unknown("nothing is wanted"), Value::read),
            ("is", _) => self.value(&self.rule.is, None),
            ("nic", Subject::Nic(nic) | Subject::Irq(nic, _)) => Value::Text(nic.name.clone()),
            ("irq", Subject::Irq(_, irq)) => Value::of(f64::from(irq.irq)),
            ("block", Subject::Block(block)) => Value::Text(block.name.clone()),
            _ => self.fact(name, self.rule.lets.len()),
        })
    }

    fn name(&self) -> String {
        match self.subject {
            Subject::Machine => "machine".to_owned(),
            Subject::Nic(nic) => format!("nic {}", nic.name),
            Subject::Irq(nic, irq) => format!("irq {} of {}", irq.irq, nic.name),
            Subject::Block(block) => format!("block {}", block.name),
        }
    }
}

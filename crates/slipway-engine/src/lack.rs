//! The parts that a machine lacks.

use serde::{Deserialize, Serialize};

/// A part that this machine lacks, and the next step. In JSON and messages it is one text: `MISSING. Hint: STEP`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(from = "String", into = "String")]
#[error("{missing}{}", hint.as_ref().map(|hint| format!(". Hint: {hint}")).unwrap_or_default())]
pub struct Lack {
    /// The missing part, or the failure of a trial.
    pub missing: String,
    /// The next step, where there is one.
    pub hint: Option<String>,
}

impl Lack {
    /// A part without a known remedy.
    pub(crate) fn new(missing: impl Into<String>) -> Self {
        Self { missing: missing.into(), hint: None }
    }

    /// With the next step.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Of a record that is older than the trial.
    pub(crate) fn nobody_looked() -> Self {
        Self::new("nobody has looked")
    }
}

impl From<String> for Lack {
    fn from(text: String) -> Self {
        match text.split_once("Hint: ") {
            Some((missing, hint)) => Self::new(missing.trim_end_matches(['.', ' ', '\n'])).with_hint(hint),
            None => Self::new(text),
        }
    }
}

impl From<Lack> for String {
    fn from(lack: Lack) -> Self {
        lack.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_holds_both_parts() {
        let lack = Lack::new("the kernel has no netem").with_hint("modprobe sch_netem");
        let text = "\"the kernel has no netem. Hint: modprobe sch_netem\"";
        assert_eq!(serde_json::to_string(&lack).expect("plain data"), text);
        assert_eq!(serde_json::from_str::<Lack>(text).expect("a text"), lack);
        assert_eq!(Lack::from("a\nHint: b".to_owned()).to_string(), "a. Hint: b");
        assert_eq!(Lack::from("a.".to_owned()), Lack::new("a."));
    }
}

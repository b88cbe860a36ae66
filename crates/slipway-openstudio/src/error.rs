//! Changes and refusals, each with its place.

use std::fmt;

/// A sentence about a place of a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The place, as a JSON path: `$.analysis.problem.algorithm`.
    pub path: String,
    /// The sentence, without an end.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// The reason why there is no campaign. Each fits "failed to …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is larger than any analysis.
    #[error("read the analysis: it is larger than {0} MiB")]
    Large(usize),
    /// The text is no JSON.
    #[error("read the analysis: it is no JSON: {0}")]
    Json(String),
    /// The text is no workflow.
    #[error("read the workflow: {0}")]
    Workflow(#[from] crate::osw::OswError),
    /// The analysis cannot be a campaign.
    #[error("make a campaign of the analysis:{}", lines(.0))]
    Refused(Vec<Note>),
}

fn lines(notes: &[Note]) -> String {
    notes.iter().fold(String::new(), |text, note| format!("{text}\n  {note}"))
}

/// Changes and refusals so far.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) changes: Vec<Note>,
    pub(crate) refusals: Vec<Note>,
}

impl Notes {
    pub(crate) fn change(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.changes.push(Note { path: path.into(), text: text.into() });
    }

    pub(crate) fn refuse(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.refusals.push(Note { path: path.into(), text: text.into() });
    }
}

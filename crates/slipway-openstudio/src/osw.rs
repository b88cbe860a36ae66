//! Workflows (OSW): a model, a weather file, and the measures that change the model, in order.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Largest workflow in bytes.
pub const LARGEST: usize = 16 << 20;

/// A workflow, as far as its files and steps go.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub struct Workflow {
    /// The model (OSM) that the measures change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_file: Option<String>,
    /// The weather file (EPW).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weather_file: Option<String>,
    /// Folders of measures.
    #[serde(default)]
    pub measure_paths: Vec<String>,
    /// Folders of files.
    #[serde(default)]
    pub file_paths: Vec<String>,
    /// The measures.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// A step of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub struct Step {
    /// The step's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The measure's folder.
    pub measure_dir_name: String,
    /// Arguments, by name.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// A text is no workflow. The error is a clause for a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OswError {
    /// The text is larger than any workflow.
    #[error("it is larger than {} MiB", LARGEST >> 20)]
    Large,
    /// The text is no JSON, or has not the keys of a workflow.
    #[error("it is no workflow: {0}")]
    Json(String),
}

impl Workflow {
    /// Reads a workflow.
    ///
    /// # Errors
    /// Where the text is none, with the line.
    pub fn parse(text: &str) -> Result<Self, OswError> {
        if text.len() > LARGEST {
            return Err(OswError::Large);
        }
        // A list would be read as one, by the order of keys.
        if !text.trim_start().starts_with('{') {
            return Err(OswError::Json("it is no JSON object".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| OswError::Json(error.to_string()))
    }
}

impl Step {
    /// The name of the measure's folder, without the folders that it is in.
    #[must_use]
    pub fn folder(&self) -> &str {
        let path = self.measure_dir_name.trim_end_matches('/');
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Whether a name means this step: its own name, or its measure's.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.folder() == name || self.measure_dir_name == name
    }
}

//! The seam to what makes campaigns of other programs' documents.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// The files that belong to an analysis of `OpenStudio`.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Their paths in its archive, with `/`.
    pub names: BTreeSet<String>,
    /// Documents of data points, or of batches of them.
    pub data_points: Vec<String>,
}

/// A campaign, and files beside its file.
#[derive(Debug, Clone, Default)]
pub struct Converted {
    /// The text of the campaign file.
    pub campaign: String,
    /// Files beside it: name and text.
    pub files: Vec<(String, String)>,
}

/// Makes campaigns of analyses of `OpenStudio`.
pub trait Convert: Debug + Send + Sync {
    /// The campaign of an analysis (OSA document).
    ///
    /// # Errors
    /// The reasons why there is none, for people.
    fn convert(&self, analysis: &str, files: &Files) -> Result<Converted, String>;
}

//! A campaign made of files of `OpenStudio`.

use std::collections::BTreeSet;

use crate::error::{ImportError, Note};
use crate::osw::Workflow;
use crate::yaml;

/// The files that belong to an analysis.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Their paths below the analysis' folder, with `/`. Empty: nothing is known of them, and nothing is checked.
    pub names: BTreeSet<String>,
    /// Texts of data points, or of batches of them.
    pub data_points: Vec<String>,
}

/// A campaign, and the files that belong beside its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The campaign's name.
    pub name: String,
    /// The text of the campaign file. It can be read as one.
    pub campaign: String,
    /// Files beside it: name and text. The analysis' own files are to stay where they are.
    pub files: Vec<(String, String)>,
    /// Changes: the parts of the analysis that the campaign has otherwise, or not at all.
    pub changes: Vec<Note>,
}

/// A workflow as a campaign of one point. `path`: the workflow's own file, as the campaign file is to name it.
///
/// # Errors
/// Where the text is no workflow.
pub fn read_workflow(path: &str, text: &str) -> Result<Imported, ImportError> {
    let workflow = Workflow::parse(text)?;
    let name = slipway_document::names::from_file(path, "workflow");
    let mut changes = Vec::new();
    if workflow.steps.is_empty() {
        let text = "it has no steps: the seed model runs as it is".to_owned();
        changes.push(Note { path: "$.steps".to_owned(), text });
    }
    let campaign = format!(
        "# Made of {} by `slipway campaign import`.\ncampaign: {name}\nrun:\n  openstudio:\n    workflow: {}\n\
         # set: {{measure/argument: '{{variable}}'}}\n\
         outputs:\n  site_energy: {{table: Site and Source Energy/Total Site Energy/Total Energy, unit: GJ}}\n",
        path.escape_debug(),
        yaml::text(path),
    );
    Ok(Imported { name, campaign, files: Vec::new(), changes })
}

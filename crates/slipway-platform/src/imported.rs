//! The result of an import: a lab file, perhaps a matrix beside it, and the losses.

use std::collections::BTreeMap;
use std::path::Path;

use super::slipway::{ExportError, write};
use super::yaml::Map;
use slipway_lab::model::Lab;

/// Another tool's platform as a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct Platform {
    /// The lab file.
    pub text: String,
    /// The matrix of delays that it names, where it names one.
    pub matrix: Option<String>,
    /// How things were taken that are not the same in a lab.
    pub notes: Vec<String>,
    /// Parts without a counterpart in a lab.
    pub lost: Vec<String>,
}

/// Parts without a counterpart: the number of each, and the place of the first.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeMap<String, (usize, usize)>);

impl Lost {
    pub(super) fn add(&mut self, what: impl Into<String>, line: usize) {
        self.0.entry(what.into()).or_insert((0, line)).0 += 1;
    }

    pub(super) fn lines(self) -> Vec<String> {
        let line = |(what, (count, line)): (String, (usize, usize))| match count {
            1 => format!("{what} (line {line})"),
            _ => format!("{what} ({count} times, first in line {line})"),
        };
        self.0.into_iter().map(line).collect()
    }
}

/// The lab of a file that says who there is, for the reader to put in what holds between them.
pub(super) fn draft(file: &str, map: &Map) -> Result<Lab, ExportError> {
    slipway_lab::parse(file, &map.document(), Path::new("")).map_err(ExportError::Unreadable)
}

/// The finished platform. The file's comments list changes and losses.
pub(super) fn finish(
    from: &str,
    lab: &Lab,
    matrix: Option<String>,
    notes: Vec<String>,
    lost: Lost,
) -> Result<Platform, ExportError> {
    let lost = lost.lines();
    let mut comments = vec![format!("Imported from {from}.")];
    comments.extend(notes.iter().map(|note| format!("- {note}")));
    if !lost.is_empty() {
        comments.push("Lost, for want of a counterpart:".to_owned());
        comments.extend(lost.iter().map(|lost| format!("- {lost}")));
    }
    let text = write(lab, &comments, Path::new(""))?;
    Ok(Platform { text, matrix, notes, lost })
}

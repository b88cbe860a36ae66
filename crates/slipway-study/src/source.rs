//! A lab file as it was read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use slipway_document::errors::DocumentError;
use slipway_engine::lab::{self, UpError};
use slipway_image::Store;
use slipway_lab::Overrides;
use slipway_lab::model::{Lab, Machine};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::Scenario;

use crate::StudyError;

/// A lab file as it was read, to be understood in more than one way.
#[derive(Debug, Clone)]
pub struct Source {
    shown: String,
    text: String,
    folder: PathBuf,
    /// The machines in the place of the file's.
    machines: Option<Vec<Machine>>,
}

impl Source {
    /// A text as a lab file. `shown` names it in errors; its relative paths begin in `folder`.
    pub fn new(shown: impl Into<String>, text: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self { shown: shown.into(), text: text.into(), folder: folder.into(), machines: None }
    }

    /// Reads a lab file.
    ///
    /// # Errors
    /// When it cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let unreadable = |source| StudyError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let folder = std::path::absolute(path).map_err(StudyError::io("find the current folder"))?;
        Ok(Self::new(path.display().to_string(), text, folder.parent().unwrap_or(Path::new("/"))))
    }

    /// The same lab on other machines than the file names.
    #[must_use]
    pub fn on(self, machines: Vec<Machine>) -> Self {
        Self { machines: Some(machines), ..self }
    }

    /// The lab that it describes.
    ///
    /// # Errors
    /// [`StudyError::File`] with all that is wrong.
    pub fn lab(&self) -> Result<Lab, StudyError> {
        self.with(&Overrides::default())
    }

    /// The lab that it would describe.
    ///
    /// # Errors
    /// As [`lab`](Self::lab).
    pub fn with(&self, overrides: &Overrides) -> Result<Lab, StudyError> {
        let machines = overrides.machines.clone().or_else(|| self.machines.clone());
        let overrides = Overrides { machines, ..overrides.clone() };
        Ok(slipway_lab::parse_with(&self.shown, &self.text, &self.folder, &overrides)?)
    }

    /// The reason why the lab did not come up, with the lines that ask for what this machine cannot make.
    #[must_use]
    pub fn refused(&self, error: UpError) -> StudyError {
        match error {
            UpError::Refused(remarks) => {
                StudyError::Refused(Box::new(slipway_lab::locate(&self.shown, &self.text, &remarks)))
            }
            other => other.into(),
        }
    }

    /// Limits that are shorter than the data under way, one remark each.
    #[must_use]
    pub fn short_limits(&self, lab: &Lab) -> Vec<DocumentError> {
        slipway_lab::short_limits(&self.shown, &self.text, lab)
    }

    /// Looks for what bringing up the lab would come upon before anything is made.
    ///
    /// # Errors
    /// As bringing it up.
    pub fn check(&self, images: &Store, lab: &Lab) -> Result<(), StudyError> {
        lab::check(images, lab).map_err(|error| self.refused(error))
    }

    /// As [`check`](Self::check), for what no driver could make.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_for_any_driver(&self, images: &Store, lab: &Lab) -> Result<(), StudyError> {
        match lab::check(images, lab) {
            Err(error @ UpError::Refused(_)) => Err(self.refused(error)),
            _ => Ok(()),
        }
    }

    /// SHA-256 of the text, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        sha256(&self.text)
    }

    /// The scenario that it describes, for a lab.
    ///
    /// # Errors
    /// [`StudyError::File`] with all that is wrong.
    pub fn scenario(&self, lab: &Lab) -> Result<Scenario, StudyError> {
        Ok(slipway_lab::parse_scenario(&self.shown, &self.text, &self.folder, lab)?)
    }

    /// The rules that it has, for a lab.
    ///
    /// # Errors
    /// [`StudyError::File`] with all that is wrong.
    pub fn policy(&self, lab: &Lab) -> Result<Vec<Rule>, StudyError> {
        Ok(slipway_lab::parse_policy(&self.shown, &self.text, lab)?)
    }

    /// Whether it is a lab's file rather than a scenario's.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        self.text.lines().any(|line| line.starts_with("nodes:"))
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

//! Projects and analyses, a file each.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::app::Shared;
use crate::error::ApiError;
use crate::shelf::Id;

/// The name in an address, with or without `.json`.
pub(super) fn id(name: &str) -> Result<Id, ApiError> {
    Id::try_from(name.strip_suffix(".json").unwrap_or(name).to_owned()).map_err(ApiError::bad)
}

/// The folder of them.
pub(super) struct Drawer(PathBuf);

impl Drawer {
    pub(super) fn new(app: &Shared) -> Self {
        Self(app.shelf.openstudio())
    }

    fn file(&self, kind: &str, id: &str) -> PathBuf {
        self.0.join(format!("{kind}-{id}.json"))
    }

    /// Place of an analysis' archive.
    pub(super) fn archive(&self, id: &Id) -> PathBuf {
        self.0.join(format!("archive-{}.zip", id.as_str()))
    }

    pub(super) fn get(&self, kind: &str, id: &Id) -> Result<Value, ApiError> {
        match fs::read(self.file(kind, id.as_str())) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| ApiError::internal(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ApiError::missing(&format!("there is no such {kind}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn put(&self, kind: &str, id: &str, value: &Value) -> Result<(), ApiError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let file = self.file(kind, id);
        let fresh = file.with_extension("new");
        fs::write(&fresh, value.to_string())?;
        Ok(fs::rename(&fresh, &file)?)
    }

    pub(super) fn remove(&self, kind: &str, id: &Id) -> Result<(), ApiError> {
        for file in [self.file(kind, id.as_str()), self.archive(id)] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn projects(&self) -> Result<Vec<Value>, ApiError> {
        self.all("project")
    }

    /// All of a kind, in the order of their ids.
    pub(super) fn all(&self, kind: &str) -> Result<Vec<Value>, ApiError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        let prefix = format!("{kind}-");
        let ids = names.iter().filter_map(|name| name.strip_prefix(&prefix)?.strip_suffix(".json"));
        ids.map(|name| self.get(kind, &Id::try_from(name.to_owned()).map_err(ApiError::bad)?)).collect()
    }
}

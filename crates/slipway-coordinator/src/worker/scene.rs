//! The folder that a point's program starts in.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;
use slipway_campaign::edit::Edit;
use slipway_campaign::model::{Campaign, Content, Model};
use slipway_campaign::template::Template;
use slipway_campaign::value::Value;
use slipway_document::FileError;
use slipway_energyplus::idf::{Idf, IdfError};

use crate::store::Lease;

/// The file with the point's number, seed and values.
pub(super) const POINT_FILE: &str = "point.json";
/// Largest template or model in bytes.
const LARGEST: u64 = 64 << 20;
/// Deepest folder of inputs.
const DEEPEST: usize = 64;

/// The inputs of a campaign, ready to be laid out in the folder of any point.
///
/// Folders are real ones in each point's folder, so that the program can write there. Files are symbolic links to the
/// campaign's inputs, which workers see read-only: a weather file of 2 MB costs a point no copy. Templates are written out.
#[derive(Debug)]
pub struct Scene {
    names: Vec<String>,
    folders: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    templates: Vec<Filled>,
    models: Vec<(PathBuf, Edit)>,
}

/// A file whose text depends on the point.
#[derive(Debug)]
struct Filled {
    name: PathBuf,
    text: Template,
    mode: u32,
}

/// The reason why inputs cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub enum SceneError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A template that cannot be one.
    #[error("fill the template {}: {what}", path.display())]
    Template {
        /// The input's name.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// A model that cannot be read or changed.
    #[error("edit the model {}: {source}", path.display())]
    Model {
        /// The input's name.
        path: PathBuf,
        /// The fault.
        source: IdfError,
    },
}

impl Scene {
    /// Reads the inputs' folder, which has a file or folder for each input, by its name.
    ///
    /// # Errors
    /// Where an input is missing, or a template has a variable that the campaign lacks.
    pub fn new(campaign: &Campaign, inputs: &Path) -> Result<Self, SceneError> {
        let names = campaign.variables.iter().map(|variable| variable.name.clone()).collect();
        let mut scene =
            Self { names, folders: Vec::new(), links: Vec::new(), templates: Vec::new(), models: Vec::new() };
        for input in &campaign.inputs {
            if let Some(parent) = input.name.parent() {
                scene.folders.push(parent.to_owned());
            }
            let source = inputs.join(&input.name);
            match &input.content {
                Content::Same => scene.lay(&source, &input.name, 0)?,
                Content::Template => scene.templates.push(template(&source, &input.name, &scene.names)?),
                Content::Model(changes) => {
                    scene.models.push((input.name.clone(), model(&source, &input.name, changes)?));
                }
            }
        }
        Ok(scene)
    }

    /// Notes an input and all that is below it.
    fn lay(&mut self, source: &Path, name: &Path, depth: usize) -> Result<(), SceneError> {
        let found = fs::metadata(source).map_err(FileError::of("read input", source))?;
        if !found.is_dir() {
            self.links.push((name.to_owned(), source.to_owned()));
            return Ok(());
        }
        if depth == DEEPEST {
            return Err(FileError::of("read input", source)(io::Error::other("folders are nested too deeply")).into());
        }
        self.folders.push(name.to_owned());
        for entry in fs::read_dir(source).map_err(FileError::of("read input", source))? {
            let entry = entry.map_err(FileError::of("read input", source))?.file_name();
            self.lay(&source.join(&entry), &name.join(&entry), depth + 1)?;
        }
        Ok(())
    }

    /// Empties the folder, and lays out what the point's program starts with.
    ///
    /// # Errors
    /// Where the folder cannot be emptied or written.
    pub fn lay_out(&self, folder: &Path, lease: Lease, seed: u64, values: &[Value]) -> Result<(), SceneError> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::of("empty", folder)(error))?,
            _ => {}
        }
        fs::create_dir_all(folder).map_err(FileError::of("make", folder))?;
        for name in &self.folders {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(FileError::of("make", &path))?;
        }
        for (name, source) in &self.links {
            let path = folder.join(name);
            symlink(source, &path).map_err(FileError::of("make", &path))?;
        }
        for Filled { name, text, mode } in &self.templates {
            let path = folder.join(name);
            let write = fs::write(&path, text.fill(values));
            let protect = || fs::set_permissions(&path, fs::Permissions::from_mode(*mode));
            write.and_then(|()| protect()).map_err(FileError::of("write", &path))?;
        }
        for (name, edit) in &self.models {
            let path = folder.join(name);
            let text = edit.text(values).map_err(|source| SceneError::Model { path: name.clone(), source })?;
            fs::write(&path, text).map_err(FileError::of("write", &path))?;
        }
        let values: serde_json::Map<_, _> =
            self.names.iter().cloned().zip(values.iter().map(|value| json!(value))).collect();
        let point = json!({"point": lease.point, "attempt": lease.attempt, "seed": seed, "values": values});
        let path = folder.join(POINT_FILE);
        Ok(fs::write(&path, format!("{point:#}\n")).map_err(FileError::of("write", &path))?)
    }
}

/// The text of an input that points change, and its permissions.
fn text(source: &Path, name: &Path) -> Result<(String, u32), SceneError> {
    let file = fs::File::open(source).map_err(FileError::of("open", source))?;
    let mode = file.metadata().map_err(FileError::of("read", source))?.permissions().mode() & 0o777;
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(FileError::of("read", source))?;
    if text.len() as u64 > LARGEST {
        let what = format!("it is larger than {} MiB", LARGEST >> 20);
        return Err(SceneError::Template { path: name.to_owned(), what });
    }
    Ok((text, mode))
}

fn template(source: &Path, name: &Path, names: &[String]) -> Result<Filled, SceneError> {
    let failed = |what: String| SceneError::Template { path: name.to_owned(), what };
    let (text, mode) = text(source, name)?;
    let text = Template::read(&text, names).map_err(|unknown| {
        failed(format!("there is no variable `{unknown}`\nHint: write `{{{{{unknown}}}}}` for the text itself"))
    })?;
    Ok(Filled { name: name.to_owned(), text, mode })
}

fn model(source: &Path, name: &Path, changes: &Model) -> Result<Edit, SceneError> {
    let model = Idf::parse(text(source, name)?.0).and_then(|model| Edit::new(model, changes));
    model.map_err(|source| SceneError::Model { path: name.to_owned(), source })
}

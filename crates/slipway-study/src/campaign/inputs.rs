//! The inputs of a campaign: copied once, so that a change of the originals cannot make points of one campaign differ.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use slipway_campaign::design::Plan;
use slipway_campaign::model::Campaign;
use slipway_coordinator::Folder;
use slipway_energyplus::idf::Idf;
use slipway_python::Environment;
use slipway_results::Digest;

use super::engine::{self, EngineError};

/// Deepest folder of inputs.
const DEEPEST: usize = 64;
/// File with the digests of the inputs, in the campaign's folder. It is written last, so inputs without it are made again.
const LIST: &str = "inputs.json";

/// The reason why inputs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file operation failed.
    #[error("{doing} input {}: {source}", path.display())]
    Io {
        /// Verb, as in "read".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// An engine's own input.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An input is another than when the campaign began.
    #[error(
        "go on with the campaign: input {} has changed since it began\nHint: put it back, or give the changed campaign another name", .0.display()
    )]
    Changed(PathBuf),
}

impl InputError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

/// An input's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    source: PathBuf,
    digest: Digest,
}

/// Finds all files of inputs, by their paths in a point's folder. Folders without files are left out.
///
/// Examples of an engine are in its `environment`; without one they are left out. Returns the models at the ends of the
/// design too.
pub(super) fn find(
    campaign: &Campaign,
    plan: &Plan,
    environment: Option<&Environment>,
) -> Result<(BTreeMap<PathBuf, Found>, Vec<Idf>), InputError> {
    let mut found = BTreeMap::new();
    for input in &campaign.inputs {
        for (below, source) in engine::files(&input.source, environment)? {
            let name = below.map_or_else(|| input.name.clone(), |below| input.name.join(below));
            look(&source, &name, 0, &mut found)?;
        }
    }
    // An engine would refuse the following at each point.
    let path = |name: &Path| source(&found, name).map(Path::to_owned);
    let ends = engine::check(campaign, plan, &path)?;
    Ok((found, ends))
}

/// The file of an input, by its path in a point's folder.
pub(super) fn source(found: &BTreeMap<PathBuf, Found>, name: impl AsRef<Path>) -> Option<&Path> {
    found.get(name.as_ref()).map(|found| found.source.as_path())
}

fn look(source: &Path, name: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Found>) -> Result<(), InputError> {
    let kind = fs::metadata(source).map_err(InputError::io("read", source))?;
    if kind.is_file() {
        found.insert(name.to_owned(), Found { source: source.to_owned(), digest: digest(source)? });
        return Ok(());
    }
    if !kind.is_dir() || depth == DEEPEST {
        let why = if depth == DEEPEST { "folders are nested too deeply" } else { "it is neither a file nor a folder" };
        return Err(InputError::io("read", source)(io::Error::other(why)));
    }
    for entry in fs::read_dir(source).map_err(InputError::io("read", source))? {
        let entry = entry.map_err(InputError::io("read", source))?.file_name();
        look(&source.join(&entry), &name.join(&entry), depth + 1, found)?;
    }
    Ok(())
}

fn digest(path: &Path) -> Result<Digest, InputError> {
    let mut file = BufReader::new(File::open(path).map_err(InputError::io("open", path))?);
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 128 * 1024]);
    loop {
        match file.read(&mut buffer).map_err(InputError::io("read", path))? {
            0 => return Ok(Digest::from(hash)),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Copies inputs to the campaign's folder, or checks that they are those that it has.
pub(super) fn bring(folder: &Folder, found: &BTreeMap<PathBuf, Found>) -> Result<(), InputError> {
    let list = folder.path().join(LIST);
    let digests: BTreeMap<&Path, Digest> = found.iter().map(|(name, found)| (name.as_path(), found.digest)).collect();
    match fs::read(&list) {
        Ok(before) => {
            let before: BTreeMap<PathBuf, Digest> =
                serde_json::from_slice(&before).map_err(|error| InputError::io("read", &list)(error.into()))?;
            let changed = digests.iter().find(|(name, digest)| before.get(**name) != Some(*digest));
            let gone = before.keys().find(|name| !digests.contains_key(name.as_path()));
            let other = changed.map(|(name, _)| (*name).to_owned()).or_else(|| gone.cloned());
            return other.map_or(Ok(()), |name| Err(InputError::Changed(name)));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(InputError::io("read", &list)(error)),
        Err(_) => {}
    }
    let inputs = folder.inputs();
    match fs::remove_dir_all(&inputs) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(InputError::io("remove", &inputs)(error)),
        _ => {}
    }
    fs::create_dir_all(&inputs).map_err(InputError::io("make", &inputs))?;
    for (name, Found { source, digest: wanted }) in found {
        let copy = inputs.join(name);
        if let Some(parent) = copy.parent() {
            fs::create_dir_all(parent).map_err(InputError::io("make", parent))?;
        }
        fs::copy(source, &copy).map_err(InputError::io("copy", source))?;
        if digest(&copy)? != *wanted {
            return Err(InputError::Changed(name.clone()));
        }
    }
    let text = serde_json::to_vec_pretty(&digests).map_err(|error| InputError::io("write", &list)(error.into()))?;
    let fresh = list.with_extension("new");
    fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &list)).map_err(InputError::io("write", &list))
}

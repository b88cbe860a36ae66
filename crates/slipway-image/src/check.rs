//! Finds faults of an image before anything of it is unpacked.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use slipway_lab::model::{Image, ImageSource};

use super::error::{ImageError, OPEN};
use super::layout::Layout;
use super::member::{Fault, Members};
use super::{Store, stream};

impl Store {
    /// Refuses an image that is not there, that is none, or of which blobs are missing. An archive that was not unpacked yet
    /// is read up to its first entry only.
    pub fn check(&self, image: &Image) -> Result<(), ImageError> {
        let ImageSource::Path { path, reference } = &image.source else { return Ok(()) };
        let reference = reference.as_deref();
        let kind = fs::metadata(path).map_err(ImageError::io(OPEN, path))?;
        if kind.is_dir() {
            return match Layout::find(path)? {
                Some(layout) => self.check_layout(&layout, reference),
                None if reference.is_some() => Err(ImageError::NoReferences(path.clone())),
                None => Ok(()),
            };
        }
        if !kind.is_file() {
            return Err(ImageError::NotAnImage(path.clone()));
        }
        let file = File::open(path).map_err(ImageError::io(OPEN, path))?;
        match self.recall(&file, path, reference)? {
            Some(_) => Ok(()),
            None => begins(file, path),
        }
    }

    fn check_layout(&self, layout: &Layout, reference: Option<&str>) -> Result<(), ImageError> {
        let manifest = layout.manifest(reference)?;
        for layer in manifest.layers.iter().filter(|layer| !self.has(&layer.content)) {
            layout.open(&layer.blob)?;
        }
        Ok(())
    }
}

/// Whether an archive begins as one.
fn begins(file: File, path: &Path) -> Result<(), ImageError> {
    let bad = |what: String| ImageError::Archive { archive: path.to_owned(), what };
    let mut source = BufReader::new(file);
    let content = stream::decoder(&mut source).map_err(|error| bad(error.to_string()))?;
    match Members::new(content).next() {
        Ok(_) => Ok(()),
        Err(Fault::Io(error)) => Err(bad(error.to_string())),
        Err(Fault::Malformed(what)) => Err(bad(what)),
    }
}

/// The one folder that is a node's whole root, where there is one that can be looked into before the lab is up.
#[must_use]
pub fn folder(image: &Image) -> Option<PathBuf> {
    match &image.source {
        _ if image.base.is_some() => None,
        ImageSource::Host => Some(PathBuf::from("/")),
        ImageSource::Path { path, .. } => {
            let plain = path.is_dir() && matches!(Layout::find(path), Ok(None));
            plain.then(|| path.clone())
        }
    }
}

//! Images: from what a lab file names to the read-only directories that a node's overlay lies on.
//!
//! An image is this machine's own root, a directory, an archive of a root file system, or an OCI or docker image, as a
//! folder or an archive. Slipway reads the kind off the file itself, never off its name. The [`Store`] unpacks an
//! archive once, into a folder per layer named by the SHA-256 of the layer's uncompressed tar stream (the *diff id* of
//! the [OCI image specification]). Every lab and node shares the folders; nothing is copied for a node.
//!
//! # Hostile archives
//! An archive may come from anywhere, and it is unpacked as root. The kernel resolves every name beneath the layer's
//! folder without any symbolic link (`openat2(2)`, `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`). Files are only ever
//! created anew (`O_EXCL`). The reader measures streams and does not believe their sizes. `..`, hard links that leave
//! the archive, absolute ones among them, names below a symbolic link and devices are refused, each naming the entry. A
//! name with a slash in front is one beneath the root, as for tar: OCI tools write such. Symbolic links themselves are
//! data, absolute ones too (`/etc/alternatives` is full of them): nothing here follows them, and in a node they resolve
//! within the node's own root. Set-user-id bits and file capabilities stay, as a distribution needs them. Other users
//! of the machine cannot enter the store, and in a node the bits grant no more than the node's bounding set. A refused
//! or interrupted archive leaves nothing behind.
//!
//! [OCI image specification]: https://github.com/opencontainers/image-spec

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_lab::model::{Image, ImageSource, Lab};

mod check;
mod error;
pub mod holes;
mod host;
mod identity;
mod layout;
pub mod member;
mod save;
mod store;
mod stream;
mod tree;
mod unpack;
pub mod walk;

pub use check::folder;
pub use error::ImageError;
pub use identity::{identity, is_identity};
pub use save::{SaveError, Saved, receive, save};
pub use store::Store;
pub use stream::Limits;

use error::{OPEN, check_digest};
use layout::Layout;
use store::{Fingerprint, Lock};
use unpack::{Archive, unpack};

/// More layers than overlayfs stacks (`OVL_MAX_STACK` in the kernel's `fs/overlayfs/params.h`).
const MAX_LAYERS: usize = 500;

/// The layers below a node's overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rootfs {
    /// Directories, topmost first, as overlayfs wants them. No directory is in it twice. Where `/` is not alone it is
    /// last, and it then contains the others, which overlayfs refuses (`ELOOP`) unless an overlay of its own hides it.
    pub lowers: Vec<PathBuf>,
    /// An OCI or docker image's own settings for running it.
    pub config: Option<ImageConfig>,
    /// Directories of the machine that are file systems of their own (`/usr`, `/home`, `/nix`). An overlay does not
    /// cross into them, so they are bound read-only at the same path.
    pub extra_binds: Vec<PathBuf>,
}

/// An OCI or docker image's own settings for running it (OCI image specification, `config.md`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// First words of the command.
    pub entrypoint: Vec<String>,
    /// The words after it, unless others are given.
    pub cmd: Vec<String>,
    /// The working directory of the command.
    pub workdir: Option<PathBuf>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty for root.
    pub user: String,
}

/// One image without its base.
#[derive(Debug, Clone, Default)]
struct Part {
    lowers: Vec<PathBuf>,
    config: Option<ImageConfig>,
    extra_binds: Vec<PathBuf>,
}

/// An image made of layers in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Layers {
    /// Diff ids, topmost first.
    ids: Vec<String>,
    config: Option<ImageConfig>,
}

impl Store {
    /// Finds, and unpacks where that has not been done yet, what every image of the lab consists of. `progress` is told
    /// bytes read and bytes in all of the file being unpacked; it starts again for each.
    ///
    /// # Errors
    /// All of [`ImageError`]; nothing half-made is left.
    pub fn resolve(&self, lab: &Lab, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Rootfs>, ImageError> {
        let mut job = Job { store: self, lock: None, progress };
        let parts = lab.images.iter().map(|image| job.part(image)).collect::<Result<Vec<_>, _>>()?;
        (0..parts.len()).map(|index| stack(&lab.images, &parts, index)).collect()
    }
}

/// Puts an image on its base, its base's base and so on.
fn stack(images: &[Image], parts: &[Part], index: usize) -> Result<Rootfs, ImageError> {
    let mut rootfs = Rootfs { lowers: Vec::new(), config: None, extra_binds: Vec::new() };
    let chain = std::iter::successors(Some(index), |&i| images[i].base).take(images.len());
    for part in chain.map(|i| &parts[i]) {
        for lower in &part.lowers {
            // overlayfs refuses a layer that is in the stack twice, and all that the lower one shows or hides the upper
            // one shows or hides already.
            if !rootfs.lowers.contains(lower) {
                rootfs.lowers.push(lower.clone());
            }
        }
        rootfs.config = rootfs.config.or_else(|| part.config.clone());
        rootfs.extra_binds.extend_from_slice(&part.extra_binds);
    }
    if rootfs.lowers.len() > MAX_LAYERS {
        return Err(ImageError::TooManyLayers { image: images[index].name.clone(), layers: rootfs.lowers.len() });
    }
    Ok(rootfs)
}

/// One call of [`Store::resolve`]. The store is locked when the first layer has to be unpacked, not before: a lab whose
/// images are there does not wait for another's download.
struct Job<'a> {
    store: &'a Store,
    lock: Option<Lock>,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Job<'_> {
    fn part(&mut self, image: &Image) -> Result<Part, ImageError> {
        let (path, reference) = match &image.source {
            ImageSource::Host => return host::part(self.store.root()),
            ImageSource::Path { path, reference } => (path, reference.as_deref()),
        };
        let kind = fs::metadata(path).map_err(ImageError::io(OPEN, path))?;
        let layers = if kind.is_dir() {
            match Layout::find(path)? {
                Some(layout) => self.layout(&layout, reference)?,
                None if reference.is_some() => return Err(ImageError::NoReferences(path.clone())),
                None => {
                    return Ok(Part { lowers: vec![path.clone()], ..Part::default() });
                }
            }
        } else if kind.is_file() {
            self.archive(path, reference)?
        } else {
            return Err(ImageError::NotAnImage(path.clone()));
        };
        Ok(Part {
            lowers: layers.ids.iter().map(|id| self.store.layer(id)).collect(),
            config: layers.config,
            extra_binds: Vec::new(),
        })
    }

    /// An archive of a root file system, or of a folder that is an image.
    fn archive(&mut self, path: &Path, reference: Option<&str>) -> Result<Layers, ImageError> {
        let open = || File::open(path).map_err(ImageError::io(OPEN, path));
        if let Some(known) = self.store.recall(&open()?, path, reference)? {
            return Ok(known);
        }
        self.lock()?;
        // Another slipway may have unpacked it while this one waited.
        let file = open()?;
        if let Some(known) = self.store.recall(&file, path, reference)? {
            return Ok(known);
        }
        let folder = self.store.temporary()?;
        let mark = Fingerprint::of(&file).map_err(ImageError::io("look at image", path))?;
        let copy = file.try_clone().map_err(ImageError::io(OPEN, path))?;
        let sums = unpack(Archive { file, path, verified: false }, folder.path(), self.store.limits(), self.progress)?;
        let layers = match Layout::find(folder.path())? {
            Some(layout) => self.layout(&layout.named(path), reference)?,
            None if reference.is_some() => return Err(ImageError::NoReferences(path.to_owned())),
            None => {
                self.store.keep(folder, &sums.content)?;
                Layers { ids: vec![sums.content], config: None }
            }
        };
        if Fingerprint::of(&copy).is_ok_and(|now| now == mark) {
            self.store.remember(&mark, path, reference, &layers)?;
        }
        Ok(layers)
    }

    /// An image as a folder.
    fn layout(&mut self, layout: &Layout, reference: Option<&str>) -> Result<Layers, ImageError> {
        let manifest = layout.manifest(reference)?;
        for layer in &manifest.layers {
            if self.store.has(&layer.content) {
                continue;
            }
            self.lock()?;
            if self.store.has(&layer.content) {
                continue;
            }
            let folder = self.store.temporary()?;
            let file = layout.open(&layer.blob)?;
            let name = layout.path().join(&layer.blob);
            let sums = unpack(
                Archive { file, path: &name, verified: true },
                folder.path(),
                self.store.limits(),
                self.progress,
            )?;
            if let Some(expected) = &layer.file {
                check_digest(&name, expected, &sums.file)?;
            }
            check_digest(&name, &layer.content, &sums.content)?;
            self.store.keep(folder, &layer.content)?;
        }
        let ids = manifest.layers.into_iter().rev().map(|layer| layer.content);
        Ok(Layers { ids: ids.collect(), config: Some(manifest.config) })
    }

    fn lock(&mut self) -> Result<(), ImageError> {
        if self.lock.is_none() {
            self.lock = Some(self.store.lock()?);
        }
        Ok(())
    }
}

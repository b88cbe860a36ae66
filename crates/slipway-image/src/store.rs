//! Where unpacked layers are kept, for all labs and nodes of the machine.
//!
//! ```text
//! /var/lib/slipway/images/    SLIPWAY_IMAGES names another; 0700: layers hold other people's set-user-id programs
//!   lock                      held (flock(2)) while a layer is made; the kernel releases it however the holder dies
//!   layers/DIFF-ID/           finished, and never changed again (layers.user/ in a user namespace, whose whiteouts differ)
//!   new/                      half-made; whoever takes the lock removes what is there, since its maker is dead
//!   known/HASH.json           which layers an archive holds, for as long as the file is the same
//!   carried/IDENTITY/         images that another machine sent, beside `.whole` once all of it is there
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, syncfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use slipway_document::units::Bytes;
use tempfile::TempDir;

use super::error::ImageError;
use super::stream::{Limits, hex};
use super::{Layers, layout};

const DEFAULT_ROOT: &str = "/var/lib/slipway/images";

/// The folder of unpacked layers.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    layers: PathBuf,
    limits: Limits,
}

/// The right to make layers.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// The identity of an archive's file: `stat(2)`. A change of content always changes ctime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    dev: u64,
    inode: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Fingerprint {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let stat = file.metadata()?;
        Ok(Self {
            dev: stat.dev(),
            inode: stat.ino(),
            size: stat.size(),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            ctime: (stat.ctime(), stat.ctime_nsec()),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Known {
    file: Fingerprint,
    layers: Layers,
}

impl Store {
    /// Opens the machine's store (`/var/lib/slipway/images`, or what `SLIPWAY_IMAGES` names), with the limits that
    /// `SLIPWAY_IMAGE_MAX` (a size, as in `100GiB`) raises. Removes what an interrupted slipway left half-made.
    ///
    /// # Errors
    /// When the folder cannot be made or entered, or the limit is no size.
    pub fn open() -> Result<Self, ImageError> {
        let root = std::env::var_os("SLIPWAY_IMAGES").map_or_else(|| PathBuf::from(DEFAULT_ROOT), PathBuf::from);
        let limits = match std::env::var("SLIPWAY_IMAGE_MAX") {
            Ok(text) => Limits::up_to(
                text.parse::<Bytes>().map_err(|error| ImageError::Limit { text, error: error.to_string() })?,
            ),
            Err(_) => Limits::default(),
        };
        Self::at(root, limits)
    }

    /// Opens a store of one's own.
    ///
    /// # Errors
    /// When the folder cannot be made or entered.
    pub fn at(root: impl Into<PathBuf>, limits: Limits) -> Result<Self, ImageError> {
        let root = root.into();
        let first = slipway_sys::ns::in_first_user_namespace()
            .map_err(ImageError::io("read", Path::new("/proc/self/uid_map")))?;
        let store = Self { layers: root.join(if first { "layers" } else { "layers.user" }), root, limits };
        make_private(&store.root)?;
        // Later calls of a store that is in use find it locked, and nothing of it half-made without a maker.
        if let Some(lock) = store.lock_with(FlockOperation::NonBlockingLockExclusive)? {
            for folder in [&store.layers, &store.half_made(), &store.root.join("known")] {
                make_private(folder)?;
            }
            drop(lock);
        }
        Ok(store)
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn layer(&self, id: &str) -> PathBuf {
        self.layers.join(id)
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.layer(id).is_dir()
    }

    /// The folder of an image that another machine sends, by its [identity](super::identity()). It is made where it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made, or the text is no identity.
    pub fn carried(&self, identity: &str) -> Result<PathBuf, ImageError> {
        let carried = self.root.join("carried");
        if !super::is_identity(identity) {
            return Err(ImageError::io("name a folder in", &carried)(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        let folder = carried.join(identity);
        make_private(&carried)?;
        make_private(&folder)?;
        Ok(folder)
    }

    fn half_made(&self) -> PathBuf {
        self.root.join("new")
    }

    /// Waits until no other slipway makes layers.
    pub(super) fn lock(&self) -> Result<Lock, ImageError> {
        loop {
            if let Some(lock) = self.lock_with(FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    fn lock_with(&self, operation: FlockOperation) -> Result<Option<Lock>, ImageError> {
        let path = self.root.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(ImageError::io("open", &path))?;
        match flock(&file, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(ImageError::io("lock", &path)(error)),
        }
        let new = self.half_made();
        match fs::remove_dir_all(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ImageError::io("remove half-made layers in", &new)(error));
            }
            _ => {}
        }
        make_private(&new)?;
        Ok(Some(Lock(file)))
    }

    /// An empty folder to make a layer in; it is removed with the value. Only under the lock.
    pub(super) fn temporary(&self) -> Result<TempDir, ImageError> {
        let new = self.half_made();
        let folder = TempDir::new_in(&new).map_err(ImageError::io("make a folder in", &new))?;
        // It may become a root directory, which every user of a node must be able to enter.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).map_err(ImageError::io("open up", folder.path()))?;
        Ok(folder)
    }

    /// Makes a finished folder a layer. Its content reaches the disk before its name: after a power cut there is the
    /// whole layer or none.
    pub(super) fn keep(&self, folder: TempDir, id: &str) -> Result<(), ImageError> {
        let layer = self.layer(id);
        let open = File::open(folder.path()).map_err(ImageError::io("open", folder.path()))?;
        syncfs(&open).map_err(ImageError::io("write", folder.path()))?;
        match renameat_with(CWD, folder.path(), CWD, &layer, RenameFlags::NOREPLACE) {
            Ok(()) => {
                let _moved = folder.keep();
                Ok(())
            }
            // Two layers of one image with the same content.
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(ImageError::io("make layer", &layer)(error)),
        }
    }

    /// The layers of an archive, if it is still the unpacked file and its layers are all there.
    pub(super) fn recall(
        &self,
        file: &File,
        path: &Path,
        reference: Option<&str>,
    ) -> Result<Option<Layers>, ImageError> {
        let now = Fingerprint::of(file).map_err(ImageError::io("look at image", path))?;
        let note = self.note(path, reference);
        let text = match fs::read(&note) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::io("read", &note)(error)),
        };
        // A note cut short is no note.
        let known: Option<Known> = serde_json::from_slice(&text).ok();
        Ok(known.filter(|known| known.file == now).map(|known| known.layers).filter(|layers| {
            let valid = |id: &String| layout::is_sha256(id) && self.has(id);
            layers.ids.iter().all(valid)
        }))
    }

    /// Notes what an archive holds.
    pub(super) fn remember(
        &self,
        file: &Fingerprint,
        path: &Path,
        reference: Option<&str>,
        layers: &Layers,
    ) -> Result<(), ImageError> {
        let note = self.note(path, reference);
        let known = Known { file: file.clone(), layers: layers.clone() };
        serde_json::to_vec(&known)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(&note, text))
            .map_err(ImageError::io("write", &note))
    }

    fn note(&self, path: &Path, reference: Option<&str>) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(path.as_os_str().as_encoded_bytes());
        if let Some(reference) = reference {
            hash.update([0]);
            hash.update(reference);
        }
        self.root.join("known").join(format!("{}.json", hex(hash)))
    }
}

fn make_private(path: &Path) -> Result<(), ImageError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ImageError::io("make", path))
}

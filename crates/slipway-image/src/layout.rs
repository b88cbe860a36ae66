//! Images as folders of blobs: an OCI image layout (OCI image specification, `image-layout.md`, `manifest.md`), or what
//! `docker save` and `skopeo copy … docker-archive:` pack (`manifest.json`).
//!
//! The folder may have come out of an archive: nothing in it is opened outside of it, and every JSON file is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::ImageConfig;
use super::error::{ImageError, OPEN, check_digest};
use super::stream::hex;

/// The OCI distribution specification's bound for a manifest.
const MAX_JSON: u64 = 4 << 20;
/// An index may list indices; nobody nests them deeper than twice.
const MAX_DEPTH: usize = 4;

/// A folder that is an image, or several.
pub(super) struct Layout {
    folder: OwnedFd,
    /// For messages.
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Oci,
    Docker(Vec<DockerImage>),
}

/// One image of the folder.
pub(super) struct Manifest {
    /// Lowest first.
    pub(super) layers: Vec<Layer>,
    pub(super) config: ImageConfig,
}

/// One layer of an image.
pub(super) struct Layer {
    /// Name within the folder.
    pub(super) blob: String,
    /// SHA-256 of the blob, where the manifest gives it.
    pub(super) file: Option<String>,
    /// SHA-256 of the blob, decompressed.
    pub(super) content: String,
}

#[derive(Deserialize)]
struct Marker {
    #[serde(rename = "imageLayoutVersion")]
    version: String,
}

/// An image index or an image manifest: which, shows in what it has.
#[derive(Deserialize)]
struct Document {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize, Clone)]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

#[derive(Deserialize, Clone)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    config: Option<RunConfig>,
    rootfs: DiffIds,
}

#[derive(Deserialize)]
struct DiffIds {
    diff_ids: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RunConfig {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

impl Descriptor {
    /// The name `oci-layout` tools give, or the full one that containerd and docker add.
    fn names(&self) -> impl Iterator<Item = &String> {
        let keys = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];
        keys.into_iter().filter_map(|key| self.annotations.as_ref()?.get(key))
    }

    fn fits_this_machine(&self) -> bool {
        let here = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        self.platform.as_ref().is_none_or(|platform| platform.os == "linux" && platform.architecture == here)
    }
}

impl Layout {
    /// The layout at `path`, unless the directory is an ordinary one.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, ImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(ImageError::io(OPEN, path))?;
        let mut layout = Self { folder, path: path.to_owned(), kind: Kind::Oci };
        // A root file system may have files of these names, with something else in them.
        if layout.json::<Marker>("oci-layout", None).is_ok_and(|marker| marker.version.starts_with("1.")) {
            return Ok(Some(layout));
        }
        Ok(layout.json("manifest.json", None).ok().map(|images| {
            layout.kind = Kind::Docker(images);
            layout
        }))
    }

    /// The same, for messages about the archive that it came out of.
    pub(super) fn named(mut self, archive: &Path) -> Self {
        archive.clone_into(&mut self.path);
        self
    }

    /// For messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The image `reference`, or the only one.
    pub(super) fn manifest(&self, reference: Option<&str>) -> Result<Manifest, ImageError> {
        match &self.kind {
            Kind::Oci => self.oci(reference),
            Kind::Docker(images) => self.docker(images, reference),
        }
    }

    /// Opens a file of the folder for reading.
    pub(super) fn open(&self, name: &str) -> Result<File, ImageError> {
        // Links within the folder are docker's way of storing a layer once. Opening a FIFO must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = self.path.join(name);
        let fd = openat2(&self.folder, name, flags, Mode::empty(), inside).map_err(|error| match error {
            Errno::NOENT => self.wrong(name, "it is missing\nHint: the image is incomplete; fetch or build it again"),
            Errno::XDEV => self.wrong(name, "it leads out of the image"),
            other => ImageError::io("open", &path)(other),
        })?;
        let found = fstat(&fd).map_err(ImageError::io("look at", &path))?;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            Ok(fd.into())
        } else {
            Err(self.wrong(name, "it is not a regular file"))
        }
    }

    fn oci(&self, reference: Option<&str>) -> Result<Manifest, ImageError> {
        let mut document: Document = self.json("index.json", None)?;
        let mut reference = reference;
        for _ in 0..MAX_DEPTH {
            let Some(manifests) = document.manifests.take() else {
                return self.oci_manifest(&document);
            };
            let chosen = self.choose(&manifests, reference.take())?;
            document = self.blob(&chosen.digest)?;
        }
        Err(self.wrong("index.json", "its indices are nested too deeply"))
    }

    fn oci_manifest(&self, document: &Document) -> Result<Manifest, ImageError> {
        let missing = || self.wrong("index.json", "a manifest names no config");
        let config = document.config.as_ref().ok_or_else(missing)?;
        let blobs = document
            .layers
            .iter()
            .map(|layer| Ok((blob_path(&layer.digest, self)?, Some(sha256(&layer.digest, self)?))))
            .collect::<Result<_, ImageError>>()?;
        self.assemble(self.blob(&config.digest)?, blobs)
    }

    fn docker(&self, images: &[DockerImage], reference: Option<&str>) -> Result<Manifest, ImageError> {
        let tags = |image: &DockerImage| image.repo_tags.clone().unwrap_or_default();
        let fits = |image: &&DockerImage| reference.is_none_or(|name| tags(image).iter().any(|tag| tag == name));
        let found: Vec<_> = images.iter().filter(fits).collect();
        let [image] = found[..] else {
            return Err(self.no_choice(found.len(), reference, images.iter().flat_map(tags)));
        };
        let blobs = image.layers.iter().map(|name| (name.clone(), None));
        self.assemble(self.json(&image.config, None)?, blobs.collect())
    }

    fn assemble(&self, config: ConfigFile, blobs: Vec<(String, Option<String>)>) -> Result<Manifest, ImageError> {
        let ids = config.rootfs.diff_ids;
        if ids.len() != blobs.len() {
            let what = format!("it has {} layers, its config lists {}", blobs.len(), ids.len());
            return Err(self.wrong("", &what));
        }
        let layers = blobs
            .into_iter()
            .zip(ids)
            .map(|((blob, file), id)| {
                let content = sha256(&id, self)?;
                Ok(Layer { blob, file, content })
            })
            .collect::<Result<_, ImageError>>()?;
        let run = config.config.unwrap_or_default();
        let workdir = run.working_dir.filter(|dir| !dir.is_empty());
        Ok(Manifest {
            layers,
            config: ImageConfig {
                env: run.env.unwrap_or_default(),
                entrypoint: run.entrypoint.unwrap_or_default(),
                cmd: run.cmd.unwrap_or_default(),
                workdir: workdir.map(PathBuf::from),
                user: run.user.unwrap_or_default(),
            },
        })
    }

    fn choose<'a>(&self, manifests: &'a [Descriptor], reference: Option<&str>) -> Result<&'a Descriptor, ImageError> {
        let named =
            |descriptor: &&Descriptor| reference.is_none_or(|name| descriptor.names().any(|given| given == name));
        let mut found: Vec<_> =
            manifests.iter().filter(named).filter(|descriptor| descriptor.fits_this_machine()).collect();
        found.dedup_by(|a, b| a.digest == b.digest);
        if let [one] = found[..] {
            return Ok(one);
        }
        let there = manifests.iter().flat_map(Descriptor::names).cloned();
        Err(self.no_choice(found.len(), reference, there))
    }

    fn no_choice(&self, found: usize, reference: Option<&str>, names: impl Iterator<Item = String>) -> ImageError {
        let what = match (found, reference) {
            (0, Some(name)) => format!("none for this machine is named `{name}`"),
            (0, None) => "it holds none for this machine".to_owned(),
            (n, _) => format!("it holds {n}"),
        };
        ImageError::Reference { path: self.path.clone(), what, names: names.collect() }
    }

    /// Reads a JSON blob and checks that it is the one named.
    fn blob<T: DeserializeOwned>(&self, digest: &str) -> Result<T, ImageError> {
        self.json(&blob_path(digest, self)?, Some(&sha256(digest, self)?))
    }

    fn json<T: DeserializeOwned>(&self, name: &str, digest: Option<&str>) -> Result<T, ImageError> {
        let path = self.path.join(name);
        let mut text = Vec::new();
        self.open(name)?.take(MAX_JSON + 1).read_to_end(&mut text).map_err(ImageError::io("read", &path))?;
        if text.len() as u64 > MAX_JSON {
            return Err(self.wrong(name, "it is larger than 4 MiB"));
        }
        if let Some(expected) = digest {
            check_digest(&path, expected, &hex(Sha256::new_with_prefix(&text)))?;
        }
        serde_json::from_slice(&text).map_err(|error| self.wrong(name, &error.to_string()))
    }

    fn wrong(&self, name: &str, what: &str) -> ImageError {
        ImageError::Layout { path: self.path.join(name), what: what.to_owned() }
    }
}

/// Where a layout keeps the blob of that digest.
fn blob_path(digest: &str, layout: &Layout) -> Result<String, ImageError> {
    Ok(format!("blobs/sha256/{}", sha256(digest, layout)?))
}

/// The hexadecimal part of `sha256:…`: it becomes a file name.
fn sha256(digest: &str, layout: &Layout) -> Result<String, ImageError> {
    match digest.strip_prefix("sha256:") {
        Some(hex) if is_sha256(hex) => Ok(hex.to_owned()),
        _ => {
            let shown: String = digest.chars().flat_map(char::escape_debug).take(100).collect();
            Err(layout.wrong("", &format!("its digest `{shown}` is not `sha256:` and 64 digits")))
        }
    }
}

/// 64 lower-case hexadecimal digits.
pub(super) fn is_sha256(text: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 64 && text.bytes().all(digit)
}

//! Helpers that the tests share: a room with a store and a sentinel, a lab of images, archives made by hand, overlays.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use slipway_image::{ImageError, Limits, Rootfs, Store};
use slipway_lab::id::List;
use slipway_lab::model::{Image, ImageSource, Lab, Part};
use slipway_sys::mount::{make_private, mount_fs, mount_overlay};
use tempfile::TempDir;

/// A folder with a store in it, and a sentinel beside the store that no archive may touch.
pub(crate) struct Room {
    folder: TempDir,
    pub(crate) limits: Limits,
}

impl Room {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("slipway-image-").expect("a folder");
        fs::write(folder.path().join("sentinel"), "untouched").expect("written");
        Self { folder, limits: Limits::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> Store {
        Store::at(self.path("store"), self.limits).expect("a store")
    }

    pub(crate) fn resolve(&self, images: &[Image]) -> Result<Vec<Rootfs>, ImageError> {
        self.store().resolve(&lab(images), &mut |_, _| {})
    }

    pub(crate) fn resolve_one(&self, path: &Path) -> Result<Rootfs, ImageError> {
        Ok(self.resolve(&[image(path)])?.remove(0))
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("written");
        path
    }

    /// Names of the finished layers; fails if something half-made is left or the sentinel was touched.
    pub(crate) fn layers(&self) -> Vec<String> {
        let list = |folder: &str| {
            let entries = fs::read_dir(self.path("store").join(folder)).expect("listed");
            let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string();
            entries.map(|entry| name(entry).expect("a name")).collect::<Vec<_>>()
        };
        assert!(list("new").is_empty(), "half-made: {:?}", list("new"));
        assert_eq!(fs::read_to_string(self.path("sentinel")).expect("there"), "untouched");
        list("layers")
    }

    /// Runs a program in the room; it must succeed.
    pub(crate) fn run(&self, script: &str) {
        run(self.folder.path(), script);
    }
}

pub(crate) fn run(folder: &Path, script: &str) {
    let out = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .output()
        .expect("bash is installed");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "`{script}` failed; is a package of `make setup` missing?\n{text}");
}

pub(crate) fn host() -> Image {
    Image { name: "host".into(), source: ImageSource::Host, base: None }
}

pub(crate) fn image(path: &Path) -> Image {
    named(path, None)
}

pub(crate) fn named(path: &Path, reference: Option<&str>) -> Image {
    let source = ImageSource::Path { path: path.to_owned(), reference: reference.map(str::to_owned) };
    Image { name: "image".into(), source, base: None }
}

pub(crate) fn lab(images: &[Image]) -> Lab {
    Lab {
        name: "test".into(),
        seed: 0,
        machines: List::new(),
        orphaned_after: None,
        part: Part::default(),
        hosts: List::new(),
        machine: false,
        underlay: None,
        images: images.to_vec(),
        networks: List::new(),
        nodes: List::new(),
        links: Vec::new(),
        matrices: Vec::new(),
        mechanism: slipway_lab::model::LinkMechanism::default(),
        policy: Vec::new(),
        job: None,
        scenario: None,
    }
}

/// Mounts the stack in a mount namespace of its own and looks at it: the overlay's root, and its upper directory.
pub(crate) fn mounted<T: Send>(lowers: &[PathBuf], look: impl FnOnce(&Path, &Path) -> T + Send) -> T {
    let folder = TempDir::with_prefix("slipway-overlay-").expect("a folder");
    privately(|| {
        mount_fs("tmpfs", folder.path(), rustix::mount::MountFlags::empty(), "").expect("a tmpfs");
        let [upper, work, root] = ["upper", "work", "root"].map(|name| folder.path().join(name));
        for path in [&upper, &work, &root] {
            fs::create_dir(path).expect("made");
        }
        mount_overlay(lowers, &upper, &work, &root).expect("an overlay");
        look(&root, &upper)
    })
}

/// Runs with mounts that nobody else sees and that end with the thread.
pub(crate) fn privately<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("the tests run as root");
            make_private().expect("private");
            action()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Everything below a folder, one line each: kind, mode, owner, size or target, name.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    list(root, Path::new(""), &mut lines);
    lines.sort();
    lines
}

fn list(root: &Path, below: &Path, lines: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(below)).expect("listed") {
        let entry = entry.expect("an entry");
        let name = below.join(entry.file_name());
        let stat = entry.metadata().expect("there");
        let kind = stat.file_type();
        let detail = if kind.is_symlink() {
            fs::read_link(entry.path()).expect("a link").display().to_string()
        } else if kind.is_file() {
            format!("{:?}", fs::read(entry.path()).expect("readable"))
        } else if kind.is_fifo() {
            "fifo".into()
        } else {
            "/".into()
        };
        let owner = (stat.uid(), stat.gid());
        lines.push(format!("{} {:o} {owner:?} {} {detail}", name.display(), stat.mode(), stat.mtime()));
        if kind.is_dir() {
            list(root, &name, lines);
        }
    }
}

/// An archive written field by field, so that it can be wrong in any of them.
#[derive(Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    pub(crate) fn entry(mut self, kind: u8, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(if kind == b'5' { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.entry(b'0', name, "", content.as_bytes())
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, b"")
    }

    pub(crate) fn pax(self, key: &str, value: &[u8]) -> Self {
        let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let mut length = body.len() + 1;
        while length.to_string().len() + body.len() != length {
            length += 1;
        }
        self.entry(b'x', "pax", "", &[length.to_string().as_bytes(), &body].concat())
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub(crate) fn open(path: &Path) -> File {
    File::open(path).expect("opened")
}

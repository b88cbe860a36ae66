//! Looks at a path of a node that is not up yet.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use slipway_lab::model::Node;

use crate::exec::PATH;

/// The kind of file that a node will have at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Folder,
    /// A file that nobody may execute.
    File,
    Program,
    /// It shows when the node is up.
    Unknown,
}

/// Looks for a program as a node with this root would: in the folders of its `PATH`, unless a path is given.
pub(super) fn find(root: &Path, node: &Node, name: &str) -> Found {
    if name.contains('/') {
        return in_node(root, node, &Path::new("/").join(name));
    }
    let path = node.env.get("PATH").map_or(PATH, String::as_str);
    let folders = path.split(':').filter(|folder| !folder.is_empty());
    let all: Vec<Found> = folders.map(|folder| in_node(root, node, &Path::new("/").join(folder).join(name))).collect();
    // The kernel is asked folder by folder, until one has a program.
    let kinds = [Found::Program, Found::Unknown, Found::File];
    kinds.into_iter().find(|kind| all.contains(kind)).unwrap_or(Found::Nothing)
}

/// Where a node's own file systems hide what the image has.
const OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

fn in_node(root: &Path, node: &Node, path: &Path) -> Found {
    // The innermost mount shows.
    let above = node.mounts.iter().filter(|mount| path.starts_with(&mount.target));
    if let Some(mount) = above.max_by_key(|mount| mount.target.components().count()) {
        let rest = path.strip_prefix(&mount.target).unwrap_or(Path::new(""));
        let source = if rest.as_os_str().is_empty() { mount.source.clone() } else { mount.source.join(rest) };
        return of(fs::metadata(source));
    }
    if ["/run", "/tmp"].iter().any(|empty| path.starts_with(empty)) {
        return Found::Nothing;
    }
    // The scratch folder still has the files that an earlier lab of the name left there.
    if path.starts_with("/scratch") || OWN.iter().any(|own| path.starts_with(own)) {
        return Found::Unknown;
    }
    match look(root, path) {
        // A link may lead to what is mounted.
        Found::Nothing if has_link(root, path) && !node.mounts.is_empty() => Found::Unknown,
        found => found,
    }
}

/// Looks at a path in an image's folder. Links lead where they do within the folder.
pub(super) fn look(root: &Path, path: &Path) -> Found {
    let inside = || -> rustix::io::Result<fs::File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let folder = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&folder, path, flags, Mode::empty(), resolve)?.into())
    };
    of(inside().map_err(io::Error::from).and_then(|file| file.metadata()))
}

fn of(found: io::Result<fs::Metadata>) -> Found {
    match found {
        Ok(found) if found.is_dir() => Found::Folder,
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Found::File,
        Ok(_) => Found::Program,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => Found::Nothing,
        Err(_) => Found::Unknown,
    }
}

fn has_link(root: &Path, path: &Path) -> bool {
    let below = |part: &Path| -> PathBuf { root.join(part.strip_prefix("/").unwrap_or(part)) };
    path.ancestors().any(|part| fs::symlink_metadata(below(part)).is_ok_and(|found| found.is_symlink()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_an_image_stay_in_it() {
        let root = tempfile::tempdir().expect("made");
        fs::create_dir_all(root.path().join("usr/bin")).expect("made");
        fs::write(root.path().join("usr/bin/tool"), "").expect("written");
        std::os::unix::fs::symlink("/usr/bin", root.path().join("bin")).expect("linked");
        std::os::unix::fs::symlink("/bin/sh", root.path().join("usr/bin/shell")).expect("linked");
        assert_eq!(look(root.path(), Path::new("/bin/tool")), Found::File);
        assert_eq!(look(root.path(), Path::new("/bin")), Found::Folder);
        // The machine's own is none of the image's.
        assert_eq!(look(root.path(), Path::new("/bin/shell")), Found::Nothing);
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.path().join("usr/bin/tool"), open).expect("set");
        assert_eq!(look(root.path(), Path::new("/bin/tool")), Found::Program);
    }
}

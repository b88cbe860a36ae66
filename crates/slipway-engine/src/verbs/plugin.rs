//! The plug-in: its builds beside this program, and the build that a node's libibverbs asks for.
//!
//! libibverbs completes a plug-in's name with the number of its private interface (`-rdmav34.so`), so a lab has all builds that there
//! are, and each image takes its own.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::state::LabDir;

/// The start of the name of each build's file.
const NAME: &str = "libslipway-rdmav";

/// The file that names the plug-in to a node's libibverbs.
pub(super) const DRIVER_FILE: &str = "/etc/libibverbs.d/slipway.driver";

/// The next step where there is no build.
pub(super) const HINT: &str = "`make install` installs it, `scripts/verbs.sh` builds it; or leave `rdma` out";

/// Folder of the builds, within the folder that all nodes of a lab share.
const SHARED: &str = "verbs";

/// Longest library that is looked into: several times the size of any libibverbs.
const LONGEST: u64 = 16 << 20;

/// Where images have their libraries.
const FOLDERS: [&str; 6] =
    ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "opt/lib"];

/// No build is installed.
#[derive(Debug, thiserror::Error)]
#[error("the plug-in {NAME}*.so is not beside it: {0}")]
pub(crate) struct NoPlugin(io::Error);

/// Folders that may have what belongs to this program: its own one, and `../lib/slipway`.
pub(super) fn folders() -> io::Result<[PathBuf; 2]> {
    let own = slipway_sys::exe::path()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    Ok([beside.to_owned(), beside.join("../lib/slipway")])
}

/// All builds, by the number of libibverbs' private interface: beside this program, or in `../lib/slipway`.
pub(super) fn find() -> Result<Vec<(u32, PathBuf)>, NoPlugin> {
    let mut all = Vec::new();
    for folder in folders().map_err(NoPlugin)? {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(NAME)?.strip_suffix(".so")?.parse().ok());
            all.extend(number.map(|number| (number, entry.path())));
        }
    }
    // The build beside this program goes before one that is installed.
    all.sort_by_key(|(number, _)| *number);
    all.dedup_by_key(|(number, _)| *number);
    if all.is_empty() { Err(NoPlugin(io::ErrorKind::NotFound.into())) } else { Ok(all) }
}

/// The file on this machine that nodes see as [`DRIVER_FILE`].
pub(super) fn driver_file(dir: &LabDir) -> PathBuf {
    dir.join("node").join(SHARED).join("slipway.driver")
}

/// Puts copies of all builds where nodes see them, as `/run/slipway/verbs`: a build that is installed anew changes no lab that runs.
pub(super) fn share(dir: &LabDir) -> io::Result<()> {
    let folder = dir.join("node").join(SHARED);
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    for (number, path) in find().map_err(io::Error::other)? {
        let copy = folder.join(format!("{NAME}{number}.so"));
        fs::copy(path, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    }
    let driver = driver_file(dir);
    fs::write(&driver, format!("driver /run/slipway/{SHARED}/libslipway\n"))?;
    fs::set_permissions(&driver, fs::Permissions::from_mode(0o644))
}

/// Looks whether an image's libibverbs has a build: gives the reason where it has none. An image without libibverbs needs none.
/// The topmost of its folders that has one has it in nodes.
pub(crate) fn check(folders: &[PathBuf]) -> Result<(), String> {
    let builds = find().map_err(|missing| missing.to_string())?;
    match folders.iter().find_map(|root| interface(root)) {
        Some(number) if builds.iter().all(|(build, _)| *build != number) => Err(format!(
            "its libibverbs has the private interface {number}, and the plug-in is built for {}",
            builds.iter().map(|(build, _)| build.to_string()).collect::<Vec<_>>().join(", ")
        )),
        _ => Ok(()),
    }
}

/// The number of the private interface of an image's libibverbs. `None` where it has none that can be read.
fn interface(root: &Path) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    FOLDERS.iter().find_map(|place| {
        // Links lead where they do within the image.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = format!("{place}/libibverbs.so.1");
        let file = File::from(openat2(&folder, path, flags, Mode::empty(), resolve).ok()?);
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        version(&bytes)
    })
}

/// The number in the name of the version of private symbols, `IBVERBS_PRIVATE_34`, of a library.
fn version(library: &[u8]) -> Option<u32> {
    const PREFIX: &[u8] = b"IBVERBS_PRIVATE_";
    let at = library.windows(PREFIX.len()).position(|bytes| bytes == PREFIX)? + PREFIX.len();
    let digits = library[at..].iter().take(4).take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number, digit| Some(number.unwrap_or(0) * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_is_read_from_the_version_of_symbols() {
        assert_eq!(version(b"\x7fELF..\0IBVERBS_1.1\0IBVERBS_PRIVATE_34\0"), Some(34));
        assert_eq!(version(b"IBVERBS_PRIVATE_"), None);
        assert_eq!(version(b""), None);
    }

    #[test]
    fn the_topmost_layer_with_the_library_decides() {
        let layers: Vec<_> = [None, Some("IBVERBS_PRIVATE_99"), Some("IBVERBS_PRIVATE_34")].map(layer).into();
        let found = layers.iter().find_map(|layer| interface(layer.path()));
        assert_eq!(found, Some(99));
    }

    fn layer(version: Option<&str>) -> tempfile::TempDir {
        let layer = tempfile::tempdir().expect("a folder");
        if let Some(version) = version {
            let place = layer.path().join(FOLDERS[0]);
            fs::create_dir_all(&place).expect("made");
            fs::write(place.join("libibverbs.so.1"), version).expect("written");
        }
        layer
    }

    proptest! {
        #[test]
        fn any_file_has_a_number_or_none(mut bytes: Vec<u8>, tail: Vec<u8>) {
            let _ = version(&bytes);
            bytes.extend(b"IBVERBS_PRIVATE_");
            bytes.extend(&tail);
            let _ = version(&bytes);
        }
    }
}

//! Campaigns from elsewhere, with the files that they bring.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::GzDecoder;
use slipway_campaign::model::{Campaign, Storage};
use slipway_image::member::{Fault, Kind, Members};

use crate::error::ApiError;

/// Most bytes that an archive may hold, unpacked.
const MOST: u64 = 4 << 30;
/// Most files and folders of an archive.
const ENTRIES: u64 = 100_000;
/// Largest campaign file in bytes, and one more, so that a longer one is refused.
const LARGEST_FILE: u64 = (4 << 20) + 1;
/// Longest path in an archive, in bytes.
const LONGEST: usize = 1024;

/// Refuses files outside the campaign's own: the caller must not read this machine's by way of a campaign's results.
pub(super) fn only_own(campaign: &Campaign, sources: impl Iterator<Item = PathBuf>) -> Result<(), ApiError> {
    for source in sources {
        let inside = source.strip_prefix("/campaign").ok();
        if inside.is_none_or(|path| !path.components().all(|part| matches!(part, Component::Normal(_)))) {
            return Err(ApiError::bad(
                "use a file outside the campaign\nHint: put inputs into the archive, and name them by relative paths",
            ));
        }
    }
    if campaign.storage != Storage::default() {
        return Err(ApiError::bad("place the campaign\nHint: leave `storage` out: the server has its own folder"));
    }
    if campaign.workers.image != "host" {
        return Err(ApiError::bad(
            "use an image of this machine\nHint: leave `image` out, or run the campaign by `slipway campaign run`",
        ));
    }
    Ok(())
}

/// The files that a campaign brings.
pub(crate) enum Brought<'a> {
    /// None.
    Nothing,
    /// A tar archive, plain or compressed by gzip.
    Tar(&'a Path),
    /// A ZIP archive, and files beside or in place of its own: name and text.
    Zip {
        /// The archive, if there is one.
        archive: Option<&'a Path>,
        /// More files.
        more: &'a [(String, String)],
    },
}

/// Names of the files in a ZIP archive.
pub(crate) fn names(archive: &Path) -> Result<std::collections::BTreeSet<String>, ApiError> {
    let archive = open_zip(archive)?;
    let names = archive.file_names().collect::<Result<Vec<_>, _>>().map_err(|error| damaged(&error))?;
    Ok(names.iter().filter(|name| !name.ends_with('/')).map(|name| name.replace('\\', "/")).collect())
}

fn open_zip(archive: &Path) -> Result<zip::ZipArchive<BufReader<File>>, ApiError> {
    let archive = zip::ZipArchive::new(BufReader::new(File::open(archive)?)).map_err(|error| damaged(&error))?;
    if archive.len() as u64 > ENTRIES {
        return Err(ApiError::large("unpack the archive: it has too many files"));
    }
    Ok(archive)
}

fn damaged(error: &zip::result::ZipError) -> ApiError {
    tracing::info!("read a ZIP archive: {error}");
    ApiError::bad("read the archive: it is no ZIP archive, or damaged")
}

/// A folder that is gone with the value, unless it was kept.
pub(super) struct Room(PathBuf);

impl Room {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let path = root.join(format!(".new-{}", crate::tokens::secret()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Unpacks what a campaign brings. Only files and folders may be in an archive, each name once and below its root;
    /// nothing in it is believed, sizes are measured.
    pub(super) fn fill(&self, files: &Brought<'_>) -> Result<(), ApiError> {
        match files {
            Brought::Nothing => Ok(()),
            Brought::Tar(archive) => {
                let mut file = BufReader::new(File::open(archive)?);
                let magic = io::BufRead::fill_buf(&mut file)?;
                if magic.starts_with(&[0x1f, 0x8b]) {
                    self.unpack(GzDecoder::new(file).take(MOST))
                } else {
                    self.unpack(file.take(MOST))
                }
            }
            Brought::Zip { archive, more } => {
                if let Some(archive) = archive {
                    self.unzip(archive)?;
                }
                for (name, text) in *more {
                    let place = self.0.join(inside(name.as_bytes()).ok_or_else(|| ApiError::bad("name a file"))?);
                    fs::write(place, text)?;
                }
                Ok(())
            }
        }
    }

    fn unzip(&self, archive: &Path) -> Result<(), ApiError> {
        let mut left = MOST;
        let mut archive = open_zip(archive)?;
        for index in 0..archive.len() {
            let mut member = archive.by_index(index).map_err(|error| damaged(&error))?;
            let name = member.name().map_err(|error| damaged(&error))?.replace('\\', "/");
            let shown = slipway_image::member::shown(name.as_bytes());
            let refuse = |why: &str| ApiError::bad(&format!("unpack `{shown}`: {why}"));
            // Programs on Windows write backslashes, which are no names anywhere.
            let path = inside(name.as_bytes());
            let path = path.ok_or_else(|| refuse("its path leaves the analysis, or is none"))?;
            let place = self.0.join(path);
            let (is_folder, is_file) = (member.is_dir(), member.is_file());
            let folder = if is_folder { Some(place.as_path()) } else { place.parent() };
            if let Some(folder) = folder {
                fs::create_dir_all(folder).map_err(|_| refuse("a file is where its folder belongs"))?;
            }
            if is_folder {
                continue;
            }
            if !is_file {
                return Err(refuse("it is a link, and neither a file nor a folder"));
            }
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&place);
            let mut file = file.map_err(|_| refuse("the archive has it twice"))?;
            let copied = io::copy(&mut (&mut member).take(left + 1), &mut file).map_err(|_| refuse("it is damaged"))?;
            left = left.checked_sub(copied).ok_or_else(|| ApiError::large("unpack the archive: it is too large"))?;
        }
        Ok(())
    }

    fn unpack(&self, stream: impl Read) -> Result<(), ApiError> {
        let mut members = Members::new(stream);
        let mut entries = 0;
        let fault = |fault| match fault {
            Fault::Io(_) => ApiError::bad("read the archive: it is cut off, damaged or too large"),
            Fault::Malformed(what) => ApiError::bad(&format!("read the archive: {what}")),
        };
        while let Some(member) = members.next().map_err(fault)? {
            entries += 1;
            if entries > ENTRIES {
                return Err(ApiError::large("unpack the archive: it has too many files"));
            }
            let shown = slipway_image::member::shown(&member.path);
            let refuse = |why: &str| ApiError::bad(&format!("unpack `{shown}`: {why}"));
            let path = inside(&member.path).ok_or_else(|| refuse("its path leaves the campaign, or is none"))?;
            let place = self.0.join(path);
            let parent = if member.kind == Kind::Directory { Some(place.as_path()) } else { place.parent() };
            // No link is ever made here, so no path leads out of the room.
            if let Some(parent) = parent {
                fs::create_dir_all(parent).map_err(|_| refuse("a file is where its folder belongs"))?;
            }
            match member.kind {
                Kind::Directory => {}
                Kind::File if member.runs.is_none() => {
                    let mode = 0o600 | member.mode & 0o100;
                    let mut file = OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .mode(mode)
                        .open(&place)
                        .map_err(|_| refuse("the archive has it twice"))?;
                    io::copy(&mut members, &mut file)
                        .map_err(|_| refuse("it is cut off, too large, or the disk is full"))?;
                }
                Kind::File => return Err(refuse("it is a sparse file")),
                Kind::Symlink(_) | Kind::HardLink(_) => return Err(refuse("it is a link")),
                Kind::Fifo | Kind::Device => return Err(refuse("it is neither a file nor a folder")),
            }
        }
        Ok(())
    }

    /// The text of a file in it.
    pub(super) fn text(&self, name: &str) -> Result<String, ApiError> {
        let missing =
            || ApiError::bad(&format!("find `{name}` in the archive: it has none at its root, or one that is no text"));
        let mut text = String::new();
        let file = File::open(self.0.join(name)).map_err(|_| missing())?;
        file.take(LARGEST_FILE).read_to_string(&mut text).map_err(|_| missing())?;
        Ok(text)
    }

    /// Moves the folder into the campaign's. Returns its place.
    pub(super) fn keep(self, campaign: &Path) -> io::Result<PathBuf> {
        let place = campaign.join("uploaded");
        fs::rename(&self.0, &place)?;
        Ok(place)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Kept, it is not there any more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name in the archive as a path in the room.
fn inside(name: &[u8]) -> Option<PathBuf> {
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= LONGEST && !name.contains('\0'))?;
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

/// Unpacks an archive (tar, which gzip may compress, or ZIP) into a folder of its own below `folder`, and removes that. For
/// the fuzzer.
///
/// # Errors
/// The reason why it is no archive.
pub fn try_archive(folder: &Path, archive: &Path) -> Result<(), String> {
    let is_zip = || {
        let mut magic = [0; 2];
        File::open(archive)?.read_exact(&mut magic)?;
        io::Result::Ok(magic == *b"PK")
    };
    let brought = match is_zip() {
        Ok(true) => Brought::Zip { archive: Some(archive), more: &[] },
        _ => Brought::Tar(archive),
    };
    let room = Room::new(folder).map_err(|error| error.to_string())?;
    room.fill(&brought).map_err(|error| format!("{error:?}"))
}

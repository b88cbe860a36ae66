//! Where facts come from: this machine, a folder that holds its files, or one text with all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat2};
use slipway_document::FileError;

use super::ethtool::{self, Told};
use super::fact::Fact;

/// Most bytes of one file. `/proc/cpuinfo` and `/proc/interrupts` of the largest machines have less.
const LONGEST: u64 = 4 << 20;
/// Most entries of one folder.
const MOST_ENTRIES: usize = 4096;
/// Most bytes of a recording in one file.
const LONGEST_RECORDING: u64 = 64 << 20;
/// Answers of ethtool, in a recording.
const ETHTOOL: &str = "/ethtool.json";
/// Services that run, in a recording: a name a line.
const SERVICES: &str = "/services";
/// Services that have a say in settings of the machine.
const KNOWN_SERVICES: [&str; 5] = ["irqbalance", "tuned", "thermald", "power-profiles-", "NetworkManager"];

/// Files by path, and folders by a path that ends with `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording(pub BTreeMap<String, Vec<u8>>);

/// A machine to read facts of.
#[derive(Debug)]
pub struct Source {
    tree: Tree,
    seen: RefCell<Recording>,
}

#[derive(Debug)]
enum Tree {
    /// Files below a root that nothing leads out of. `live` is this machine, whose kernel answers too.
    Folder {
        root: OwnedFd,
        live: bool,
    },
    Files(Recording),
}

/// A source that is not there.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file or folder cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is larger than any recording.
    #[error(
        "read {0}: it has more than {LONGEST_RECORDING} bytes\nHint: give a folder or a file that `slipway tune record` wrote"
    )]
    TooLong(String),
    /// The file is something else.
    #[error(
        "read {0}: it is no recording of a machine\nHint: give a folder or a file that `slipway tune record` wrote"
    )]
    NotOne(String),
}

impl Source {
    /// This machine.
    ///
    /// # Errors
    /// `/` cannot be opened.
    pub fn machine() -> Result<Self, SourceError> {
        let root = open_folder(Path::new("/")).map_err(FileError::of("open", Path::new("/")))?;
        Ok(Self::of(Tree::Folder { root, live: true }))
    }

    /// A folder with a machine's files, or a recording in one file.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let failed = FileError::of("open", path);
        if path == Path::new("/") {
            return Self::machine();
        }
        if path.is_dir() {
            return Ok(Self::of(Tree::Folder { root: open_folder(path).map_err(failed)?, live: false }));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(&failed)?;
        file.take(LONGEST_RECORDING + 1).read_to_end(&mut bytes).map_err(&failed)?;
        let name = path.display().to_string();
        if bytes.len() as u64 > LONGEST_RECORDING {
            return Err(SourceError::TooLong(name));
        }
        Recording::read(&bytes).map(Self::recorded).ok_or(SourceError::NotOne(name))
    }

    /// Files that somebody recorded.
    #[must_use]
    pub fn recorded(recording: Recording) -> Self {
        Self::of(Tree::Files(recording))
    }

    fn of(tree: Tree) -> Self {
        Self { tree, seen: RefCell::default() }
    }

    /// All that was read so far: facts gathered of it are the same.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.seen.borrow().clone()
    }

    /// A file's text, without the whitespace around it.
    pub(super) fn read(&self, path: &str) -> Fact<String> {
        let bytes = match &self.tree {
            Tree::Folder { root, .. } => read_file(root, path),
            Tree::Files(Recording(files)) => files.get(path).cloned().ok_or(io::ErrorKind::NotFound.into()),
        };
        match bytes {
            Ok(mut bytes) => {
                bytes.truncate(usize::try_from(LONGEST).unwrap_or(usize::MAX));
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                self.seen.borrow_mut().0.insert(path.to_owned(), bytes);
                Fact::Known(text)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Fact::unknown(format!("there is no {path}")),
            Err(error) => Fact::unknown(format!("{path} cannot be read: {error}")),
        }
    }

    /// The word in brackets of a file such as `mq-deadline [none]`.
    pub(super) fn chosen(&self, path: &str) -> Fact<String> {
        self.read(path).map(|text| {
            let bracketed = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
            bracketed.map_or_else(|| text.clone(), str::to_owned)
        })
    }

    /// Folders below a folder, of the names that `keep` keeps, in order.
    pub(super) fn list(&self, path: &str, keep: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names: BTreeSet<String> = match &self.tree {
            Tree::Folder { root, .. } => list_folder(root, path).unwrap_or_default(),
            Tree::Files(Recording(files)) => {
                let prefix = format!("{path}/");
                let below = files.range(prefix.clone()..).take_while(|(file, _)| file.starts_with(&prefix));
                below.filter_map(|(file, _)| file[prefix.len()..].split('/').next().map(str::to_owned)).collect()
            }
        };
        names.retain(|name| !name.is_empty() && keep(name));
        let names: Vec<String> = names.into_iter().take(MOST_ENTRIES).collect();
        let mut seen = self.seen.borrow_mut();
        for name in &names {
            seen.0.entry(format!("{path}/{name}/")).or_default();
        }
        names
    }

    /// Answers of ethtool, by interface.
    pub(super) fn told(&self) -> BTreeMap<String, Told> {
        if let Tree::Folder { live: true, .. } = &self.tree {
            let told = ethtool::ask(&self.list("/sys/class/net", |_| true));
            let json = serde_json::to_vec_pretty(&told).unwrap_or_default();
            self.seen.borrow_mut().0.insert(ETHTOOL.to_owned(), json);
            return told;
        }
        let text = self.read(ETHTOOL);
        text.known().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Services that run and have a say in settings of the machine.
    pub(super) fn services(&self) -> Fact<Vec<String>> {
        if let Tree::Folder { live: true, root } = &self.tree {
            let running: BTreeSet<String> = list_folder(root, "/proc")
                .unwrap_or_default()
                .into_iter()
                .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
                .filter_map(|process| read_file(root, &format!("/proc/{process}/comm")).ok())
                .map(|name| String::from_utf8_lossy(&name).trim().to_owned())
                .filter(|name| KNOWN_SERVICES.iter().any(|known| name.starts_with(known)))
                .collect();
            let running: Vec<String> = running.into_iter().collect();
            self.seen.borrow_mut().0.insert(SERVICES.to_owned(), running.join("\n").into_bytes());
            return Fact::Known(running);
        }
        self.read(SERVICES)
            .map(|text| text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Links of a recorded root may lead anywhere: they are resolved within it, and nothing but a file is read.
fn open_within(root: &OwnedFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, path.trim_start_matches('/'), flags, Mode::empty(), resolve)?)
}

fn read_file(root: &OwnedFd, path: &str) -> io::Result<Vec<u8>> {
    let file = File::from(open_within(root, path, OFlags::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn list_folder(root: &OwnedFd, path: &str) -> io::Result<BTreeSet<String>> {
    let folder = open_within(root, path, OFlags::DIRECTORY)?;
    let mut names = BTreeSet::new();
    // A process table is longer than what facts keep of a folder.
    for entry in Dir::read_from(&folder)?.take(64 * MOST_ENTRIES) {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.insert(name);
        }
    }
    Ok(names)
}

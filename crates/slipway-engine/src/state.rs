//! Where a running lab is written down: one folder per lab below the state root, and the lock that says whose it is.
//!
//! ```text
//! /run/slipway/              the state root; SLIPWAY_STATE names another
//!   .locks/LAB               locked (flock(2)) for as long as the lab's anchor, or an `up` or `down`, lives
//!   .away/LAB                machines that could not be reached when a lab of this name went down
//!   LAB/lab.json             the resolved lab
//!       state.json           processes and what was chosen; replaced whole, never edited
//!       disks.json           block devices of nodes that have one of their own
//!       limits.json          what nodes may use now, where that has been changed
//!       fast.log             what became of its routers
//!       anchor.log           warnings of the anchor and of the wire, and what `SLIPWAY_LOG` asked for
//!       control              the anchor's socket
//!       scenario/            what is played on the lab, and its log
//!       log/NODE.log         output of the node's own command, and what there was before it in NODE.log.1; the anchor's own
//!       etc/                 files that nodes share: hosts, resolv.conf
//!       node/                what nodes see at /run/slipway
//! ```
//!
//! Control groups and scratch folders are in places that all state roots of a machine share: there a lab of another root
//! than the usual one carries a mark of its root, so that two labs of one name never meet.
//!
//! The lock is the truth about liveness: the kernel releases it however the holder dies.
//!
//! This module knows the folder, not what other modules keep in it: they read and write their own files through [`LabDir`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use slipway_document::text::printable;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::{Lab, Limits};
use slipway_sys::process::ProcessId;

/// What went wrong with the state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Verb, as in "write".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A state file is not what this version writes.
    #[error("read {}: {source}\nHint: it was written by another version or cut short; `slipway down` removes the lab all the same", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There is no such lab.
    #[error("find a running lab named `{0}`\nHint: `slipway ps` lists what runs; `slipway up FILE` starts one")]
    NotRunning(String),
    /// Somebody else holds the lab.
    #[error(
        "take lab `{0}`: it is already up, or being brought up or down by another slipway\nHint: `slipway ps {0}` shows it; `slipway down {0}` ends it"
    )]
    Taken(String),
    /// Somebody else holds the lab, and goes on holding it.
    #[error("take lab `{lab}`: for {} s it has been held by {holders}\nHint: end that process, then try again; `--patience` of `slipway down` waits longer", patience.as_secs())]
    Held {
        /// The lab.
        lab: String,
        /// Processes, by number and command.
        holders: String,
        /// Time waited for the lab.
        patience: Duration,
    },
}

impl StateError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }
}

/// How long another command may hold what this one waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The folder below which all labs of this machine are written down, and the folder of their nodes' `/scratch`.
#[derive(Debug, Clone)]
pub struct StateRoot {
    path: PathBuf,
    scratch: PathBuf,
}

/// The folder of labs unless `SLIPWAY_STATE` names another.
const USUAL_ROOT: &str = "/run/slipway";
/// The folder of the nodes' `/scratch` unless `SLIPWAY_SCRATCH` names another.
const USUAL_SCRATCH: &str = "/var/lib/slipway/scratch";

impl Default for StateRoot {
    /// The folders that `SLIPWAY_STATE` and `SLIPWAY_SCRATCH` name, or the usual ones.
    fn default() -> Self {
        let named = |variable, usual: &str| std::env::var_os(variable).map_or_else(|| usual.into(), PathBuf::from);
        Self { path: named("SLIPWAY_STATE", USUAL_ROOT), scratch: named("SLIPWAY_SCRATCH", USUAL_SCRATCH) }
    }
}

impl StateRoot {
    /// A root of one's own, with the usual folder of the nodes' `/scratch`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), scratch: USUAL_SCRATCH.into() }
    }

    /// The same root, with another folder of the nodes' `/scratch`.
    #[must_use]
    pub fn with_scratch(self, scratch: impl Into<PathBuf>) -> Self {
        Self { scratch: scratch.into(), ..self }
    }

    /// The folder on disk with the nodes' `/scratch` of all labs, as the kernel names it for a loop device's file.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.scratch.canonicalize().unwrap_or_else(|_| self.scratch.clone())
    }

    /// The folder of one lab, whether or not it exists.
    #[must_use]
    pub fn lab(&self, name: &str) -> LabDir {
        LabDir {
            path: self.path.join(name),
            name: name.to_owned(),
            shared_name: format!("{name}{}", self.mark()),
            root: self.clone(),
        }
    }

    /// The lab of this root that is called `shared_name` where all roots share a place; `None` for another root's.
    #[must_use]
    pub fn own<'a>(&self, shared_name: &'a str) -> Option<&'a str> {
        // Names of labs have no dots.
        shared_name.strip_suffix(&self.mark()).filter(|name| !name.contains('.'))
    }

    /// Empty for the usual root.
    fn mark(&self) -> String {
        if self.path == Path::new(USUAL_ROOT) {
            return String::new();
        }
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let digest = Sha256::digest(path.as_os_str().as_bytes());
        let [a, b, c, d, ..] = digest.0;
        format!(".{:08x}", u32::from_be_bytes([a, b, c, d]))
    }

    /// The root itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all labs that have a folder or a lock here, running or left behind, in order.
    pub fn labs(&self) -> Result<Vec<String>, StateError> {
        let mut names = Vec::new();
        for folder in [self.path.clone(), self.path.join(".locks")] {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StateError::io("list", &folder)(error)),
            };
            for entry in entries {
                let entry = entry.map_err(StateError::io("list", &folder))?;
                if let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.')) {
                    names.push(name.to_owned());
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// For an error: somebody holds the lab's lock for too long.
    pub(crate) fn held(&self, name: &str, patience: Duration) -> StateError {
        StateError::Held { lab: name.to_owned(), holders: holders(&self.path.join(".locks").join(name)), patience }
    }

    /// Takes the lab's lock, at once or not at all.
    pub fn try_lock(&self, name: &str) -> Result<LabLock, StateError> {
        let folder = self.path.join(".locks");
        make_private_dir(&self.path)?;
        make_private_dir(&folder)?;
        let path = folder.join(name);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)
                .map_err(StateError::io("open", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(StateError::Taken(name.to_owned())),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(StateError::io("lock", &path)(error.into())),
            }
            // A lock on a file that was unlinked meanwhile protects nothing: another may have made a new one.
            let mine = file.metadata().map_err(StateError::io("look at", &path))?;
            if fs::metadata(&path).is_ok_and(|there| there.ino() == mine.ino()) {
                return Ok(LabLock { file, path });
            }
        }
    }
}

/// The lab's lock, held until this and every copy of its descriptor is closed.
#[derive(Debug)]
pub struct LabLock {
    file: File,
    path: PathBuf,
}

impl LabLock {
    /// The descriptor, for the anchor to keep.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Forgets the lab's lock altogether; only for a lab that no longer exists.
    pub fn remove(self) -> Result<(), StateError> {
        self.unlink()
    }

    /// As [`remove`](Self::remove), where another process holds it too.
    pub(crate) fn unlink(&self) -> Result<(), StateError> {
        fs::remove_file(&self.path).map_err(StateError::io("remove", &self.path))
    }
}

/// One lab's folder.
#[derive(Debug, Clone)]
pub struct LabDir {
    path: PathBuf,
    name: String,
    shared_name: String,
    root: StateRoot,
}

impl LabDir {
    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the lab is called where all state roots share a place: control groups, scratch folders.
    #[must_use]
    pub fn shared_name(&self) -> &str {
        &self.shared_name
    }

    /// The folder with the `/scratch` of the lab's nodes: on disk, unlike their roots.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.scratch().join(&self.shared_name)
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path within.
    #[must_use]
    pub fn join(&self, relative: &str) -> PathBuf {
        self.path.join(relative)
    }

    /// The anchor's socket.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.join("control")
    }

    /// True where the folder exists, whatever state the lab is in.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Makes the folder and those in it.
    pub fn create(&self) -> Result<(), StateError> {
        for folder in ["", "log", "etc", "node", "rw", "root"] {
            let path = if folder.is_empty() { self.path.clone() } else { self.join(folder) };
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(StateError::io("make", &path))?;
        }
        // Nodes reach this one through a bind mount, as any of their users.
        let shared = self.join("node");
        fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(StateError::io("open up", &shared))
    }

    /// Removes the folder and all in it; already gone is fine.
    pub fn remove(&self) -> Result<(), StateError> {
        match fs::remove_dir_all(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StateError::io("remove", &self.path)(error)),
        }
    }

    /// Reads the resolved lab.
    pub fn read_lab(&self) -> Result<Lab, StateError> {
        self.read("lab.json")
    }

    /// Writes the resolved lab.
    pub fn write_lab(&self, lab: &Lab) -> Result<(), StateError> {
        self.write("lab.json", lab)
    }

    /// Reads what each node may use now; `None` where that has not been changed.
    pub(crate) fn read_limits(&self) -> Result<Option<List<NodeId, Limits>>, StateError> {
        if self.join("limits.json").exists() { self.read("limits.json").map(Some) } else { Ok(None) }
    }

    /// Writes that.
    pub(crate) fn write_limits(&self, limits: &List<NodeId, Limits>) -> Result<(), StateError> {
        self.write("limits.json", limits)
    }

    /// Waits until nobody else changes limits, for as long as that may take. For as long as the file is open, nobody does.
    pub(crate) fn lock_changes(&self) -> Result<File, StateError> {
        let path = self.join("lab.json");
        let file = File::open(&path).map_err(StateError::io("open", &path))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                // Nothing announces its release without waiting for it, perhaps for ever.
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                Err(Errno::WOULDBLOCK) => {
                    let (lab, holders) = (self.name.clone(), holders(&path));
                    return Err(StateError::Held { lab, holders, patience: PATIENCE });
                }
                Err(error) => return Err(StateError::io("lock", &path)(error.into())),
            }
        }
    }

    /// Reads a file of the lab's.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self, file: &str) -> Result<T, StateError> {
        let path = self.join(file);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StateError::NotRunning(self.name.clone()));
            }
            Err(error) => return Err(StateError::io("read", &path)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|source| StateError::Format { path, source })
    }

    /// Replaces a file of the lab's. Readers see the old text or the new, never half of one.
    pub(crate) fn write<T: Serialize>(&self, file: &str, value: &T) -> Result<(), StateError> {
        let path = self.join(file);
        let fresh = self.join(&format!("{file}.new"));
        let text = serde_json::to_vec(value).map_err(|source| StateError::Format { path: path.clone(), source })?;
        File::create(&fresh)
            .and_then(|mut out| out.write_all(&text))
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(StateError::io("write", &path))
    }
}

/// Processes that have a file open, as "PID 123 (slipway up lab.yaml)". Those of others may not be seen.
fn holders(path: &Path) -> String {
    let there = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = std::process::id();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|&pid| pid != own);
    let has = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|to| to == there)
    };
    let named = pids.filter(has).map(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: String = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        format!("PID {pid} ({})", printable(&words).chars().take(100).collect::<String>())
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { "a process that cannot be seen from here".to_owned() } else { named.join(", ") }
}

fn make_private_dir(path: &Path) -> Result<(), StateError> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) => Err(StateError::io("make", path)(error)),
    }
}

/// One node's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// What the lab last did with it.
    pub status: NodeStatus,
    /// PID 1 of the node, as seen from outside. `None` unless running.
    pub init: Option<ProcessId>,
    /// The node's own command, while it runs.
    pub command: Option<ProcessId>,
    /// The end of its own command, once that has ended.
    #[serde(default)]
    pub ended: Option<ProgramEnd>,
}

impl NodeState {
    /// A node without processes.
    pub(crate) const STOPPED: Self = Self { status: NodeStatus::Stopped, init: None, command: None, ended: None };
}

/// How a node's own command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// As a shell says it: the code, or 128 and the signal's number.
    pub code: i32,
    /// The signal that ended it, by number.
    #[serde(default)]
    pub signal: Option<i32>,
}

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Its init runs.
    Running,
    /// Stopped on request: no process, links silent, files and links kept.
    Stopped,
    /// Its init ended although nobody asked. `slipway start` revives it.
    Dead,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_of_two_roots_never_meet() {
        let (usual, other) = (StateRoot::at(USUAL_ROOT), StateRoot::at("/tmp/other"));
        assert_eq!(usual.lab("a").shared_name(), "a");
        let marked = other.lab("a").shared_name().to_owned();
        assert_eq!(other.own(&marked), Some("a"));
        assert_eq!((usual.own(&marked), other.own("a")), (None, None));
    }

    #[test]
    fn a_lock_is_held_once_and_survives_removal() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = StateRoot::at(dir.path());
        let lock = root.try_lock("a").expect("free");
        assert!(matches!(root.try_lock("a"), Err(StateError::Taken(_))));
        lock.remove().expect("removed");
        drop(root.try_lock("a").expect("free again"));
        assert_eq!(root.labs().expect("listed"), ["a"]);
    }
}

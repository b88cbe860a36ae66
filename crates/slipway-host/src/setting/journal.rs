//! The journal: each setting's former value, on disk before the setting changes.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::kernel::is_sound;
use super::key::Key;
use super::persisted::Persisted;

/// The form of the file.
const VERSION: u32 = 1;
/// Largest journal, bytes.
const LARGEST: u64 = 4 << 20;
/// Most entries.
const MOST: usize = 4096;

/// A setting that Slipway changed, or was about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The setting.
    pub key: Key,
    /// The value before Slipway changed it for the first time.
    pub former: String,
    /// The value that the kernel had after the last change that was finished. `None` before the first one is.
    pub wrote: Option<String>,
    /// A change that was begun, and may have come about or not.
    pub pending: Option<String>,
    /// The rule that wanted it.
    pub rule: String,
    /// The reason, for people.
    pub why: String,
    /// The time of the last change, seconds since 1970.
    pub at: u64,
    /// Whether files set it again after a reboot.
    pub persisted: bool,
}

/// The life of the values that a journal speaks of: they end with the boot, and with the network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The network namespace's number.
    pub net: u64,
}

impl Life {
    /// The one of this process.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn now() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { boot, net: fs::metadata("/proc/thread-self/ns/net")?.ino() })
    }
}

/// The file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    life: Life,
    entries: Vec<Entry>,
    #[serde(default)]
    files: Vec<Persisted>,
}

/// The folder of the journal, locked: one command at a time changes settings.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    _lock: File,
}

/// A journal and its file.
#[derive(Debug)]
pub struct Journal {
    state: State,
    content: Content,
    now: Life,
}

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// The deed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another command has it.
    #[error("change settings: another command changes them now (it has the lock of {})\nHint: wait until it has ended", .0.display())]
    Held(PathBuf),
    /// The folder belongs to somebody else, or others may write in it.
    #[error("trust the journal in {}: others than root may write there\nHint: `chown root` and `chmod 700` it, after a look at its content", .0.display())]
    Untrusted(PathBuf),
    /// The file is no journal.
    #[error("understand the journal {}: {why}\nHint: it says what to restore, so Slipway neither guesses nor overwrites it. Look at it, then move it away", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The values are another namespace's.
    #[error("use the journal in {}: it belongs to another network namespace\nHint: run the command there, or name another folder with --state", .0.display())]
    Elsewhere(PathBuf),
}

impl JournalError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

impl State {
    /// Opens the folder, and makes it where it is not there. The lock lasts as long as the value.
    ///
    /// # Errors
    /// [`JournalError::Held`] while another command has it; [`JournalError::Untrusted`] where others may write in it.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(JournalError::io("make", folder))?;
        let meta = fs::metadata(folder).map_err(JournalError::io("look at", folder))?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(JournalError::Untrusted(folder.to_owned()));
        }
        let lock = File::open(folder).map_err(JournalError::io("open", folder))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder: folder.to_owned(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(JournalError::Held(folder.to_owned())),
            Err(error) => Err(JournalError::io("lock", folder)(error.into())),
        }
    }

    /// Path of the journal.
    fn file(&self) -> PathBuf {
        self.folder.join("journal.json")
    }
}

impl Journal {
    /// Reads the journal; an empty one where there is none.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] for a file that Slipway did not write, [`JournalError::Elsewhere`] for another namespace's.
    pub fn open(state: State, now: Life) -> Result<Self, JournalError> {
        let path = state.file();
        let content = match File::open(&path) {
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(JournalError::io("read", &path))?;
                Content::read(&bytes).map_err(|why| JournalError::Damaged { path, why })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::new(now.clone()),
            Err(error) => return Err(JournalError::io("read", &path)(error)),
        };
        if !content.entries.is_empty() && content.life.boot == now.boot && content.life.net != now.net {
            return Err(JournalError::Elsewhere(state.folder));
        }
        Ok(Self { state, content, now })
    }

    /// All entries, the oldest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.content.entries
    }

    /// Files that set values again after a reboot.
    #[must_use]
    pub fn files(&self) -> &[Persisted] {
        &self.content.files
    }

    /// Whether the machine was started again since.
    #[must_use]
    pub fn is_of_an_earlier_boot(&self) -> bool {
        self.content.life.boot != self.now.boot
    }

    /// Whether a change was begun and not finished.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.content.entries.iter().any(|entry| entry.pending.is_some())
    }

    /// Changes entries and files, and has them on disk before it returns. Without entries and files, the journal's file goes.
    ///
    /// # Errors
    /// When the file system fails: nothing changed then.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut Vec<Entry>, &mut Vec<Persisted>),
    ) -> Result<(), JournalError> {
        let mut next = self.content.clone();
        if next.entries.is_empty() && next.files.is_empty() {
            next.life = self.now.clone();
        }
        change(&mut next.entries, &mut next.files);
        if next != self.content {
            self.write(&next)?;
            self.content = next;
        }
        Ok(())
    }

    fn write(&self, next: &Content) -> Result<(), JournalError> {
        let path = self.state.file();
        let done = if next.entries.is_empty() && next.files.is_empty() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            }
        } else {
            let text =
                serde_json::to_vec_pretty(next).map_err(|error| JournalError::io("write", &path)(error.into()))?;
            replace(&path, &text, 0o600)
        };
        done.and_then(|()| File::open(&self.state.folder)?.sync_all()).map_err(JournalError::io("write", &path))
    }
}

/// Replaces a file: after a loss of power its old content is there or its new one. The caller syncs the folder.
pub(super) fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

impl Content {
    fn new(life: Life) -> Self {
        Self { version: VERSION, life, entries: Vec::new(), files: Vec::new() }
    }

    /// Reads a journal's bytes. Everything in it will be written to the kernel one day, so nothing is taken on trust.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > LARGEST {
            return Err(format!("it has more than {LARGEST} bytes"));
        }
        let content: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if content.version != VERSION {
            return Err(format!("its form is version {}, and this program knows {VERSION}", content.version));
        }
        if content.entries.len() > MOST {
            return Err(format!("it has more than {MOST} entries"));
        }
        for (at, entry) in content.entries.iter().enumerate() {
            let texts = [Some(&entry.former), entry.wrote.as_ref(), entry.pending.as_ref()];
            if !texts.into_iter().flatten().all(|text| is_sound(text)) {
                return Err(format!("a value of {} is not one short line", entry.key));
            }
            if content.entries[..at].iter().any(|other| other.key == entry.key) {
                return Err(format!("{} is in it twice", entry.key));
            }
        }
        content.files.iter().try_for_each(Persisted::check)?;
        Ok(content)
    }
}

/// Whether bytes are a journal. For tests with random input.
#[must_use]
pub fn is_journal(bytes: &[u8]) -> bool {
    Content::read(bytes).is_ok()
}

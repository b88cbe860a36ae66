//! Python environments: pinned packages from the package index, in a folder that is made once.
//!
//! ```text
//! /var/lib/slipway/python/    SLIPWAY_PYTHON names another
//!   DIGEST/                   a finished environment (venv), never changed again
//!     slipway-packages.json   pip's report: each package with its version and hash
//!   DIGEST.new/               half-made; the next maker removes it
//!   DIGEST.lock               held (flock(2)) while the environment is made
//! ```
//!
//! The digest is that of the interpreter and the requirements. An environment that is there is used without any look at
//! the network. A node sees it where its folder is mounted at the same path, since links in it are absolute.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock, syncfs};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use slipway_document::packages::is_pinned;

mod error;
mod interpreter;

pub use error::EnvironmentError;
use error::{explain, words};
use interpreter::Interpreter;

const DEFAULT_CACHE: &str = "/var/lib/slipway/python";
/// Bytes of a program's errors that are kept.
const WORDS: u64 = 64 << 10;
/// Part of the digest: a change of how environments are made gives others.
const FORM: &str = "slipway python environment 1";
/// pip's report of an installation, in the environment's folder.
const REPORT: &str = "slipway-packages.json";

/// A step on the way to an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Another process makes the same environment; this one waits for it.
    Waiting,
    /// The environment is not there yet, and is being made.
    Making {
        /// Its packages.
        requirements: &'a [&'a str],
    },
    /// A line of pip's progress.
    Line(&'a str),
    /// The environment is made.
    Made,
}

/// An event sink.
pub type Sink<'s> = dyn FnMut(Step<'_>) + 's;

/// A finished Python environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    folder: PathBuf,
}

/// The machine's folder of environments: `/var/lib/slipway/python`, or the one that `SLIPWAY_PYTHON` names.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("SLIPWAY_PYTHON")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_CACHE.into(), PathBuf::from)
}

impl Environment {
    /// The environment with these packages, made if it is not there. Each requirement names one version (`numpy==2.4.0`).
    ///
    /// # Errors
    /// All of [`EnvironmentError`]; nothing half-made is left in its place.
    pub fn make(cache: &Path, requirements: &[&str], sink: &mut Sink<'_>) -> Result<Self, EnvironmentError> {
        let (interpreter, environment) = Self::named(cache, requirements)?;
        if environment.is_there() {
            return Ok(environment);
        }
        DirBuilder::new().recursive(true).mode(0o755).create(cache).map_err(EnvironmentError::io("make", cache))?;
        let lock = environment.lock(sink)?;
        // Its maker may have finished while this process waited.
        if !environment.is_there() {
            sink(Step::Making { requirements });
            environment.build(&interpreter, requirements, &lock, sink)?;
            sink(Step::Made);
        }
        Ok(environment)
    }

    /// The environment with these packages, if it is there. Nothing is made.
    ///
    /// # Errors
    /// Where a requirement is none, or there is no interpreter.
    pub fn find(cache: &Path, requirements: &[&str]) -> Result<Option<Self>, EnvironmentError> {
        let (_, environment) = Self::named(cache, requirements)?;
        Ok(environment.is_there().then_some(environment))
    }

    /// The environment's folder: mount it into nodes at the same path, read-only.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The interpreter. It finds the environment's packages by itself.
    #[must_use]
    pub fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// The folder of installed packages.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn packages(&self) -> Result<PathBuf, EnvironmentError> {
        let libraries = self.folder.join("lib");
        let versions = fs::read_dir(&libraries).map_err(EnvironmentError::io("read", &libraries))?;
        let found =
            versions.filter_map(Result::ok).map(|entry| entry.path().join("site-packages")).find(|path| path.is_dir());
        found.ok_or_else(|| EnvironmentError::io("find site-packages in", &libraries)(io::ErrorKind::NotFound.into()))
    }

    fn named(cache: &Path, requirements: &[&str]) -> Result<(Interpreter, Self), EnvironmentError> {
        if let Some(wrong) = requirements.iter().find(|requirement| !is_pinned(requirement)) {
            return Err(EnvironmentError::Requirement((*wrong).to_owned()));
        }
        let interpreter = Interpreter::find()?;
        let cache = std::path::absolute(cache).map_err(EnvironmentError::io("find", cache))?;
        let folder = cache.join(digest(&interpreter, requirements));
        Ok((interpreter, Self { folder }))
    }

    fn is_there(&self) -> bool {
        self.python().exists()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.with_extension(ending)
    }

    fn lock(&self, sink: &mut Sink<'_>) -> Result<File, EnvironmentError> {
        let path = self.beside("lock");
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        let file = open.map_err(EnvironmentError::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => sink(Step::Waiting),
            other => return other.map(|()| file).map_err(|error| EnvironmentError::io("lock", &path)(error.into())),
        }
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(error) => return Err(EnvironmentError::io("lock", &path)(error.into())),
            }
        }
    }

    /// Makes the environment aside, and renames it. Its content reaches the disk before its name.
    fn build(
        &self,
        interpreter: &Interpreter,
        requirements: &[&str],
        lock: &File,
        sink: &mut Sink<'_>,
    ) -> Result<(), EnvironmentError> {
        let aside = self.beside("new");
        remove(&aside)?;
        let mut finish = || -> Result<(), EnvironmentError> {
            interpreter.venv(&aside, lock)?;
            if !requirements.is_empty() {
                install(&aside, requirements, lock, sink)?;
            }
            rename_within(&aside.join("bin"), &aside, &self.folder)?;
            let open = File::open(&aside).map_err(EnvironmentError::io("open", &aside))?;
            syncfs(&open).map_err(|error| EnvironmentError::io("write", &aside)(error.into()))?;
            fs::rename(&aside, &self.folder).map_err(EnvironmentError::io("rename", &aside))
        };
        finish().inspect_err(|_| {
            // The error is the news; the next maker tries again to remove the rest.
            let _ = remove(&aside);
        })
    }
}

fn digest(interpreter: &Interpreter, requirements: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [FORM, &interpreter.version].into_iter().chain(requirements.iter().copied()) {
        hash.update(part);
        hash.update([0]);
    }
    let mut name = String::with_capacity(32);
    for byte in hash.finalize().iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn remove(path: &Path) -> Result<(), EnvironmentError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(EnvironmentError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Installs packages with the environment's own pip. Only wheels: a source package would run its author's program here.
fn install(folder: &Path, requirements: &[&str], lock: &File, sink: &mut Sink<'_>) -> Result<(), EnvironmentError> {
    let python = folder.join("bin/python");
    let mut command = Command::new(&python);
    command
        .args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"])
        .args(["--only-binary", ":all:", "--retries", "2", "--report"])
        .arg(folder.join(REPORT))
        .args(requirements)
        // Where pip looks for packages is the administrator's word (pip.conf, PIP_INDEX_URL); where it puts them is not.
        .env_remove("PIP_TARGET")
        .env_remove("PIP_PREFIX")
        .env_remove("PIP_USER")
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME")
        .env("PIP_ROOT_USER_ACTION", "ignore");
    let (ended, errors) = run(command, lock, &mut |line| sink(Step::Line(line)))?;
    if ended { Ok(()) } else { Err(explain(&errors, requirements)) }
}

/// Runs a program to its end: whether it ended well, and its standard error. The program holds the lock as its standard
/// input, so that the lock lasts as long as the program, whatever becomes of this process.
fn run(mut command: Command, lock: &File, line: &mut dyn FnMut(&str)) -> Result<(bool, String), EnvironmentError> {
    let program = PathBuf::from(command.get_program());
    let failed = |source| EnvironmentError::io("run", &program)(source);
    let input = lock.try_clone().map_err(failed)?;
    let child = command.stdin(Stdio::from(input)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let errors = std::thread::scope(|threads| {
        let errors = threads.spawn(|| words(stderr, WORDS));
        let mut reader = BufReader::new(stdout);
        let mut text = Vec::new();
        while reader.by_ref().take(WORDS).read_until(b'\n', &mut text).is_ok_and(|count| count > 0) {
            let shown = String::from_utf8_lossy(&text);
            line(slipway_document::text::printable(shown.trim()).as_str());
            text.clear();
        }
        errors.join().expect("a reader does not panic")
    });
    let status = child.wait().map_err(failed)?;
    Ok((status.success(), errors))
}

/// Replaces the folder's name in its scripts: those of pip begin with the interpreter's path.
fn rename_within(scripts: &Path, from: &Path, to: &Path) -> Result<(), EnvironmentError> {
    let (from, to) = (from.as_os_str().as_encoded_bytes(), to.as_os_str().as_encoded_bytes());
    for entry in fs::read_dir(scripts).map_err(EnvironmentError::io("read", scripts))? {
        let path = entry.map_err(EnvironmentError::io("read", scripts))?.path();
        let found = fs::symlink_metadata(&path).map_err(EnvironmentError::io("read", &path))?;
        // Programs among them are not text, and do not know where they are.
        if !found.is_file() || found.len() > WORDS {
            continue;
        }
        let text = fs::read(&path).map_err(EnvironmentError::io("read", &path))?;
        let renamed = replace(&text, from, to);
        if renamed != text && std::str::from_utf8(&text).is_ok() {
            let mode = found.permissions().mode();
            fs::write(&path, renamed).map_err(EnvironmentError::io("write", &path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                .map_err(EnvironmentError::io("write", &path))?;
        }
    }
    Ok(())
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        renamed.extend_from_slice(&rest[..at]);
        renamed.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    renamed.extend_from_slice(rest);
    renamed
}

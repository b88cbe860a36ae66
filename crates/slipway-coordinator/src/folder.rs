//! The folder of a campaign: its file, its queue, and its results.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use slipway_document::FileError;

/// The folder of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// The lock of a campaign's folder: one coordinator has it, for as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock lasts as long as the descriptor")] File);

/// A lock of an open file description (`F_OFD_SETLK` in fcntl(2)): unlike one of flock(2), it can be asked for.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the constants are 1 and 0; the kernel's structure has short fields"
)]
const WHOLE_FILE: libc::flock = libc::flock {
    l_type: libc::F_WRLCK as libc::c_short,
    l_whence: libc::SEEK_SET as libc::c_short,
    l_start: 0,
    l_len: 0,
    l_pid: 0,
};

/// The reason why a campaign's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another coordinator has the folder.
    #[error(
        "run the campaign in {}: process {pid} runs it\nHint: `slipway campaign status` shows how far it is", path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
        /// The other coordinator, as it wrote itself down.
        pid: String,
    },
    /// There is no campaign.
    #[error("find a campaign in {}: there is none\nHint: `slipway campaign run FILE` starts one", .0.display())]
    Missing(PathBuf),
    /// The folder is another campaign's.
    #[error(
        "run the campaign in {}: the folder is that of another file\nHint: give this campaign another `campaign:` name or `storage:`", .0.display()
    )]
    Other(PathBuf),
}

impl Folder {
    /// The folder of a campaign that was run before.
    ///
    /// # Errors
    /// [`FolderError::Missing`] where none was.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let folder = Self(path.to_owned());
        if folder.file().is_file() { Ok(folder) } else { Err(FolderError::Missing(folder.0)) }
    }

    /// Makes the folder of a campaign with this file, or opens the one that has the same.
    ///
    /// # Errors
    /// [`FolderError::Other`] where the folder has a campaign with another file.
    pub fn create(path: &Path, text: &str) -> Result<Self, FolderError> {
        let folder = Self(path.to_owned());
        for part in [path.to_owned(), folder.inputs(), folder.objects(), folder.tables(), folder.runs()] {
            fs::create_dir_all(&part).map_err(FileError::of("make", &part))?;
        }
        // Inputs and results may be anybody's secret, and a socket in there takes orders.
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(FileError::of("protect", path))?;
        let file = folder.file();
        match fs::read_to_string(&file) {
            Ok(before) if before == text => Ok(folder),
            Ok(_) => Err(FolderError::Other(folder.0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let fresh = path.join("campaign.yaml.new");
                fs::write(&fresh, text)
                    .and_then(|()| fs::rename(&fresh, &file))
                    .map_err(FileError::of("write", &file))?;
                Ok(folder)
            }
            Err(error) => Err(FileError::of("read", &file)(error).into()),
        }
    }

    /// Takes the folder for this process.
    ///
    /// # Errors
    /// [`FolderError::Taken`] where another coordinator lives.
    pub fn lock(&self) -> Result<Lock, FolderError> {
        let path = self.0.join("lock");
        let io = |doing| FileError::of(doing, &path);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(io("open"))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&WHOLE_FILE)) {
            Ok(_) => {}
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
                let mut pid = String::new();
                (&file).take(20).read_to_string(&mut pid).map_err(io("read"))?;
                return Err(FolderError::Taken { path: self.0.clone(), pid });
            }
            Err(error) => return Err(io("lock")(error.into()).into()),
        }
        let pid = std::process::id().to_string();
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(io("write"))?;
        Ok(Lock(file))
    }

    /// Whether a coordinator runs the campaign now. The lab of one that was killed may hold the lock still.
    ///
    /// # Errors
    /// An error of the file system, where the lock cannot be read.
    pub fn is_running(&self) -> Result<bool, FolderError> {
        let path = self.0.join("lock");
        let io = |doing| FileError::of(doing, &path);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(io("open")(source).into()),
        };
        // To ask for the lock does not take it, so nobody else is refused meanwhile.
        let mut found = WHOLE_FILE;
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).map_err(|error| io("ask for the lock of")(error.into()))?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            return Ok(false);
        }
        let mut pid = String::new();
        file.take(20).read_to_string(&mut pid).map_err(io("read"))?;
        // A coordinator that has just taken the lock has yet to write its number, and lives.
        let pid = pid.parse().ok().and_then(Pid::from_raw);
        Ok(pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH)))
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The campaign file, as it was when the campaign began.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.0.join("campaign.yaml")
    }

    /// The queue and the records of results.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.0.join("campaign.db")
    }

    /// The folder that a worker finds its socket in, by the worker's number from 1. A folder, since a socket that is made
    /// anew is another file, and a mount of the old one would stay.
    #[must_use]
    pub fn call(&self, worker: u32) -> PathBuf {
        self.0.join("call").join(worker.to_string())
    }

    /// The socket on which the coordinator answers a worker.
    #[must_use]
    pub fn socket(&self, worker: u32) -> PathBuf {
        self.call(worker).join("socket")
    }

    /// The file that leads workers on other machines to the coordinator.
    #[must_use]
    pub fn invitation(&self) -> PathBuf {
        self.0.join("join.json")
    }

    /// The folder with the words of workers' jobs.
    #[must_use]
    pub fn jobs(&self) -> PathBuf {
        self.0.join("jobs")
    }

    /// Makes the folders of a worker.
    ///
    /// # Errors
    /// Where they cannot be made.
    pub fn make_worker(&self, worker: u32) -> Result<(), FolderError> {
        for path in [self.call(worker), self.work(worker).join("out")] {
            fs::create_dir_all(&path).map_err(FileError::of("make", &path))?;
        }
        Ok(())
    }

    /// The inputs of all points.
    #[must_use]
    pub fn inputs(&self) -> PathBuf {
        self.0.join("inputs")
    }

    /// The scripts that run an engine.
    #[must_use]
    pub fn engine(&self) -> PathBuf {
        self.0.join("engine")
    }

    /// The folder that one worker writes to, by the worker's number from 1.
    #[must_use]
    pub fn work(&self, worker: u32) -> PathBuf {
        self.0.join("work").join(worker.to_string())
    }

    /// Files of results, by digest.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }

    /// Records of runs: one file for each.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    /// The last words of the optimiser of a search.
    #[must_use]
    pub fn optimiser(&self) -> PathBuf {
        self.0.join("optimiser.log")
    }

    /// Extracted results, in Parquet.
    #[must_use]
    pub fn tables(&self) -> PathBuf {
        self.0.join("tables")
    }
}

//! The output of a node's own program: two files in the lab's folder, the newer of which is written.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Longest either file becomes, bytes.
pub(crate) const KEPT: u64 = 1024 * 1024;

pub(crate) fn current(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.log"))
}

pub(crate) fn older(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.log.1"))
}

/// Reads what a node's own program printed, from the oldest that is kept.
#[derive(Debug)]
pub struct NodeLog {
    path: PathBuf,
    /// To be read, in order.
    files: Vec<File>,
    bell: Option<OwnedFd>,
}

impl NodeLog {
    pub(crate) fn open(folder: &Path, node: &str, bell: Option<OwnedFd>) -> io::Result<Self> {
        let path = current(folder, node);
        // The newer first: it may become the older meanwhile, and is not to be read twice.
        let newer = opened(&path)?;
        let before = opened(&older(folder, node))?.map(|file| Ok::<_, io::Error>((file.metadata()?.ino(), file)));
        let newer_is = newer.as_ref().map(|file| file.metadata().map(|data| data.ino())).transpose()?;
        let before = before.transpose()?.filter(|(inode, _)| Some(*inode) != newer_is).map(|(_, file)| file);
        Ok(Self { path, files: before.into_iter().chain(newer).collect(), bell })
    }

    /// Adds what there is now.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let newest = opened(&self.path)?;
            // Read all that was written to the last file before another took its place.
            for file in &mut self.files {
                file.read_to_end(into)?;
            }
            // The last stays open: there may be more in it.
            self.files.drain(..self.files.len().saturating_sub(1));
            let Some(newest) = newest else { return Ok(()) };
            if let Some(last) = self.files.last()
                && last.metadata()?.ino() == newest.metadata()?.ino()
            {
                return Ok(());
            }
            self.files = vec![newest];
        }
    }

    /// Waits until there is more. False when nothing more can come.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn wait(&self) -> io::Result<bool> {
        let Some(bell) = &self.bell else { return Ok(false) };
        let mut rung = [0; 4096];
        loop {
            match rustix::io::read(bell, &mut rung) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other? > 0),
            }
        }
    }
}

fn opened(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

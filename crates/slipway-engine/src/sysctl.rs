//! Kernel settings of a network namespace, tried where nobody lives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kernel's answer to a setting.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It took the value.
    Good,
    /// It has no such setting here.
    Missing,
    /// It did not take the value.
    Refused(io::Error),
}

/// Writes a value in the namespace that this thread is in. Settings of System V IPC are left alone: they would be the
/// machine's own.
pub(crate) fn attempt(name: &str, value: &str) -> Verdict {
    let path = path(name);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Verdict::Missing,
        Err(_) => return Verdict::Good,
        Ok(_) => {}
    }
    if !name.starts_with("net.") {
        return Verdict::Good;
    }
    match fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
    {
        Err(error) if error.kind() != io::ErrorKind::ReadOnlyFilesystem => Verdict::Refused(error),
        _ => Verdict::Good,
    }
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

//! Recordings: a folder of files, or one text with all of them.
//!
//! In the text, `=== PATH` begins a file or, where the path ends with `/`, names a folder. A line of a file that begins with `=` or `\`
//! has a `\` before it.

use std::fs;
use std::io;
use std::path::Path;

use slipway_document::FileError;

use super::source::Recording;

const HEADING: &str = "=== ";

/// A recording that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is something already.
    #[error("write {0}: it is there already\nHint: name a file or folder that is not")]
    There(String),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Recording {
    /// Reads a recording in one text. `None` for anything else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut recording = Self::default();
        let mut current: Option<(String, Vec<u8>)> = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(path) = line.strip_prefix(HEADING.as_bytes()) {
                let path = String::from_utf8_lossy(path).trim_end().to_owned();
                if !is_path(&path) {
                    return None;
                }
                recording.0.extend(current.replace((path, Vec::new())));
            } else if let Some((_, content)) = &mut current {
                content.extend(line.strip_prefix(b"\\").unwrap_or(line));
            } else if !line.starts_with(b"#") && !line.trim_ascii().is_empty() {
                return None;
            }
        }
        recording.0.extend(current);
        (!recording.0.is_empty()).then_some(recording)
    }

    /// The recording as one text.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (path, content) in self.0.iter().filter(|(path, _)| !self.is_implied(path)) {
            text.extend(HEADING.as_bytes());
            text.extend(path.as_bytes());
            text.push(b'\n');
            for line in content.split_inclusive(|byte| *byte == b'\n') {
                if line.starts_with(b"=") || line.starts_with(b"\\") {
                    text.push(b'\\');
                }
                text.extend(line);
            }
            if content.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
        }
        text
    }

    /// Writes the recording: one text where the name ends with `.txt`, else a folder of files.
    ///
    /// # Errors
    /// There is something of that name already, or it cannot be written.
    pub fn write(&self, to: &Path) -> Result<(), RecordError> {
        if to.symlink_metadata().is_ok() {
            return Err(RecordError::There(to.display().to_string()));
        }
        if to.extension().is_some_and(|extension| extension == "txt") {
            return Ok(fs::write(to, self.text()).map_err(FileError::of("write", to))?);
        }
        fs::create_dir_all(to).map_err(FileError::of("make", to))?;
        for (path, content) in self.0.iter().filter(|(path, _)| is_path(path)) {
            let file = to.join(path.trim_start_matches('/'));
            write_one(&file, path.ends_with('/'), content).map_err(FileError::of("write", &file))?;
        }
        Ok(())
    }

    /// Whether a folder is known by what is in it.
    fn is_implied(&self, path: &str) -> bool {
        path.ends_with('/') && self.0.range(path.to_owned()..).nth(1).is_some_and(|(next, _)| next.starts_with(path))
    }
}

fn write_one(file: &Path, is_folder: bool, content: &[u8]) -> io::Result<()> {
    if is_folder {
        return fs::create_dir_all(file);
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, content)
}

/// An absolute path that leads nowhere else.
fn is_path(path: &str) -> bool {
    let mut parts = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/').split('/');
    path.starts_with('/') && path.len() <= 4096 && parts.all(|part| !part.is_empty() && part != "." && part != "..")
}

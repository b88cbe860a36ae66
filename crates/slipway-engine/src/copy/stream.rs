//! The stream between node and machine, watched as it passes.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use super::Progress;

/// A tar stream is made of these, bytes (`tar(5)`): a header for every entry, then its content, filled up.
const BLOCK: u64 = 512;

/// Passes bytes on and tells how many.
pub(super) struct Counted<'a, 'b, S> {
    stream: S,
    done: u64,
    total: Option<u64>,
    progress: &'a mut Progress<'b>,
}

impl<'a, 'b, S> Counted<'a, 'b, S> {
    pub(super) fn new(stream: S, total: Option<u64>, progress: &'a mut Progress<'b>) -> Self {
        Self { stream, done: 0, total, progress }
    }

    fn count(&mut self, bytes: usize) -> usize {
        self.done += bytes as u64;
        (self.progress)(self.done, self.total);
        bytes
    }
}

impl<S: Read> Read for Counted<'_, '_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(buffer)?;
        Ok(self.count(bytes))
    }
}

impl<S: Write> Write for Counted<'_, '_, S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.stream.write(buffer)?;
        Ok(self.count(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// About how long the stream of `path` and all below it will be, bytes. What cannot be read counts nothing here: packing
/// it says why.
pub(super) fn length(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let content = if found.is_file() { found.len().next_multiple_of(BLOCK) } else { 0 };
    let below = found.is_dir().then(|| fs::read_dir(path).ok()).flatten();
    BLOCK + content + below.into_iter().flatten().flatten().map(|entry| length(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::pack::pack;

    #[test]
    fn the_length_is_known_beforehand_and_reached_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("sub")).expect("made");
        fs::write(folder.path().join("sub/big"), vec![7; 100_000]).expect("written");
        fs::write(folder.path().join("one"), "x").expect("written");
        std::os::unix::fs::symlink("/", folder.path().join("link")).expect("made");
        let mut last = (0, None);
        let mut progress = |done, total| {
            assert!(done > last.0, "it only grows");
            last = (done, total);
        };
        let total = length(folder.path());
        pack(folder.path(), Counted::new(io::sink(), Some(total), &mut progress)).expect("packed");
        // Two empty blocks end it.
        assert_eq!(last, (total + 2 * BLOCK, Some(total)));
    }
}

//! Holes of sparse files, kept in archives as GNU tar's format 0.1 keeps them. An extended header lists the runs of
//! data. The entry's content is those runs, one behind the other.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// More runs than this are written as fewer, with zeros between: a list of this many fits an extended header.
const MAX_RUNS: usize = 8192;
/// Bytes in a block of `st_blocks` (`stat(2)`).
const SECTOR: u64 = 512;

/// A file's size and its runs of data, in order, each as offset and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// Bytes, holes included.
    pub size: u64,
    /// Offset and length of each run of data, in bytes.
    pub runs: Vec<(u64, u64)>,
}

impl Runs {
    /// The whole file as one run.
    #[must_use]
    pub fn whole(size: u64) -> Self {
        Self { size, runs: if size == 0 { Vec::new() } else { vec![(0, size)] } }
    }

    /// A file's, as they are now. A file system that knows no holes says that all is data.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let mut all = Self::whole(found.len());
        if found.blocks().saturating_mul(SECTOR) >= found.len() {
            return Ok(all);
        }
        all.runs.clear();
        let mut at = 0;
        while at < all.size {
            let data = match seek(file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                data => data?.min(all.size),
            };
            let hole = match seek(file, SeekFrom::Hole(data)) {
                Err(Errno::NXIO) => all.size,
                hole => hole?.min(all.size),
            };
            if all.runs.len() == MAX_RUNS {
                let (start, length) = &mut all.runs[MAX_RUNS - 1];
                *length = hole - *start;
            } else if hole > data {
                all.runs.push((data, hole - data));
            }
            at = hole;
        }
        Ok(all)
    }

    /// As an archive lists them; `None` where the list does not fit the file.
    #[must_use]
    pub fn read(size: u64, list: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(list).ok()?;
        let numbers: Vec<u64> = text
            .split(',')
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let (pairs, rest) = numbers.as_chunks::<2>();
        let mut end = 0;
        for &[offset, length] in pairs {
            if offset < end {
                return None;
            }
            end = offset.checked_add(length)?;
        }
        let fits = rest.is_empty() && end <= size && i64::try_from(size).is_ok();
        let runs = pairs.iter().map(|&[offset, length]| (offset, length)).filter(|&(_, length)| length > 0);
        fits.then(|| Self { size, runs: runs.collect() })
    }

    /// Bytes of data.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.runs.iter().map(|&(_, length)| length).sum()
    }

    /// True for a file with a hole anywhere.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.stored() < self.size
    }

    /// The records of an extended header; none for a file without holes.
    #[must_use]
    pub fn records(&self) -> Vec<(&'static str, String)> {
        if !self.is_sparse() {
            return Vec::new();
        }
        // The last says where the file ends, as GNU tar has it.
        let mut list = String::new();
        for (offset, length) in self.runs.iter().copied().chain([(self.size, 0)]) {
            // Writing to a string cannot fail.
            let _ = write!(list, "{}{offset},{length}", if list.is_empty() { "" } else { "," });
        }
        vec![
            ("GNU.sparse.size", self.size.to_string()),
            ("GNU.sparse.numblocks", (self.runs.len() + 1).to_string()),
            ("GNU.sparse.map", list),
        ]
    }

    /// Reads the data of `file`.
    #[must_use]
    pub fn content<'a>(&'a self, file: &'a File) -> Content<'a> {
        Content { file, runs: &self.runs, done: 0 }
    }
}

/// The data of a file, run by run. It ends early where the file does.
pub struct Content<'a> {
    file: &'a File,
    runs: &'a [(u64, u64)],
    done: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(&(offset, length)) = self.runs.first() else { return Ok(0) };
        let most = buffer.len().min(usize::try_from(length - self.done).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], offset + self.done)?;
        self.done += count as u64;
        if self.done == length {
            (self.runs, self.done) = (&self.runs[1..], 0);
        }
        Ok(count)
    }
}

/// The side of a copy that failed.
#[derive(Debug)]
pub enum Side {
    /// Reading what is copied.
    Content(io::Error),
    /// Writing the file.
    File(io::Error),
}

/// Writes what is read from `content` to an empty file, as `runs` says, or all of it from the beginning on. Gives how many
/// bytes were written.
pub fn write_content(content: &mut impl Read, file: &File, runs: Option<&Runs>) -> Result<u64, Side> {
    let mut file = file;
    let mut buffer = [0; 16 * 1024];
    let Some(runs) = runs else {
        let mut written = 0;
        loop {
            let count = read_some(content, &mut buffer)?;
            if count == 0 {
                return Ok(written);
            }
            file.write_all(&buffer[..count]).map_err(Side::File)?;
            written += count as u64;
        }
    };
    file.set_len(runs.size).map_err(Side::File)?;
    for &(offset, length) in &runs.runs {
        let mut done = 0;
        while done < length {
            let most = buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
            let count = read_some(content, &mut buffer[..most])?;
            if count == 0 {
                return Err(Side::Content(io::ErrorKind::UnexpectedEof.into()));
            }
            file.write_all_at(&buffer[..count], offset + done).map_err(Side::File)?;
            done += count as u64;
        }
    }
    Ok(runs.stored())
}

fn read_some(content: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Side> {
    loop {
        match content.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map_err(Side::Content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_fit_is_refused() {
        let read = |size, list: &str| Runs::read(size, list.as_bytes()).map(|runs| runs.runs);
        assert_eq!(read(100, "0,10,50,0,50,20,100,0"), Some(vec![(0, 10), (50, 20)]));
        assert_eq!(read(0, ""), Some(vec![]));
        for list in ["0", "0,10,5,10", "90,20", "0,-1", "x,1", "0,18446744073709551615,1,18446744073709551615"] {
            assert_eq!(read(100, list), None, "{list}");
        }
        assert_eq!(read(u64::MAX, "0,1"), None);
    }

    #[test]
    fn too_many_runs_become_fewer() {
        let file = tempfile::tempfile().expect("a file");
        for run in 0..MAX_RUNS as u64 + 10 {
            file.write_all_at(b"x", run * 8192).expect("written");
        }
        let runs = Runs::of(&file).expect("read");
        assert!(runs.runs.len() <= MAX_RUNS);
        let last = (MAX_RUNS as u64 + 9) * 8192;
        assert!(runs.runs.last().is_some_and(|&(offset, length)| offset + length > last), "{:?}", runs.runs.last());
        assert_eq!(Runs::read(runs.size, runs.records()[2].1.as_bytes()), Some(runs));
    }
}

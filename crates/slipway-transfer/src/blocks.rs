//! Blocks of a file, cut where its content says, so that an insertion moves few of them (`FastCDC`: Xia and others, 2020).
//!
//! Cutting begins anew at each multiple of [`SEGMENT`] and behind each hole. So both ends cut a segment alike, whatever
//! lies around it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Bytes of a segment, the unit of work of a stream.
pub const SEGMENT: u64 = 8 << 20;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Nothing is stored here: offset and length.
    Hole(u64, u64),
    /// Bytes, and their offset.
    Block(u64, &'a [u8]),
}

/// Segments of a file of `size` bytes.
pub fn segments(size: u64) -> impl Iterator<Item = Range<u64>> {
    (0..size.div_ceil(SEGMENT)).map(move |number| number * SEGMENT..size.min((number + 1) * SEGMENT))
}

/// Length of a block on average, for a file of `size` bytes: a power of two.
#[must_use]
pub fn average(size: u64) -> usize {
    match size {
        0..0x0400_0000 => 16 << 10,
        0x0400_0000..0x1_0000_0000 => 64 << 10,
        _ => 256 << 10,
    }
}

/// Holes and runs of data within `range`, in order, as the file system knows them. Data is `true`.
pub fn runs(
    file: &File,
    range: Range<u64>,
    mut each: impl FnMut(bool, Range<u64>) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let data = match seek(file, SeekFrom::Data(at)) {
            // Behind the last data.
            Err(Errno::NXIO) => range.end,
            // The file system knows no holes.
            Err(Errno::INVAL) => return each(true, at..range.end),
            found => found?.min(range.end),
        };
        if data > at {
            each(false, at..data)?;
        }
        if data == range.end {
            break;
        }
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Err(Errno::NXIO) => range.end,
            found => found?.min(range.end),
        };
        // It was cut short meanwhile.
        if hole <= data {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        each(true, data..hole)?;
        at = hole;
    }
    Ok(())
}

/// Reads one segment of a file of `size` bytes, piece by piece. `buffer` is scratch.
pub fn pieces(
    file: &File,
    segment: Range<u64>,
    size: u64,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(Piece<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let average = average(size);
    runs(file, segment, |is_data, run| {
        let length = run.end - run.start;
        if !is_data {
            return each(Piece::Hole(run.start, length));
        }
        buffer.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        file.read_exact_at(buffer, run.start)?;
        for cut in fastcdc::v2020::FastCDC::new(buffer, average / 4, average, average * 4) {
            each(Piece::Block(run.start + cut.offset as u64, &buffer[cut.offset..cut.offset + cut.length]))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn cut(file: &File) -> Vec<(u64, Vec<u8>)> {
        let size = file.metadata().expect("there").len();
        let (mut found, mut buffer) = (Vec::new(), Vec::new());
        for segment in segments(size) {
            pieces(file, segment, size, &mut buffer, |piece| {
                if let Piece::Block(offset, bytes) = piece {
                    found.push((offset, bytes.to_vec()));
                }
                Ok(())
            })
            .expect("read");
        }
        found
    }

    #[test]
    fn an_insertion_moves_few_blocks() {
        let mut bytes = vec![0; 2 << 20];
        rand::rngs::StdRng::seed_from_u64(1).fill_bytes(&mut bytes);
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&bytes, 0).expect("written");
        let before: HashSet<Vec<u8>> = cut(&file).into_iter().map(|(_, bytes)| bytes).collect();
        file.write_all_at(b"inserted", 1 << 20).expect("written");
        file.write_all_at(&bytes[1 << 20..], (1 << 20) + 8).expect("written");
        let after = cut(&file);
        assert_eq!(after.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), bytes.len() + 8);
        let new = after.iter().filter(|(_, bytes)| !before.contains(bytes)).count();
        assert!(after.len() > 50 && new < 5, "{new} of {}", after.len());
    }

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(64 << 20).expect("grown");
        file.write_all_at(b"data", 32 << 20).expect("written");
        let found = cut(&file);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 32 << 20);
    }
}

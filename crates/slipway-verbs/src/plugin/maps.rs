//! The program's mappings, by `/proc/self/maps` (`proc_pid_maps(5)`).

use super::memory::Piece;

pub(super) const PAGE: usize = 4096;

/// A line of the file.
#[derive(Debug)]
pub(super) struct Line {
    start: usize,
    end: usize,
    is_private: bool,
    inode: u64,
    is_stack: bool,
}

/// The program's mappings, by their addresses.
pub(super) fn lines() -> Vec<Line> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let access = words.next()?;
        let inode = words.nth(2)?.parse().ok()?;
        let name = words.next().unwrap_or_default();
        Some(Line {
            start: usize::from_str_radix(start, 16).ok()?,
            end: usize::from_str_radix(end, 16).ok()?,
            is_private: access == "rw-p",
            inode,
            is_stack: name.starts_with("[stack"),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Whether all pages are the program's own, and of no file. Others are what they are for a reason: their owner serves them.
pub(super) fn is_private(lines: &[Line], pages: Piece) -> bool {
    let last = pages.at + pages.length;
    let mut at = pages.at;
    for line in lines {
        if line.start <= at && at < line.end {
            if !line.is_private || line.inode != 0 || line.is_stack {
                return false;
            }
            at = line.end;
        }
        if at >= last {
            return true;
        }
    }
    false
}

/// The parts of these pages where the file with this number is still mapped.
pub(super) fn shared_parts(lines: &[Line], pages: Piece, inode: u64) -> Vec<Piece> {
    let (first, last) = (pages.at, pages.at + pages.length);
    let ours = |line: &&Line| line.inode == inode && !line.is_private;
    let part = |line: &Line| {
        let (start, end) = (line.start.max(first), line.end.min(last));
        (start < end).then(|| Piece { at: start, length: end - start })
    };
    lines.iter().filter(ours).filter_map(part).collect()
}

/// Whether all of these pages are on the file with this number.
pub(super) fn is_shared(lines: &[Line], pages: Piece, inode: u64) -> bool {
    shared_parts(lines, pages, inode).iter().map(|it| it.length).sum::<usize>() == pages.length
}

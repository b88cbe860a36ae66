//! Memory of programs, mapped for the device. The gateway itself neither reads nor writes it.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::Part;
use crate::layout::SIZED;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Bytes of a block, as `stat(2)` counts them.
const BLOCK: u64 = 512;
/// `TMPFS_MAGIC` (`include/uapi/linux/magic.h`).
const TMPFS: i64 = 0x0102_1994;

/// Whether a file is of ordinary pages of memory, so that no call on it waits for anybody. Only files of memory have seals, and
/// those of huge pages are others: the kernel maps more of them than it is asked to.
pub(super) fn is_memory(file: &impl AsFd) -> bool {
    #[allow(clippy::useless_conversion, reason = "another type on other processors")]
    let is_ordinary = |kind| i64::from(kind) == TMPFS;
    fcntl_get_seals(file).is_ok() && fstatfs(file).is_ok_and(|about| is_ordinary(about.f_type))
}

/// Parts of files that follow one another in memory, until this is dropped.
#[derive(Debug)]
pub(super) struct Pages {
    at: usize,
    length: usize,
}

impl Pages {
    /// Maps parts, whose lengths are `length` in all. A file that could become shorter is refused, and so is one that is.
    pub(super) fn new(parts: &[Part], files: &[OwnedFd], length: u64) -> Result<Self, Errno> {
        if parts.len() != files.len() || length == 0 {
            return Err(Errno::INVAL);
        }
        let mut sum = 0_u64;
        for (part, file) in parts.iter().zip(files) {
            if !is_memory(file) {
                return Err(Errno::BADF);
            }
            let (seals, about) = (fcntl_get_seals(file)?, fstat(file)?);
            let size = u64::try_from(about.st_size).map_err(|_| Errno::INVAL)?;
            // Pages that nobody has touched would be the gateway's to pay for.
            if u64::try_from(about.st_blocks).map_err(|_| Errno::INVAL)? * BLOCK < size {
                return Err(Errno::INVAL);
            }
            let end = part.offset.checked_add(part.length).ok_or(Errno::INVAL)?;
            let is_whole = part.length > 0 && part.length.is_multiple_of(PAGE) && part.offset.is_multiple_of(PAGE);
            if !is_whole || end > size || !seals.contains(SIZED) {
                return Err(Errno::INVAL);
            }
            sum = sum.checked_add(part.length).ok_or(Errno::INVAL)?;
        }
        if sum != length {
            return Err(Errno::INVAL);
        }
        let length = usize::try_from(length).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the kernel chooses the place.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let pages = Self { at: at.addr(), length };
        let mut next = pages.at;
        for (part, file) in parts.iter().zip(files) {
            let length = usize::try_from(part.length).map_err(|_| Errno::NOMEM)?;
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            // SAFETY: within the place of before, which nothing else uses.
            unsafe { mmap(next as *mut _, length, access, flags, file.as_fd(), part.offset) }?;
            next += length;
        }
        Ok(pages)
    }

    /// The first byte.
    pub(super) fn start(&self) -> usize {
        self.at
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody refers to it: the device has let go.
        let _ = unsafe { munmap(self.at as *mut _, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("pages", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn parts_follow_one_another_and_a_file_that_may_shrink_is_refused() {
        let files = [file(2 * PAGE, SIZED), file(PAGE, SIZED)];
        let whole = [Part { offset: PAGE, length: PAGE }, Part { offset: 0, length: PAGE }];
        assert!(Pages::new(&whole, &files, 2 * PAGE).is_ok());
        for (parts, length) in [
            (vec![whole[0]], PAGE),
            (whole.to_vec(), PAGE),
            (vec![Part { offset: PAGE, length: 2 * PAGE }, whole[1]], 3 * PAGE),
            (vec![Part { offset: u64::MAX - 4095, length: PAGE }, whole[1]], 2 * PAGE),
            (vec![Part { offset: 1, length: PAGE }, whole[1]], 2 * PAGE),
            (vec![Part { offset: 0, length: 0 }, whole[1]], PAGE),
            (vec![], 0),
        ] {
            assert!(Pages::new(&parts, &files, length).is_err(), "{parts:?}");
        }
        let parts = [Part { offset: 0, length: PAGE }];
        assert!(Pages::new(&parts, &[file(PAGE, SealFlags::GROW)], PAGE).is_err());
        let sparse = memfd_create("pages", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&sparse, PAGE).unwrap();
        fcntl_add_seals(&sparse, SIZED).unwrap();
        assert!(Pages::new(&parts, &[sparse], PAGE).is_err());
        // Without huge pages on this machine, making the file succeeds all the same.
        let huge =
            memfd_create("pages", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB).unwrap();
        assert!(!is_memory(&huge));
        let ordinary = tempfile::tempfile().unwrap();
        ordinary.set_len(PAGE).unwrap();
        assert!(Pages::new(&parts, &[ordinary.into()], PAGE).is_err());
    }
}

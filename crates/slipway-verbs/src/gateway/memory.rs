//! Memory of programs, mapped for the device. The gateway itself neither reads nor writes it.

#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::Part;
use crate::layout::SIZED;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

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
            // Only files of memory have seals.
            let seals = fcntl_get_seals(file).map_err(|_| Errno::BADF)?;
            let size = u64::try_from(fstat(file)?.st_size).map_err(|_| Errno::INVAL)?;
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
        ftruncate(&file, bytes).unwrap();
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
        let ordinary = tempfile::tempfile().unwrap();
        ordinary.set_len(PAGE).unwrap();
        assert!(Pages::new(&parts, &[ordinary.into()], PAGE).is_err());
    }
}

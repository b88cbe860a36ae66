//! Memory that outlives the process that writes it.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// Words that every process has in common that maps this file. A value that one process has stored is there for the
/// others, however that process ends.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl Words {
    /// A file of so many words, all zero, that never has fewer or more. It takes no memory until something is stored.
    ///
    /// # Errors
    /// As `memfd_create(2)`.
    pub fn file(name: &str, count: usize) -> io::Result<OwnedFd> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (count * size_of::<u64>()) as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(file)
    }

    /// Maps such a file, which may be closed then.
    ///
    /// # Errors
    /// `InvalidInput` where it is another; as `mmap(2)`.
    #[allow(unsafe_code)]
    pub fn map(file: &OwnedFd) -> io::Result<Self> {
        let bytes = usize::try_from(fstat(file)?.st_size).unwrap_or_default();
        if bytes == 0 || !fcntl_get_seals(file)?.contains(SEALS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses, touches no memory that there is.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        Ok(Self { start: start.ok_or_else(io::Error::last_os_error)?, count: bytes / size_of::<u64>() })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: so many words were mapped, at a page's start, and are until this is dropped; the file is sealed at its size, so
        // that all of them can be reached; any bits are an `AtomicU64`, and nothing refers to them otherwise.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and whoever borrowed it did so from `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

// SAFETY: it owns its mapping, which belongs to no thread, and all that is done to it is atomic.
#[allow(unsafe_code)]
unsafe impl Send for Words {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Words {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_stores_the_next_finds() {
        let file = Words::file("test", 1000).expect("a file");
        let words = Words::map(&file).expect("mapped");
        assert_eq!(words.len(), 1000);
        words[999].store(7, Ordering::Release);
        drop(words);
        let words = Words::map(&file).expect("mapped again");
        assert_eq!((words[0].load(Ordering::Acquire), words[999].load(Ordering::Acquire)), (0, 7));
    }

    #[test]
    fn no_other_file_will_do() {
        let plain = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        ftruncate(&plain, 4096).expect("longer");
        assert!(Words::map(&plain).is_err(), "it could shrink");
        assert!(Words::map(&std::fs::File::open("/dev/null").expect("there").into()).is_err());
        let file = Words::file("test", 8).expect("a file");
        ftruncate(&file, 0).expect_err("it cannot shrink");
    }
}

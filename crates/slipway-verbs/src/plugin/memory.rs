//! Memory by address: what a program registers, and what it shares with peers.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

/// A piece of the program's own memory. Its maker has checked it against a registration, or copied the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) length: usize,
}

/// Shared pages, mapped until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: usize,
    length: usize,
}

impl Mapping {
    /// Maps the first `length` bytes of a file. The caller has checked that the file is that long, and stays so.
    pub(crate) fn new(file: impl AsFd, length: usize, is_writable: bool) -> Result<Self, Errno> {
        let access = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the place, so nothing else is mapped over.
        let at = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at: at.addr(), length })
    }

    /// Maps pages that no other process has. Those that are never touched take no memory.
    pub(super) fn private(length: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing else is mapped over.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE) }?;
        Ok(Self { at: at.addr(), length })
    }

    /// Pages that no other process has, with the content of these.
    pub(super) fn copy_of(pages: Piece) -> Result<Self, Errno> {
        let own = Self::private(pages.length)?;
        copy(pages.at, own.at, pages.length);
        Ok(own)
    }

    /// Puts the pages in the place of shared ones.
    pub(super) fn move_over(self, pages: Piece) -> Result<(), Errno> {
        // SAFETY: the pages move over shared ones that `map_over` made, which have the same content.
        unsafe {
            mremap_fixed(self.at as *mut _, self.length, pages.length, MremapFlags::MAYMOVE, pages.at as *mut _)
        }?;
        std::mem::forget(self);
        Ok(())
    }

    /// The address of `length` bytes at an offset; none where they are not all within.
    pub(crate) fn piece(&self, offset: usize, length: usize) -> Option<Piece> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(Piece { at: self.at + offset, length })
    }

    /// A word of the first page.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.length && offset.is_multiple_of(4), "a word of the layout");
        // SAFETY: within the mapping, aligned, and mapped as long as the reference lives. All access is atomic.
        unsafe { AtomicU32::from_ptr((self.at + offset) as *mut u32) }
    }

    /// A word of the first page.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.length && offset.is_multiple_of(8), "a word of the layout");
        // SAFETY: as for `word32`.
        unsafe { AtomicU64::from_ptr((self.at + offset) as *mut u64) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; references into it borrow this value.
        let _ = unsafe { munmap(self.at as *mut _, self.length) };
    }
}

/// Copies between two places that may be the same. A peer may write either at once: then the bytes are any, and no more.
pub(crate) fn copy(from: usize, to: usize, length: usize) {
    // SAFETY: both places are a `Piece` of a registration or of a `Mapping`. A program that frees registered memory gets the
    // fault here that its device would report.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, length) };
}

/// Most pieces of one call: those of a request, and a header.
const PIECES: usize = 18;

/// Pieces as the kernel takes them, as many as a call takes.
fn list(pieces: impl Iterator<Item = Piece>) -> ([libc::iovec; PIECES], usize) {
    let mut list = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
    let mut count = 0;
    for (place, piece) in list.iter_mut().zip(pieces.filter(|it| it.length > 0)) {
        *place = libc::iovec { iov_base: piece.at as *mut _, iov_len: piece.length };
        count += 1;
    }
    (list, count)
}

fn message(list: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: numbers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = list.as_mut_ptr();
    message.msg_iovlen = list.len();
    message
}

/// The bytes that a call moved; none where it would have to wait.
fn moved(result: isize) -> Result<Option<usize>, Errno> {
    match usize::try_from(result) {
        Ok(moved) => Ok(Some(moved)),
        Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::AGAIN | Errno::INTR => Ok(None),
            errno => Err(errno),
        },
    }
}

/// Sends pieces by a stream, as far as there is room. The kernel refuses pieces that are not mapped (`EFAULT`).
pub(super) fn send(stream: BorrowedFd<'_>, pieces: impl Iterator<Item = Piece>) -> Result<Option<usize>, Errno> {
    let (mut list, count) = list(pieces);
    let message = message(&mut list[..count]);
    // SAFETY: the kernel reads from pieces, as `copy` does.
    moved(unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Receives from a stream into pieces. 0 bytes are its end.
pub(super) fn receive(stream: BorrowedFd<'_>, pieces: impl Iterator<Item = Piece>) -> Result<Option<usize>, Errno> {
    let (mut list, count) = list(pieces);
    let mut message = message(&mut list[..count]);
    // SAFETY: the kernel writes to pieces, as `copy` does.
    moved(unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

/// Copies bytes out of a piece.
pub(crate) fn load<const N: usize>(from: Piece) -> [u8; N] {
    let mut bytes = [0; N];
    copy(from.at, bytes.as_mut_ptr() as usize, N.min(from.length));
    bytes
}

/// Copies bytes to a place.
pub(super) fn store(bytes: &[u8], to: Piece) {
    copy(bytes.as_ptr() as usize, to.at, bytes.len().min(to.length));
}

/// Publishes the end of a message: bytes that were copied before are visible to whoever sees the last one.
///
/// The last 8 or 4 bytes become visible as one where they are aligned, since programs poll a word there.
pub(super) fn store_last(from: usize, to: usize, length: usize) {
    match length {
        8 if to.is_multiple_of(8) => {
            let mut bytes = [0; 8];
            copy(from, bytes.as_mut_ptr() as usize, 8);
            // SAFETY: aligned, and a piece as for `copy`.
            unsafe { AtomicU64::from_ptr(to as *mut u64) }.store(u64::from_ne_bytes(bytes), Ordering::Release);
        }
        4 if to.is_multiple_of(4) => {
            let mut bytes = [0; 4];
            copy(from, bytes.as_mut_ptr() as usize, 4);
            // SAFETY: as above.
            unsafe { AtomicU32::from_ptr(to as *mut u32) }.store(u32::from_ne_bytes(bytes), Ordering::Release);
        }
        _ => {
            copy(from, to, length - 1);
            let mut last = [0];
            copy(from + length - 1, last.as_mut_ptr() as usize, 1);
            // SAFETY: a piece as for `copy`.
            unsafe { AtomicU8::from_ptr((to + length - 1) as *mut u8) }.store(last[0], Ordering::Release);
        }
    }
}

/// An operation on a 64-bit word that is one for all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Atomic {
    Add(u64),
    Swap { compare: u64, with: u64 },
}

/// Carries an operation out, and gives the word before. `None` where the place is not aligned.
pub(super) fn atomic(at: Piece, operation: Atomic) -> Option<u64> {
    if at.length < 8 || !at.at.is_multiple_of(8) {
        return None;
    }
    // SAFETY: aligned, and a piece as for `copy`.
    let word = unsafe { AtomicU64::from_ptr(at.at as *mut u64) };
    Some(match operation {
        Atomic::Add(by) => word.fetch_add(by, Ordering::SeqCst),
        Atomic::Swap { compare, with } => {
            match word.compare_exchange(compare, with, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(before) | Err(before) => before,
            }
        }
    })
}

/// Puts a file, from this offset on, in the place of pages that have the same content.
pub(super) fn map_over(pages: Piece, file: impl AsFd, offset: u64) -> Result<(), Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
    // SAFETY: the pages are anonymous ones of a region that the program has registered, so it expects a device to write there.
    unsafe { mmap(pages.at as *mut _, pages.length, access, flags, file, offset) }?;
    Ok(())
}

/// Puts pages of the program's own in the place of shared ones, with the same content.
pub(super) fn map_back(pages: Piece) -> Result<(), Errno> {
    Mapping::copy_of(pages)?.move_over(pages)
}

/// Bytes of the program's memory, to write them into a file.
pub(super) fn bytes<'a>(piece: Piece) -> &'a [u8] {
    // SAFETY: the program has registered the piece. It is read by `write(2)` alone, which takes whatever is there.
    unsafe { std::slice::from_raw_parts(piece.at as *const u8, piece.length) }
}

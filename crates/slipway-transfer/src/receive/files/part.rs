//! Bytes of an incomplete file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

use super::Files;
use crate::blocks::SEGMENT;
use crate::message::LARGEST_DATA;
use crate::receive::incoming::{Incoming, Part};

impl Files<'_> {
    /// The incomplete file.
    pub(super) fn part(&self, incoming: &Incoming) -> io::Result<Arc<Part>> {
        let mut part = incoming.part.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = &*part {
            return Ok(part.clone());
        }
        let goes_on = incoming.goes_on.load(Ordering::Acquire);
        // One that comes in one piece grows to its size by itself.
        let in_one_piece = !goes_on && incoming.size <= LARGEST_DATA as u64;
        let unnamed = if in_one_piece { self.tree.unnamed(&incoming.meta)? } else { None };
        let opened = if let Some((file, birth)) = unnamed {
            Part { file, unnamed: Some(birth) }
        } else {
            let left = if goes_on { self.tree.left_part(&incoming.path)? } else { None };
            let file = match left {
                Some(left) => left,
                None if goes_on => return Err(io::ErrorKind::NotFound.into()),
                None => self.tree.fresh_part(&incoming.path)?,
            };
            Part { file, unnamed: None }
        };
        if !in_one_piece {
            opened.file.set_len(incoming.size)?;
        }
        Ok(part.insert(Arc::new(opened)).clone())
    }

    pub(super) fn hole(&self, incoming: &Incoming, offset: u64, length: u64) -> io::Result<()> {
        let part = &self.part(incoming)?.file;
        if incoming.goes_on.load(Ordering::Acquire) {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(part, how, offset, length) {
                Err(Errno::NOTSUP) => zeros(part, offset, length)?,
                other => other?,
            }
        } else if incoming.size <= LARGEST_DATA as u64 {
            part.set_len(incoming.size)?;
        }
        Ok(())
    }

    pub(super) fn copy(
        &self,
        incoming: &Incoming,
        offset: u64,
        from: u64,
        length: u32,
        hash: [u8; 32],
    ) -> io::Result<()> {
        if length as usize > LARGEST_DATA {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let old = {
            let mut old = incoming.old.lock().unwrap_or_else(PoisonError::into_inner);
            match &*old {
                Some(old) => old.clone(),
                None => old.insert(Arc::new(self.tree.old(&incoming.path)?)).clone(),
            }
        };
        let mut bytes = vec![0; length as usize];
        old.read_exact_at(&mut bytes, from)?;
        if blake3::hash(&bytes) != blake3::Hash::from_bytes(hash) {
            return Err(io::Error::other("the older version changed meanwhile; run the same command again"));
        }
        self.part(incoming)?.file.write_all_at(&bytes, offset)
    }

    /// Has the disk begin with a segment that is whole, so that little is left to wait for at the end.
    pub(super) fn begin_to_store(&self, part: &Part, end: u64) {
        let Some(start) = end.checked_sub(SEGMENT).filter(|_| self.sync && end.is_multiple_of(SEGMENT)) else { return };
        // The kernel may forget the pages once they are on the disk, which is a hint like any advice.
        let _ = rustix::fs::fadvise(&part.file, start, std::num::NonZeroU64::new(SEGMENT), Advice::DontNeed);
    }
}

fn zeros(file: &File, mut offset: u64, mut length: u64) -> io::Result<()> {
    let zeros = [0; 8 << 10];
    while length > 0 {
        let most = length.min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(most).unwrap_or(0)], offset)?;
        (offset, length) = (offset + most, length - most);
    }
    Ok(())
}

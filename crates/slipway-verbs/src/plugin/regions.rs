//! Registered memory: what requests may name, and which whole pages peers may map.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

use super::maps::{PAGE, is_private, lines, shared_parts};
use super::memory::{Piece, bytes, map_back, map_over};
use super::pages::Taken;
use crate::layout::SIZED;
use crate::wire::{Object, Proof, Region, Shared};

/// Flags of `enum ibv_access_flags`.
pub(super) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const MW_BIND: u32 = 1 << 4;
    pub(crate) const ZERO_BASED: u32 = 1 << 5;
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
    pub(crate) const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) region: Region,
    pub(super) domain: u32,
    /// The broker's, for the one after it.
    pub(super) proof: Proof,
    /// Where it begins in the program, whatever requests call it.
    at: usize,
    pages: Option<(Piece, u64)>,
    /// The pages that the gateway maps, where it knows the region. They are the program's own again when this is dropped.
    outside: Option<Taken>,
}

impl Registered {
    /// A region that the gateway has registered, too. Peers within the lab ask its owner.
    pub(super) fn outside(region: Region, (domain, proof): (u32, Proof), at: usize, pages: Taken) -> Self {
        Self { region, domain, proof, at, pages: None, outside: Some(pages) }
    }
}

/// Regions of a device by key.
#[derive(Debug, Default)]
pub(super) struct Regions(HashMap<u32, Registered>);

impl Regions {
    pub(super) fn insert(&mut self, key: u32, registered: Registered) {
        self.0.insert(key, registered);
    }

    /// Ends a registration. Pages that peers could map become the program's own again.
    pub(super) fn remove(&mut self, key: u32) -> Option<()> {
        let gone = self.0.remove(&key)?;
        if let Some((pages, inode)) = gone.pages {
            // The program may have unmapped some, and mapped others there: those are not touched.
            for part in shared_parts(&lines(), pages, inode) {
                let _ = map_back(part);
            }
        }
        Some(())
    }

    /// Whether the gateway has registered a region, so that requests to peers outside of the lab may name it.
    pub(super) fn is_outside(&self, key: u32) -> bool {
        self.0.get(&key).is_some_and(|it| it.outside.is_some())
    }

    /// All regions, as brokers name them, with their proofs.
    pub(super) fn objects(&self) -> Vec<(Object, Proof)> {
        let named =
            |(&key, it): (&u32, &Registered)| (Object::Region { key, domain: it.domain, region: it.region }, it.proof);
        self.0.iter().map(named).collect()
    }

    /// The bytes that a request names; none where they are not all in a region of the domain, with this access.
    pub(super) fn find(&self, key: u32, domain: u32, address: u64, length: usize, needed: u32) -> Option<Piece> {
        let found = self.0.get(&key).filter(|it| it.domain == domain && it.region.access & needed == needed)?;
        let offset = address.checked_sub(found.region.start)?;
        let end = offset.checked_add(u64::try_from(length).ok()?)?;
        let at = found.at + usize::try_from(offset).ok()?;
        (end <= found.region.length).then_some(Piece { at, length })
    }
}

/// Prepares memory for its registration. Whole pages of a remote region go onto a file that peers may map.
pub(super) fn prepare(memory: Piece, start: u64, access: u32, domain: u32) -> (Registered, Option<OwnedFd>) {
    let mut region = Region { start, length: memory.length as u64, access, shared: None };
    let mut pages = None;
    let mut file = None;
    if access & access::REMOTE != 0 && start % PAGE as u64 == (memory.at % PAGE) as u64 {
        let first = memory.at.next_multiple_of(PAGE);
        let last = (memory.at + memory.length) / PAGE * PAGE;
        if let Some(length) = last.checked_sub(first).filter(|it| *it > 0)
            && is_private(&lines(), Piece { at: first, length })
            && let Ok((shared, inode)) = share(Piece { at: first, length }, access)
        {
            region.shared = Some(Shared { start: start + (first - memory.at) as u64, length: length as u64 });
            pages = Some((Piece { at: first, length }, inode));
            file = Some(shared);
        }
    }
    (Registered { region, domain, proof: Proof::default(), at: memory.at, pages, outside: None }, file)
}

/// Moves pages onto a file. Where the region is not for writing, nobody can map the file to write any more.
fn share(pages: Piece, access: u32) -> Result<(OwnedFd, u64), Errno> {
    let file = memfd_create("slipway-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut done = 0;
    while done < pages.length {
        let rest = Piece { at: pages.at + done, length: pages.length - done };
        match rustix::io::retry_on_intr(|| rustix::io::write(&file, bytes(rest)))? {
            0 => return Err(Errno::IO),
            written => done += written,
        }
    }
    ftruncate(&file, pages.length as u64)?;
    map_over(pages, file.as_fd(), 0)?;
    let is_for_writing = access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    let seals = if is_for_writing { SIZED } else { SIZED | SealFlags::FUTURE_WRITE };
    fcntl_add_seals(&file, seals | SealFlags::SEAL)?;
    let inode = rustix::fs::fstat(&file)?.st_ino;
    Ok((file, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(length: usize, access: u32) -> (Vec<u8>, Registered, Option<OwnedFd>) {
        let mut memory = vec![7; length];
        let at = memory.as_mut_ptr() as usize;
        let (registered, file) = prepare(Piece { at, length }, at as u64, access, 1);
        (memory, registered, file)
    }

    #[test]
    fn only_whole_pages_of_remote_regions_are_shared_and_come_back_as_they_were() {
        let (_local, _, file) = registered(1 << 20, access::LOCAL_WRITE);
        assert!(file.is_none());
        let (mut memory, registered, file) = registered(1 << 20, access::LOCAL_WRITE | access::REMOTE_WRITE);
        let shared = registered.region.shared.unwrap();
        assert!(shared.start >= registered.region.start && shared.length <= registered.region.length);
        assert!(shared.start.is_multiple_of(PAGE as u64) && shared.length.is_multiple_of(PAGE as u64));
        let file = file.unwrap();
        memory[500_000] = 9;
        let mut regions = Regions::default();
        regions.insert(5, registered);
        regions.remove(5).unwrap();
        rustix::io::pwrite(&file, &[1; 4096], 0).unwrap();
        memory[500_000] -= 2;
        assert!(memory.iter().all(|byte| *byte == 7), "what the file says is the program's no more");
    }

    #[test]
    fn a_region_for_reading_cannot_be_mapped_for_writing() {
        let (_memory, registered, file) = registered(1 << 20, access::REMOTE_READ);
        let length = usize::try_from(registered.region.shared.unwrap().length).unwrap();
        let file = file.unwrap();
        assert!(super::super::memory::Mapping::new(&file, length, true).is_err());
        assert!(super::super::memory::Mapping::new(&file, length, false).is_ok());
    }

    #[test]
    fn requests_reach_nothing_outside_of_a_region_or_beyond_its_access() {
        let (memory, registered, _) = registered(10_000, access::LOCAL_WRITE | access::REMOTE_READ);
        let start = memory.as_ptr() as u64;
        let mut regions = Regions::default();
        regions.insert(5, registered);
        assert_eq!(
            regions.find(5, 1, start + 1, 9_999, 0),
            Some(Piece { at: memory.as_ptr() as usize + 1, length: 9_999 })
        );
        for (key, domain, address, length, access) in [
            (6, 1, start, 1, 0),
            (5, 2, start, 1, 0),
            (5, 1, start - 1, 1, 0),
            (5, 1, start, 10_001, 0),
            (5, 1, u64::MAX, 1, 0),
            (5, 1, start + 1, usize::MAX, 0),
            (5, 1, start, 1, access::REMOTE_WRITE),
        ] {
            assert_eq!(regions.find(key, domain, address, length, access), None);
        }
    }
}

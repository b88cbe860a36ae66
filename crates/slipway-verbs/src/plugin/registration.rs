//! Registering memory, with the broker and, where there is one, with the gateway.

use std::os::fd::AsFd as _;

use rustix::io::Errno;

use super::device::State;
use super::memory::Piece;
use super::regions::{Registered, access, prepare};
use super::{forks, pages};
use crate::gateway::{Ask, Told};
use crate::wire::{Region, Reply, Request};

/// How many keys of the gateway's are tried: others in the lab may have chosen the same.
const TRIES: usize = 4;

impl State {
    /// Registers memory, and gives its key.
    pub(super) fn register(&mut self, domain: u32, memory: Piece, start: u64, flags: u32) -> Result<u32, Errno> {
        if flags & (access::ON_DEMAND | access::MW_BIND | access::ZERO_BASED) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let is_written = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
        if memory.length == 0
            || memory.at.checked_add(memory.length).is_none()
            || (is_written && flags & access::LOCAL_WRITE == 0)
        {
            return Err(Errno::INVAL);
        }
        let region = Region { start, length: memory.length as u64, access: flags, shared: None };
        let key = match self.register_outside(domain, memory, region) {
            Some(key) => Ok(key),
            None => self.register_within(domain, memory, region),
        };
        self.hear_kept();
        key
    }

    /// With the broker alone.
    fn register_within(&mut self, domain: u32, memory: Piece, region: Region) -> Result<u32, Errno> {
        let (mut registered, file) = prepare(memory, region.start, region.access, domain);
        let request = Request::Register { domain, region: registered.region, key: None };
        let fds: Vec<_> = file.iter().map(|it| it.as_fd()).collect();
        match self.ask(&request, &fds) {
            Ok((Reply::Key { key, proof }, _)) => {
                registered.proof = proof;
                self.regions.insert(key, registered);
                Ok(key)
            }
            other => {
                // The pages become the program's own again. No key is 0.
                self.regions.insert(0, registered);
                self.regions.remove(0);
                Err(other.err().unwrap_or(Errno::PROTO))
            }
        }
    }

    /// With the gateway too, whose key the region has then. `None` where there is none, or where it cannot have the memory.
    fn register_outside(&mut self, domain: u32, memory: Piece, region: Region) -> Option<u32> {
        self.gateway.as_ref().filter(|_| forks::are_watched())?;
        let taken = pages::take(memory)?;
        let (start, length, access) = (region.start, region.length, region.access);
        let parts = taken.parts().to_vec();
        let ask = Ask::Register { domain, start, at: memory.at as u64, length, access, parts };
        // Kept until another is there: the gateway would give the same key again.
        let mut unfit = Vec::new();
        let mut found = None;
        while found.is_none()
            && unfit.len() < TRIES
            && let Ok(Told::Key { key }) = self.ask_gateway(&ask, &taken.files())
        {
            match self.ask(&Request::Register { domain, region, key: Some(key) }, &[]) {
                Ok((Reply::Key { proof, .. }, _)) => found = Some((key, proof)),
                Err(Errno::EXIST) => unfit.push(key),
                _ => {
                    unfit.push(key);
                    break;
                }
            }
        }
        for key in unfit {
            let _ = self.ask_gateway(&Ask::Deregister { key }, &[]);
        }
        let (key, proof) = found?;
        self.regions.insert(key, Registered::outside(region, (domain, proof), memory.at, taken));
        Some(key)
    }

    /// Ends a registration. First the device lets go of the pages and nobody new gets them, then peers do, then they are the
    /// program's own.
    pub(super) fn deregister(&mut self, key: u32) {
        if self.regions.is_outside(key) {
            let _ = self.ask_gateway(&Ask::Deregister { key }, &[]);
        }
        let _ = self.client.ask(&Request::Deregister { key }, &[]);
        for connection in self.queue_pairs.iter().flatten().flat_map(|it| &it.connections) {
            connection.end_registration();
        }
        self.regions.remove(key);
        self.hear_kept();
    }
}

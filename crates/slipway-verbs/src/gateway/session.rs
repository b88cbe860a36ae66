//! A program that has a session with the gateway, and the objects that it has told of.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::device::Device;
use super::region::{Domain, Region};
use super::worker::Outcome;
use super::{Ask, Span, Told};
use crate::abi::Sge;
use crate::untrusted::Untrusted;
use crate::wire::{self, WireError};

/// Packets that a program may leave unread. It hears nothing more before it reads some, and is not served either.
const UNREAD: usize = 1 << 16;

/// Regions of a protection domain, in the order of their registration.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u64, Region>);

impl Regions {
    /// Bytes of the program as the device names them; none where no region has them all. The newest region counts: an older one
    /// may have pages that the program has unmapped since.
    pub(super) fn name(&self, span: Span, is_written: bool) -> Option<Sge> {
        self.0.values().rev().find_map(|region| region.name(span, is_written))
    }
}

/// A protection domain of a program's. Its regions end before it does: fields end in their order.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) regions: Regions,
    pub(super) domain: Arc<Domain>,
}

/// A queue pair that a program has told of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) domain: u32,
    /// Its connection.
    pub(super) call: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) node: u32,
    socket: Untrusted,
    unread: VecDeque<Told>,
    pub(super) pairs: BTreeMap<u32, Pair>,
    pub(super) domains: BTreeMap<u32, Place>,
    /// The domain, the number and the bytes of each region, by its key.
    keys: BTreeMap<u32, (u32, u64, u64)>,
    next: u64,
    /// The bytes of a region that a thread registers, or whose registration it ends. Meanwhile nothing else is served.
    busy: Option<u64>,
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Session {
    pub(super) fn new(node: u32, socket: Untrusted) -> Self {
        let (unread, pairs, domains, keys, next, busy) = Default::default();
        Self { node, socket, unread, pairs, domains, keys, next, busy }
    }

    /// The next packet of the program, and its descriptors. No packet where it is none of ours.
    pub(super) fn hear(&self) -> Result<(Option<Ask>, Vec<Untrusted>), WireError> {
        wire::receive_untrusted(self.socket.as_fd(), RecvFlags::DONTWAIT)
    }

    /// Whether packets wait until the program reads.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether a thread is at work for it.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Regions, among them one that a thread is at work on.
    pub(super) fn regions(&self) -> usize {
        self.keys.len() + usize::from(self.is_busy())
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.keys.values().map(|(_, _, bytes)| bytes).chain(&self.busy).sum()
    }

    /// Tells the program. False where it has gone, or has not read for long.
    pub(super) fn tell(&mut self, told: Told) -> bool {
        self.unread.push_back(told);
        self.unread.len() <= UNREAD && self.flush()
    }

    /// Sends packets that the program has not read, as far as there is room. False where it has gone.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(told) = self.unread.front() {
            match wire::send(self.socket.as_fd(), told, &[]) {
                Ok(()) => drop(self.unread.pop_front()),
                Err(WireError::Socket(Errno::AGAIN)) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// The domain with this number, which is made where there is none.
    pub(super) fn place(&mut self, device: &'static Device, domain: u32) -> Result<&mut Place, Errno> {
        let made = match self.domains.remove(&domain) {
            Some(place) => place,
            None => Place { regions: Regions::default(), domain: Domain::new(device)? },
        };
        Ok(self.domains.entry(domain).or_insert(made))
    }

    /// Begins to register so many bytes. Gives the domain, for a thread to do it.
    pub(super) fn begin_to_register(
        &mut self,
        device: &'static Device,
        domain: u32,
        bytes: u64,
    ) -> Result<Arc<Domain>, Errno> {
        let domain = Arc::clone(&self.place(device, domain)?.domain);
        self.busy = Some(bytes);
        Ok(domain)
    }

    /// Takes up the work of a thread. Gives the reply.
    pub(super) fn take_up(&mut self, outcome: Outcome) -> Told {
        let bytes = self.busy.take().unwrap_or_default();
        match outcome {
            Outcome::Deregistered => Told::Done,
            Outcome::Registered { domain, region } => match self.add(domain, bytes, region) {
                Ok(key) => Told::Key { key },
                Err(errno) => {
                    self.tidy(domain);
                    Told::Refused { errno: errno.raw_os_error() }
                }
            },
        }
    }

    fn add(&mut self, domain: u32, bytes: u64, region: Result<Region, Errno>) -> Result<u32, Errno> {
        let region = region?;
        let key = region.key();
        self.next += 1;
        self.domains.get_mut(&domain).ok_or(Errno::INVAL)?.regions.0.insert(self.next, region);
        self.keys.insert(key, (domain, self.next, bytes));
        Ok(key)
    }

    /// Ends a domain that no region and no queue pair is in.
    pub(super) fn tidy(&mut self, number: u32) {
        let is_empty = self.domains.get(&number).is_some_and(|place| place.regions.0.is_empty());
        if is_empty && !self.pairs.values().any(|pair| pair.domain == number) {
            self.domains.remove(&number);
        }
    }

    /// Forgets a queue pair. Gives its connection.
    pub(super) fn forget(&mut self, number: u32) -> Result<Option<u64>, Errno> {
        let Pair { domain, call } = self.pairs.remove(&number).ok_or(Errno::INVAL)?;
        self.tidy(domain);
        Ok(call)
    }

    /// Takes a region out, whose registration a thread ends.
    pub(super) fn begin_to_deregister(&mut self, key: u32) -> Result<Region, Errno> {
        let (domain, order, bytes) = self.keys.remove(&key).ok_or(Errno::INVAL)?;
        let place = self.domains.get_mut(&domain).ok_or(Errno::INVAL)?;
        let region = place.regions.0.remove(&order).ok_or(Errno::INVAL)?;
        self.tidy(domain);
        self.busy = Some(bytes);
        Ok(region)
    }
}

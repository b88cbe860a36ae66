//! A program that has a session with the gateway, and the objects that it has told of.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::device::Device;
use super::region::{Domain, Region};
use super::{Ask, Part, Span, Told};
use crate::plugin::abi::Sge;
use crate::wire::{self, WireError};

/// Packets that a program may leave unread. It hears nothing more before it reads some, and is not served either.
const UNREAD: usize = 1 << 16;

/// Regions of a protection domain, by their address in the program and their key.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<(u64, u32), Region>);

impl Regions {
    /// Bytes of the program as the device names them; none where no region has them all.
    pub(super) fn name(&self, span: Span, is_written: bool) -> Option<Sge> {
        // The region that begins last before the span has it most often.
        let before = self.0.range(..=(span.at, u32::MAX)).rev();
        before.map(|(_, region)| region).find_map(|region| region.name(span, is_written))
    }
}

/// A protection domain of a program's. Its regions end before it does: fields end in their order.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) regions: Regions,
    pub(super) domain: Rc<Domain>,
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
    socket: OwnedFd,
    unread: VecDeque<Told>,
    pub(super) pairs: BTreeMap<u32, Pair>,
    pub(super) domains: BTreeMap<u32, Place>,
    /// The domain and the address of each region, by its key.
    keys: BTreeMap<u32, (u32, u64)>,
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Session {
    pub(super) fn new(node: u32, socket: OwnedFd) -> Self {
        let (unread, pairs, domains, keys) = Default::default();
        Self { node, socket, unread, pairs, domains, keys }
    }

    /// The next packet of the program, and its descriptors.
    pub(super) fn next(&self) -> Result<(Ask, Vec<OwnedFd>), WireError> {
        wire::receive(self.socket.as_fd(), RecvFlags::DONTWAIT)
    }

    /// Whether packets wait until the program reads.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn regions(&self) -> usize {
        self.keys.len()
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
            None => Place { regions: Regions::default(), domain: device.domain()? },
        };
        Ok(self.domains.entry(domain).or_insert(made))
    }

    /// Registers memory. Gives its key.
    pub(super) fn register(
        &mut self,
        device: &'static Device,
        number: u32,
        memory: (u64, u64, u64),
        access: u32,
        pages: (&[Part], &[OwnedFd]),
    ) -> Result<u32, Errno> {
        let place = self.place(device, number)?;
        let region = Region::new(&place.domain, memory, access, pages)?;
        let (key, at) = (region.key(), region.at());
        place.regions.0.insert((at, key), region);
        self.keys.insert(key, (number, at));
        Ok(key)
    }

    /// Ends a registration.
    pub(super) fn deregister(&mut self, key: u32) -> Result<(), Errno> {
        let (domain, at) = self.keys.remove(&key).ok_or(Errno::INVAL)?;
        let place = self.domains.get_mut(&domain).ok_or(Errno::INVAL)?;
        place.regions.0.remove(&(at, key)).map(drop).ok_or(Errno::INVAL)
    }
}

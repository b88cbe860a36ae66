//! Packets of programs, and the replies.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::call::{Call, State};
use super::flow::{Flow, Overrun};
use super::region::Region;
use super::session::{Pair, Regions, Session};
use super::table::Table;
use super::worker::Outcome;
use super::{Ask, Part, Told};

/// Bounds of each node, as those of its broker. The next one is refused (`ENOMEM`).
const QUEUE_PAIRS: usize = 1024;
const REGIONS: usize = 4096;

impl Table {
    /// Carries out what a program asks. Gives the reply, where there is one at once.
    pub(super) fn answer(&mut self, number: u64, ask: Ask, files: Vec<OwnedFd>) -> Result<Option<Told>, Overrun> {
        let said = match ask {
            Ask::Send { number: pair, work } => {
                return self.with_flow(number, pair, |flow, regions| flow.send(regions, &work)).map(|()| None);
            }
            Ask::Receive { number: pair, spans } => {
                return self.with_flow(number, pair, |flow, regions| flow.receive(regions, &spans)).map(|()| None);
            }
            Ask::Register { domain, start, at, length, access, parts } => {
                self.register(number, domain, (start, at, length), access, (parts, files)).map(|()| None)
            }
            Ask::Deregister { key } => self.deregister(number, key).map(|()| None),
            Ask::QueuePair { number: pair, domain } => self.tell_of(number, pair, domain).map(Some),
            Ask::Forget { number: pair } => {
                let gone = self.session(number).and_then(|it| it.forget(pair));
                if let Ok(Some(call)) = gone {
                    self.finish_call(call);
                }
                gone.map(|_| Some(Told::Done))
            }
            Ask::Join { number: pair } => self.join(number, pair).map(Some),
        };
        Ok(said.unwrap_or_else(|errno| Some(Told::Refused { errno: errno.raw_os_error() })))
    }

    fn session(&mut self, number: u64) -> Result<&mut Session, Errno> {
        self.sessions.get_mut(&number).ok_or(Errno::INVAL)
    }

    /// Sums of a node's sessions.
    fn sum<T: std::iter::Sum>(&self, node: u32, of: impl Fn(&Session) -> T) -> T {
        self.sessions.values().filter(|it| it.node == node).map(of).sum()
    }

    fn register(
        &mut self,
        number: u64,
        domain: u32,
        memory: (u64, u64, u64),
        access: u32,
        (parts, files): (Vec<Part>, Vec<OwnedFd>),
    ) -> Result<(), Errno> {
        let node = self.session(number)?.node;
        let bytes = self.sum(node, Session::bytes).saturating_add(memory.2);
        let has_room = self.nodes.get(&node).is_some_and(|it| bytes <= it.memory);
        if self.sum(node, Session::regions) >= REGIONS || !has_room {
            return Err(Errno::NOMEM);
        }
        let device = self.device;
        let place = self.session(number)?.begin_to_register(device, domain, memory.2)?;
        self.hand_over(number, move || {
            let region = Region::new(&place, memory, access, (&parts, &files));
            Outcome::Registered { domain, region }
        });
        Ok(())
    }

    fn deregister(&mut self, number: u64, key: u32) -> Result<(), Errno> {
        let region = self.session(number)?.begin_to_deregister(key)?;
        self.hand_over(number, move || {
            drop(region);
            Outcome::Deregistered
        });
        Ok(())
    }

    fn tell_of(&mut self, number: u64, pair: u32, domain: u32) -> Result<Told, Errno> {
        let node = self.session(number)?.node;
        if self.sum(node, |it| it.pairs.len()) >= QUEUE_PAIRS {
            return Err(Errno::NOMEM);
        }
        let device = self.device;
        let session = self.session(number)?;
        session.place(device, domain)?;
        session.pairs.entry(pair).or_insert(Pair { domain, call: None });
        Ok(Told::Done)
    }

    fn join(&mut self, number: u64, pair: u32) -> Result<Told, Errno> {
        let call = self.session(number)?.pairs.get(&pair).and_then(|it| it.call).ok_or(Errno::HOSTUNREACH)?;
        match self.calls.get_mut(&call).map(|call| &mut call.state) {
            Some(State::Open(flow)) if !flow.is_joined => {
                flow.is_joined = true;
                let window = flow.pair.window();
                Ok(Told::Window { requests: window.requests, receives: window.receives, spans: window.spans })
            }
            _ => Err(Errno::HOSTUNREACH),
        }
    }

    /// Has a joined queue pair of a program's go on. One whose connection has ended takes nothing more.
    fn with_flow(
        &mut self,
        number: u64,
        pair: u32,
        act: impl FnOnce(&mut Flow, &Regions) -> Result<(), Overrun>,
    ) -> Result<(), Overrun> {
        let Some(session) = self.sessions.get(&number) else { return Ok(()) };
        let Some(Pair { domain, call: Some(call) }) = session.pairs.get(&pair).copied() else { return Ok(()) };
        let Some(flow) = self.calls.get_mut(&call).and_then(Call::joined) else { return Ok(()) };
        let Some(place) = session.domains.get(&domain) else { return Ok(()) };
        act(flow, &place.regions)?;
        if flow.is_due() {
            self.end_call(call);
        }
        Ok(())
    }
}

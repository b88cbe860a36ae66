//! Queue pairs that programs may have yet to name to this broker: connections to them wait for a few seconds.
//!
//! After a broker has taken another's place, one program may connect before its peer's program has named the peer. A broker that is
//! the first of its host waits too: it cannot tell a number of nobody from one that it will hear of.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Broker;
use super::objects::Unnamed;
use super::reply::{Done, From};
use super::tables::Tables;
use crate::wire::{Request, Transport};

/// How long programs have to name what they have. A call of a plug-in waits as long for a broker.
const PATIENCE: Duration = Duration::from_secs(5);

impl Unnamed {
    /// Waits for names from now on.
    pub(super) fn begin(&mut self) {
        self.until = Some(Instant::now() + PATIENCE);
    }

    /// A program has ended.
    pub(super) fn forget(&mut self, program: u64) {
        self.waiting.remove(&program);
    }
}

impl Tables {
    /// The reason to refuse a connection to a queue pair that is not there. `EAGAIN`: its program may yet name it. A datagram
    /// is lost instead, so that a program waits for none.
    pub(super) fn absent(&self, number: u32, transport: Transport) -> Errno {
        let is_time = self.unnamed.until.is_some_and(|until| Instant::now() < until);
        let may_be_named = self.numbers.contains(&number) && !self.queue_pairs.contains_key(&number);
        if is_time && may_be_named && transport != Transport::Datagram { Errno::AGAIN } else { Errno::CONNREFUSED }
    }

    /// Has a program's request wait. A program waits for each reply, so it has one.
    pub(super) fn wait_for_name(&mut self, from: From, request: Request) -> Result<Done, Errno> {
        if self.unnamed.waiting.contains_key(&from.program) {
            return Err(Errno::BUSY);
        }
        self.unnamed.waiting.insert(from.program, request);
        Ok(Done::later())
    }
}

impl Broker {
    /// Serves requests that wait: their queue pairs may have been named meanwhile, or the time is over.
    pub(super) fn serve_unnamed(&mut self) {
        let unnamed = &mut self.tables.unnamed;
        unnamed.until = unnamed.until.filter(|until| Instant::now() < *until);
        for (program, request) in std::mem::take(&mut unnamed.waiting) {
            self.answer(program, &request, Vec::new());
        }
    }
}

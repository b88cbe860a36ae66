//! Sending: requests of a queue pair on their way to the peer, and their completions.

use std::time::Instant;

use super::connection::{Connection, Import};
use super::device::State;
use super::memory::Atomic;
use super::memory::{Mapping, Piece, atomic, copy, store, store_last};
use super::queues::{Awaited, Flying, Operation, QueuePair, Work, status};
use super::regions::access;
use super::ring::{Header, Lie, flag, for_each, kind};
use crate::abi::Wc;
use crate::layout::FAILED;
use crate::wire::{Reply, Request, Transport, is_group};

pub(super) mod records;

use records::{Step, ask, by_ring, put};

/// Looks at a peer before others have their turn. An honest one causes two at most.
const LOOKS: usize = 16;

impl State {
    /// Takes answers of the peer's, in the order of the requests. One that was not asked for, or is longer, is not believed.
    #[expect(clippy::unused_self, reason = "a step of a device, as the others are")]
    pub(super) fn take_answers(&self, pair: &mut QueuePair) -> Result<(), i32> {
        let Some(connection) = pair.connections.first_mut() else { return Ok(()) };
        let mut has_taken = false;
        while let Some(header) =
            connection.their_responses.next(&connection.memory).map_err(|Lie| status::RETRIES_EXCEEDED)?
        {
            let flying = pair.flying.iter_mut().find(|it| it.awaited.is_some());
            let Some(Flying { end, length: total, awaited: kept, .. }) = flying else {
                return Err(status::RETRIES_EXCEEDED);
            };
            let Some(awaited) = kept else { return Err(status::RETRIES_EXCEEDED) };
            let length = header.length as usize;
            if header.kind != kind::DATA || awaited.done + length > *total {
                return Err(status::RETRIES_EXCEEDED);
            }
            connection.their_responses.take(&connection.memory, &header, &awaited.pieces, awaited.done);
            connection.their_responses.pass(&connection.memory, &header);
            has_taken = true;
            awaited.done += length;
            if awaited.done == *total {
                *kept = None;
                pair.asked = pair.asked.saturating_sub(1);
                connection.answered(*end);
            }
        }
        if has_taken {
            connection.ring();
        }
        Ok(())
    }

    /// Completes requests that the peer has consumed.
    pub(super) fn collect(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        let Some(connection) = pair.connections.first_mut() else { return Ok(()) };
        if pair.flying.is_empty() && pair.sending.is_empty() {
            // Nothing waits any more, so the thread of service need not count.
            pair.closed_since = None;
            return Ok(());
        }
        // Read before the counter: all that the peer consumed before it failed or closed is then seen.
        let (failed, is_closed, not_ready) =
            (connection.theirs(FAILED), connection.is_closed(), connection.is_not_ready());
        let consumed = connection.requests.consumed(&connection.memory).map_err(|Lie| status::RETRIES_EXCEEDED)?;
        self.complete_up_to(pair, consumed);
        if failed != 0 {
            return Err(i32::try_from(failed).unwrap_or(status::REMOTE_ACCESS));
        }
        if is_closed && (!pair.flying.is_empty() || !pair.sending.is_empty()) {
            if pair.closed_since.is_none() {
                // The thread of service counts the time.
                self.wake_service();
            }
            let since = *pair.closed_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= pair.retries() {
                return Err(status::RETRIES_EXCEEDED);
            }
        } else {
            pair.closed_since = None;
        }
        match (not_ready, pair.not_ready_since, pair.patience()) {
            (true, None, Some(_)) => pair.not_ready_since = Some(Instant::now()),
            (true, Some(since), Some(patience)) if since.elapsed() > patience => return Err(status::NOT_READY),
            (false, Some(_), _) => pair.not_ready_since = None,
            _ => {}
        }
        Ok(())
    }

    fn complete_up_to(&mut self, pair: &mut QueuePair, consumed: u64) {
        while pair.flying.front().is_some_and(|it| it.end <= consumed && it.awaited.is_none()) {
            if let Some(done) = pair.flying.pop_front() {
                self.complete_request(pair, &done);
            }
        }
    }

    /// Completes a request that has succeeded.
    pub(super) fn complete_request(&mut self, pair: &QueuePair, done: &Flying) {
        if done.is_signaled {
            let wc = Wc {
                wr_id: done.id,
                opcode: done.operation.completion(),
                byte_len: u32::try_from(done.length).unwrap_or(u32::MAX),
                qp_num: pair.number,
                ..Wc::default()
            };
            self.complete(pair.send_cq, wc, false);
        }
    }

    /// Sends what can be sent. Then the peer rings once it has consumed what has yet to complete.
    pub(super) fn transmit(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        if pair.transport == Transport::Datagram {
            self.transmit_datagrams(pair);
            return Ok(());
        }
        for _ in 0..LOOKS {
            self.transmit_once(pair)?;
            let wants_head = pair.wants_head();
            let Some(connection) = pair.connections.first_mut() else { return Ok(()) };
            if !connection.want_head(wants_head).map_err(|Lie| status::RETRIES_EXCEEDED)? {
                return Ok(());
            }
        }
        // A peer that consumes on and on is looked at in the next turn.
        self.wake_service();
        Ok(())
    }

    fn transmit_once(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        if pair.connections.is_empty() {
            return if pair.sending.is_empty() { Ok(()) } else { Err(status::RETRIES_EXCEEDED) };
        }
        let (mut has_published, mut is_asking) = (false, false);
        let mut failed = None;
        // Its memory may still be mapped here, but nobody is there: requests wait for the end of their retries.
        let is_gone = pair.transport == Transport::Reliable && pair.connections[0].is_closed();
        while !is_gone && let Some(mut work) = pair.sending.pop_front() {
            let before = pair.connections[0].requests.tail;
            let step = self.send(pair, &mut work);
            has_published |= pair.connections[0].requests.tail != before;
            match step {
                Step::Sent | Step::Asked => {
                    let end = pair.connections[0].requests.tail;
                    // A request of no bytes has no record by which it could say that it waits.
                    is_asking |= end == before && work.is_signaled;
                    let Work { id, operation, length, is_signaled, pieces, .. } = work;
                    pair.connections[0].tally.asked(operation, length);
                    let awaited = matches!(step, Step::Asked).then_some(Awaited { pieces, done: 0 });
                    pair.asked += usize::from(awaited.is_some());
                    pair.flying.push_back(Flying { end, id, operation, length, is_signaled, awaited });
                }
                Step::Waits => {
                    pair.sending.push_front(work);
                    break;
                }
                Step::Fails(status) => {
                    // Earlier requests complete first, as far as the peer has consumed it.
                    pair.sending.push_front(work);
                    failed = Some(status);
                    break;
                }
            }
        }
        let connection = &mut pair.connections[0];
        if has_published {
            connection.ring();
        }
        if is_asking {
            connection.ask_for_head();
        }
        let consumed = match pair.transport {
            // Nobody acknowledges: a request is done when it is on its way.
            Transport::Unreliable => connection.requests.tail,
            _ => connection.requests.consumed(&connection.memory).map_err(|Lie| status::RETRIES_EXCEEDED)?,
        };
        self.complete_up_to(pair, consumed);
        match failed {
            Some(status) if pair.flying.is_empty() => Err(status),
            _ => Ok(()),
        }
    }

    fn send(&mut self, pair: &mut QueuePair, work: &mut Work) -> Step {
        if work.is_bad {
            return Step::Fails(status::LOCAL_PROTECTION);
        }
        let is_asking = matches!(work.operation, Operation::Read | Operation::Atomic(_));
        let most = usize::from(pair.attributes.max_rd_atomic.max(1));
        if pair.asked > 0 && (work.is_fenced || is_asking && pair.asked >= most) {
            return Step::Waits;
        }
        let number = pair.number;
        let connection = &mut pair.connections[0];
        if connection.is_silent && work.done == 0 {
            // An unreliable message is lost. A reliable one does not come here.
            return Step::Sent;
        }
        match work.operation {
            Operation::Send => by_ring(connection, work, kind::SEND),
            Operation::Write => self.write(connection, number, work),
            Operation::Read => self.read(connection, number, work),
            Operation::Atomic(operation) => self.atomic(connection, number, work, operation),
        }
    }

    fn write(&mut self, connection: &mut Connection, number: u32, work: &mut Work) -> Step {
        if work.done == 0 && work.length > 0 {
            match self.locate(connection, number, work, access::REMOTE_WRITE) {
                Ok(Some(to)) => {
                    write_in_order(&work.pieces, to);
                    work.done = work.length;
                }
                Ok(None) => {}
                Err(status) => return Step::Fails(status),
            }
        }
        if work.done < work.length {
            let step = by_ring(connection, work, kind::WRITE);
            connection.last_ring_write = connection.requests.tail;
            if !matches!(step, Step::Sent) {
                return step;
            }
        }
        let Some(immediate) = work.immediate else { return Step::Sent };
        let flags = flag::FIRST
            | flag::LAST
            | flag::IMMEDIATE
            | flag::WAITS
            | if work.is_solicited { flag::SOLICITED } else { 0 };
        let total = u32::try_from(work.length).unwrap_or(u32::MAX);
        put(connection, Header { kind: kind::WRITTEN, flags, immediate, total, ..Header::default() })
    }

    fn read(&mut self, connection: &mut Connection, number: u32, work: &mut Work) -> Step {
        match self.locate(connection, number, work, access::REMOTE_READ) {
            Ok(Some(from)) => {
                scatter(from, &work.pieces);
                return Step::Sent;
            }
            Ok(None) if work.length == 0 => return Step::Sent,
            Ok(None) => {}
            Err(status) => return Step::Fails(status),
        }
        ask(connection, work, kind::READ, [0; 2])
    }

    fn atomic(&mut self, connection: &mut Connection, number: u32, work: &mut Work, operation: Atomic) -> Step {
        match self.locate(connection, number, work, access::REMOTE_ATOMIC) {
            Ok(Some(at)) => {
                let Some(before) = atomic(at, operation) else { return Step::Fails(status::INVALID_REQUEST) };
                if let Some(to) = work.pieces.first() {
                    store(&before.to_ne_bytes(), *to);
                }
                return Step::Sent;
            }
            Ok(None) => {}
            Err(status) => return Step::Fails(status),
        }
        match operation {
            Atomic::Add(by) => ask(connection, work, kind::ADD, [by, 0]),
            Atomic::Swap { compare, with } => ask(connection, work, kind::SWAP, [compare, with]),
        }
    }

    /// Where the peer's bytes are mapped. None where the peer has to be asked, because they are not on shared pages, or because
    /// writes that it carries out are still on their way.
    fn locate(
        &mut self,
        connection: &mut Connection,
        number: u32,
        work: &Work,
        needed: u32,
    ) -> Result<Option<Piece>, i32> {
        if connection.is_far() {
            return Ok(None);
        }
        connection.refresh();
        if let std::collections::hash_map::Entry::Vacant(vacant) = connection.imports.entry(work.key) {
            let request = Request::Resolve { number, key: work.key };
            match self.client.ask(&request, &[]) {
                Ok((Reply::Region(region), fds)) => {
                    let may_write = region.access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
                    let mapping = fds.into_iter().next().and_then(|file| import(&region, &file, may_write));
                    vacant.insert(Import { region, mapping });
                }
                // The broker may have ended, or the peer has not joined yet: the peer itself decides.
                Ok(_) | Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE | rustix::io::Errno::NOTCONN) => {
                    return Ok(None);
                }
                Err(_) => return Err(status::REMOTE_ACCESS),
            }
        }
        let import = &connection.imports[&work.key];
        let end = work.address.checked_sub(import.region.start).and_then(|at| at.checked_add(work.length as u64));
        if end.is_none_or(|end| end > import.region.length) || import.region.access & needed != needed {
            return Err(status::REMOTE_ACCESS);
        }
        let Some(place) = import.place(work.address, work.length) else { return Ok(None) };
        let due = connection.last_ring_write;
        let is_behind =
            due > 0 && connection.requests.consumed(&connection.memory).is_ok_and(|consumed| consumed < due);
        Ok((!is_behind).then_some(place))
    }

    fn transmit_datagrams(&mut self, pair: &mut QueuePair) {
        while let Some(mut work) = pair.sending.pop_front() {
            if work.is_bad {
                let wc = Wc { wr_id: work.id, status: status::LOCAL_PROTECTION, qp_num: pair.number, ..Wc::default() };
                self.complete(pair.send_cq, wc, true);
                continue;
            }
            // A datagram to a peer that is not there, or that takes none, is lost, as on a wire.
            if let Some((group, _)) = work.to.filter(|to| is_group(&to.0)) {
                self.send_to_group(pair, &mut work, group);
            } else if let Some(number) = work.to.and_then(|to| self.reach(pair, to)) {
                let connection = &mut pair.connections[number];
                let is_gone = connection.is_closed() || connection.is_not_ready();
                let mut fits = connection.has_room(work.length);
                // The peer may have consumed some just before it was asked to ring.
                if !fits && !is_gone && connection.want_head(true).unwrap_or_default() {
                    fits = connection.has_room(work.length);
                }
                if !fits && !is_gone {
                    connection.ring();
                    pair.sending.push_front(work);
                    return;
                }
                let _ = connection.want_head(false);
                if fits && !connection.is_closed() {
                    let _ = by_ring(connection, &mut work, kind::SEND);
                    connection.tally.asked(work.operation, work.length);
                    connection.ring();
                }
            }
            let Work { id, operation, length, is_signaled, .. } = work;
            self.complete_request(pair, &Flying { end: 0, id, operation, length, is_signaled, awaited: None });
        }
    }
}

/// Maps the shared part of a peer's region. Its length is looked at again, and sealed: a shorter file would be a `SIGBUS`.
fn import(region: &crate::wire::Region, file: &std::os::fd::OwnedFd, may_write: bool) -> Option<Mapping> {
    let length = usize::try_from(region.shared?.length).ok()?;
    let size = usize::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    let is_sealed = rustix::fs::fcntl_get_seals(file).ok()?.contains(crate::layout::SIZED);
    if size != length || !is_sealed {
        return None;
    }
    Mapping::new(file, length, may_write).ok()
}

/// Copies pieces to one place, its end last.
fn write_in_order(pieces: &[Piece], to: Piece) {
    let tail = if to.length >= 8 { 8 } else { to.length };
    let body = to.length - tail;
    let mut at = to.at;
    for_each(pieces, 0, body, |piece| {
        copy(piece.at, at, piece.length);
        at += piece.length;
    });
    let mut last = [0_u8; 8];
    let mut end = last.as_mut_ptr() as usize;
    let start = end;
    for_each(pieces, body, tail, |piece| {
        copy(piece.at, end, piece.length);
        end += piece.length;
    });
    if tail > 0 {
        store_last(start, to.at + body, tail);
    }
}

/// Copies one place to pieces.
fn scatter(from: Piece, pieces: &[Piece]) {
    let mut at = from.at;
    for_each(pieces, 0, from.length, |piece| {
        copy(at, piece.at, piece.length);
        at += piece.length;
    });
}

//! Records of a connection's rings: a request's bytes, and what the peer is asked to carry out.

use super::super::address;
use super::super::connection::Connection;
use super::super::queues::{Work, status};
use super::super::ring::{Header, Lie, flag};
use crate::wire::is_group;

/// Most bytes of payload in one record, so that the peer takes one part while the next is written.
const PART: usize = 32 << 10;

/// Where a request stands after a try.
pub(in super::super) enum Step {
    /// It is on its way; nothing more is to do.
    Sent,
    /// It is on its way, and the peer answers.
    Asked,
    /// It waits for room, or for answers of others.
    Waits,
    /// It fails with this status.
    Fails(i32),
}

impl From<Lie> for Step {
    fn from(_: Lie) -> Self {
        Self::Fails(status::RETRIES_EXCEEDED)
    }
}

/// Sends a request's bytes through the ring, as far as there is room.
pub(in super::super) fn by_ring(connection: &mut Connection, work: &mut Work, kind: u8) -> Step {
    let operands = work.to.filter(|to| is_group(&to.0)).map_or([0; 2], |to| address::operands(&to.0));
    loop {
        let room = match connection.requests.room(&connection.memory) {
            Ok(Some(room)) => room,
            Ok(None) => return Step::Waits,
            Err(lie) => return lie.into(),
        };
        let rest = work.length - work.done;
        let part = rest.min(PART);
        if room < part {
            return Step::Waits;
        }
        let is_last = part == rest;
        let mut flags = if work.done == 0 { flag::FIRST } else { 0 };
        if is_last {
            flags |= if work.is_signaled { flag::WAITS } else { 0 };
            flags |= flag::LAST | if work.is_solicited { flag::SOLICITED } else { 0 };
            flags |= if work.immediate.is_some() { flag::IMMEDIATE } else { 0 };
        }
        let header = Header {
            kind,
            flags,
            immediate: work.immediate.unwrap_or(0),
            length: u32::try_from(part).unwrap_or(0),
            total: u32::try_from(work.length).unwrap_or(u32::MAX),
            key: work.key,
            address: work.address.wrapping_add(work.done as u64),
            operands,
        };
        connection.put_request(header, &work.pieces, work.done);
        work.done += part;
        if is_last {
            return Step::Sent;
        }
    }
}

/// Sends a record without payload.
pub(super) fn put(connection: &mut Connection, header: Header) -> Step {
    match connection.requests.room(&connection.memory) {
        Ok(Some(_)) => {
            connection.put_request(header, &[], 0);
            Step::Sent
        }
        Ok(None) => Step::Waits,
        Err(lie) => lie.into(),
    }
}

/// Has the peer carry out a read or an atomic operation.
pub(super) fn ask(connection: &mut Connection, work: &Work, kind: u8, operands: [u64; 2]) -> Step {
    let total = u32::try_from(work.length).unwrap_or(u32::MAX);
    // The answer says that the request was consumed.
    let flags = flag::FIRST | flag::LAST;
    let header = Header { kind, flags, total, key: work.key, address: work.address, operands, ..Header::default() };
    match put(connection, header) {
        Step::Sent => Step::Asked,
        step => step,
    }
}

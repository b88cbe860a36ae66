//! Receiving: what the peer has sent, and what it asks of this end's memory.

use super::address;
use super::connection::Connection;
use super::device::State;
use super::memory::{Atomic, Piece, atomic, copy};
use super::queues::{Partial, QueuePair, Receive, status};
use super::regions::access;
use super::ring::{Header, flag, kind};
use crate::abi::Wc;
use crate::layout::{FAILED, NOT_READY};
use crate::wire::{Gid, Transport};

/// `IBV_WC_RECV` and `IBV_WC_RECV_RDMA_WITH_IMM`.
pub(super) const RECEIVED: i32 = 1 << 7;
/// `IBV_WC_GRH` and `IBV_WC_WITH_IMM`.
const WITH_ROUTE: u32 = 1;
pub(super) const WITH_IMMEDIATE: u32 = 1 << 1;
/// Kinds of packets of `RoCE` v2: bit 3 for a UDP header, 1 for IPv6, 2 for IPv4. Completions of datagrams have them for their
/// service level, as mlx5's do. UCX drops datagrams without.
const OVER_IPV6: u8 = 0b1001;
const OVER_IPV4: u8 = 0b1010;
/// Bytes of the route before a datagram (`struct ibv_grh`).
const ROUTE: usize = 40;
/// Most bytes of an answer in one record.
const PART: usize = 16 << 10;

/// Result of reading a record.
enum Fate {
    /// It is done with.
    Consumed,
    /// It waits for a receive request, or for room.
    Waits,
    /// It ends the connection: the status here, and the one that the peer reads.
    Ends(i32, i32),
}

impl State {
    /// Takes what has come by one connection.
    pub(super) fn receive(&mut self, pair: &mut QueuePair, number: usize) -> Result<(), i32> {
        let mut has_consumed = false;
        let mut ends = None;
        pair.connections[number].pull();
        loop {
            let connection = &mut pair.connections[number];
            let header = match connection.their_requests.next(&connection.memory) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(_) => {
                    ends = Some((status::FLUSHED, status::INVALID_REQUEST));
                    break;
                }
            };
            match self.take(pair, number, &header) {
                Fate::Consumed => {
                    let connection = &mut pair.connections[number];
                    connection.their_requests.pass(&connection.memory, &header);
                    has_consumed = true;
                }
                Fate::Waits => break,
                Fate::Ends(here, there) => {
                    ends = Some((here, there));
                    break;
                }
            }
        }
        let connection = &mut pair.connections[number];
        if let Some((here, there)) = ends {
            if pair.transport == Transport::Datagram {
                return Ok(());
            }
            connection.set(FAILED, there.unsigned_abs());
            connection.ring();
            return Err(here);
        }
        // The program may answer soon, which tells a peer of another host too.
        let is_far = connection.is_far();
        let can_wait = is_far && (self.is_serving || self.may_wait_directly());
        if has_consumed && !can_wait && (is_far || !self.owes(pair.index, number)) {
            pair.connections[number].ring_for_head();
        } else if is_far {
            pair.connections[number].ring();
        }
        Ok(())
    }

    fn take(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        match (header.kind, pair.transport) {
            (kind::SEND, Transport::Datagram) => self.take_datagram(pair, number, header),
            (kind::SEND, _) => self.take_part(pair, number, header),
            (kind::WRITTEN, Transport::Reliable | Transport::Unreliable) => self.take_written(pair, number, header),
            (kind::WRITE, Transport::Reliable | Transport::Unreliable) => self.serve_write(pair, number, header),
            (kind::READ, Transport::Reliable) => self.serve_read(pair, number, header),
            (kind::ADD | kind::SWAP, Transport::Reliable) => self.serve_atomic(pair, number, header),
            _ => Fate::Ends(status::FLUSHED, status::INVALID_REQUEST),
        }
    }

    fn next_receive(&mut self, pair: &mut QueuePair) -> Option<Receive> {
        let Some(srq) = pair.srq else { return pair.receives.pop_front() };
        let queue = self.shared_queues.get_mut(srq)?.as_mut()?;
        let receive = queue.receives.pop_front();
        if queue.limit > 0 && queue.receives.len() < queue.limit as usize {
            queue.limit = 0;
            super::loader::write_srq_event(self.async_fd, queue.handle);
        }
        receive
    }

    fn take_part(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        if header.flags & flag::FIRST != 0 && pair.partial.is_none() {
            let receive = self.next_receive(pair);
            pair.connections[number].set(NOT_READY, receive.is_none().into());
            let Some(receive) = receive else { return Fate::Waits };
            pair.partial = Some(Partial { receive, done: 0 });
        }
        let Some(partial) = pair.partial.as_mut() else { return Fate::Ends(status::FLUSHED, status::INVALID_REQUEST) };
        let length = header.length as usize;
        let wrong = if partial.receive.is_bad {
            Some((status::LOCAL_PROTECTION, status::REMOTE_ACCESS))
        } else if partial.done + length > partial.receive.length {
            Some((status::LOCAL_LENGTH, status::INVALID_REQUEST))
        } else {
            None
        };
        if let Some((here, there)) = wrong {
            let id = partial.receive.id;
            pair.partial = None;
            let wc = Wc { wr_id: id, status: here, opcode: RECEIVED, qp_num: pair.number, ..Wc::default() };
            self.complete(pair.receive_cq, wc, true);
            return Fate::Ends(status::FLUSHED, there);
        }
        let connection = &pair.connections[number];
        connection.their_requests.take(&connection.memory, header, &partial.receive.pieces, partial.done);
        partial.done += length;
        if header.flags & flag::LAST != 0
            && let Some(Partial { receive, done }) = pair.partial.take()
        {
            connection.tally.received(done);
            let wc = received(pair, &receive, header, RECEIVED, done, number);
            self.complete(pair.receive_cq, wc, header.flags & flag::SOLICITED != 0);
        }
        Fate::Consumed
    }

    fn take_written(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        let receive = self.next_receive(pair);
        pair.connections[number].set(NOT_READY, receive.is_none().into());
        let Some(receive) = receive else { return Fate::Waits };
        pair.connections[number].tally.received(header.total as usize);
        let wc = received(pair, &receive, header, RECEIVED + 1, header.total as usize, number);
        self.complete(pair.receive_cq, wc, header.flags & flag::SOLICITED != 0);
        Fate::Consumed
    }

    fn take_datagram(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        let group = address::group(header.operands);
        // A group that this queue pair has left, or never joined.
        let is_for_others = group.is_some_and(|group| !pair.groups.contains(&group));
        if header.key != pair.attributes.qkey || is_for_others {
            return Fate::Consumed;
        }
        // It waits in the ring for a request. Where the ring is full of such, the sender loses what comes next.
        let receive = self.next_receive(pair);
        pair.connections[number].set(NOT_READY, receive.is_none().into());
        let Some(receive) = receive else { return Fate::Waits };
        let length = header.length as usize + ROUTE;
        if receive.is_bad || length > receive.length {
            let here = if receive.is_bad { status::LOCAL_PROTECTION } else { status::LOCAL_LENGTH };
            let wc = Wc { wr_id: receive.id, status: here, opcode: RECEIVED, qp_num: pair.number, ..Wc::default() };
            self.complete(pair.receive_cq, wc, true);
            return Fate::Consumed;
        }
        let connection = &pair.connections[number];
        let to = group.as_ref().or(self.gids.first()).unwrap_or(&[0; 16]);
        let mut route = route(&connection.peer.0, to, header.length);
        let from = route.as_mut_ptr() as usize;
        let mut done = 0;
        super::ring::for_each(&receive.pieces, 0, ROUTE, |piece| {
            copy(from + done, piece.at, piece.length);
            done += piece.length;
        });
        connection.their_requests.take(&connection.memory, header, &receive.pieces, ROUTE);
        connection.tally.received(header.length as usize);
        let mut wc = received(pair, &receive, header, RECEIVED, length, number);
        wc.wc_flags |= WITH_ROUTE;
        wc.sl = if route[0] == 0 { OVER_IPV4 } else { OVER_IPV6 };
        self.complete(pair.receive_cq, wc, header.flags & flag::SOLICITED != 0);
        Fate::Consumed
    }

    /// A place that the peer names, where the queue pair and the region allow it.
    fn allowed(&self, pair: &QueuePair, header: &Header, length: usize, needed: u32) -> Option<Piece> {
        let by_pair = pair.attributes.qp_access_flags & needed == needed;
        let found = || self.regions.find(header.key, pair.domain, header.address, length, needed);
        by_pair.then(found).flatten()
    }

    fn serve_write(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        let Some(to) = self.allowed(pair, header, header.length as usize, access::REMOTE_WRITE) else {
            return Fate::Ends(status::FLUSHED, status::REMOTE_ACCESS);
        };
        let connection = &pair.connections[number];
        connection.their_requests.take_in_order(&connection.memory, header, to);
        Fate::Consumed
    }

    fn serve_read(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        let total = header.total as usize;
        // Looked up for each part: the registration may have ended meanwhile.
        let Some(from) = self.allowed(pair, header, total, access::REMOTE_READ) else {
            return Fate::Ends(status::FLUSHED, status::REMOTE_ACCESS);
        };
        while pair.served < total {
            let part = Piece { at: from.at + pair.served, length: (total - pair.served).min(PART) };
            match answer(&mut pair.connections[number], part) {
                Ok(true) => pair.served += part.length,
                Ok(false) => return Fate::Waits,
                Err(fate) => return fate,
            }
        }
        pair.served = 0;
        Fate::Consumed
    }

    fn serve_atomic(&mut self, pair: &mut QueuePair, number: usize, header: &Header) -> Fate {
        let Some(at) = self.allowed(pair, header, 8, access::REMOTE_ATOMIC) else {
            return Fate::Ends(status::FLUSHED, status::REMOTE_ACCESS);
        };
        let connection = &mut pair.connections[number];
        // Room first: an operation is carried out once.
        match connection.responses.room(&connection.memory) {
            Ok(Some(room)) if room >= 8 => {}
            Ok(_) => return Fate::Waits,
            Err(_) => return Fate::Ends(status::FLUSHED, status::INVALID_REQUEST),
        }
        let [first, second] = header.operands;
        let operation =
            if header.kind == kind::ADD { Atomic::Add(first) } else { Atomic::Swap { compare: first, with: second } };
        let Some(before) = atomic(at, operation) else { return Fate::Ends(status::FLUSHED, status::INVALID_REQUEST) };
        let mut bytes = before.to_ne_bytes();
        match answer(connection, Piece { at: bytes.as_mut_ptr() as usize, length: 8 }) {
            Ok(_) => Fate::Consumed,
            Err(fate) => fate,
        }
    }
}

/// Answers with a part; false where there is no room now.
fn answer(connection: &mut Connection, part: Piece) -> Result<bool, Fate> {
    match connection.responses.room(&connection.memory) {
        Ok(Some(room)) if room >= part.length => {}
        Ok(_) => return Ok(false),
        Err(_) => return Err(Fate::Ends(status::FLUSHED, status::INVALID_REQUEST)),
    }
    let header = Header { kind: kind::DATA, length: u32::try_from(part.length).unwrap_or(0), ..Header::default() };
    connection.put_response(header, &[part], 0);
    connection.ring();
    Ok(true)
}

fn received(pair: &QueuePair, receive: &Receive, header: &Header, opcode: i32, length: usize, number: usize) -> Wc {
    let is_immediate = header.flags & flag::IMMEDIATE != 0;
    Wc {
        wr_id: receive.id,
        opcode,
        byte_len: u32::try_from(length).unwrap_or(u32::MAX),
        imm_data: if is_immediate { header.immediate } else { 0 },
        qp_num: pair.number,
        src_qp: pair.connections[number].peer.1,
        wc_flags: if is_immediate { WITH_IMMEDIATE } else { 0 },
        ..Wc::default()
    }
}

/// The route before a datagram: an IPv4 header in its second half, or an IPv6 one (`RoCE` v2, annex A17).
fn route(from: &Gid, to: &Gid, length: u32) -> [u8; ROUTE] {
    let mut route = [0; ROUTE];
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let mapped = |gid: &Gid| std::net::Ipv6Addr::from(*gid).to_ipv4_mapped().map(|it| it.octets());
    if let (Some(from), Some(to)) = (mapped(from), mapped(to)) {
        route[20] = 0x45;
        route[22..24].copy_from_slice(&length);
        route[28] = 64;
        route[29] = 17;
        route[32..36].copy_from_slice(&from);
        route[36..40].copy_from_slice(&to);
    } else {
        route[0] = 0x60;
        route[4..6].copy_from_slice(&length);
        route[6] = 17;
        route[7] = 64;
        route[8..24].copy_from_slice(from);
        route[24..40].copy_from_slice(to);
    }
    route
}

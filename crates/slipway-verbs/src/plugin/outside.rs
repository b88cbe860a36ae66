//! Data of queue pairs whose peers are outside of the lab: the gateway carries their requests out, and tells of completions.

use super::device::State;
use super::memory::{Atomic, Piece};
use super::queues::{Flying, Operation, QueuePair, Work, state, status};
use super::receive::{RECEIVED, WITH_IMMEDIATE};
use crate::abi::Wc;
use crate::gateway::{self, Ask, Completion, Span};

impl State {
    /// Names requests and receives to the gateway, as many as it takes at once.
    pub(super) fn advance_outside(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        self.forward_receives(pair)?;
        if pair.state == state::READY_TO_SEND { self.forward_requests(pair) } else { Ok(()) }
    }

    fn forward_receives(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        let number = pair.number;
        let Some(outside) = &mut pair.outside else { return Ok(()) };
        while outside.receives.len() < outside.most_receives
            && let Some(receive) = pair.receives.pop_front()
        {
            let fault = fault(receive.is_bad || receive.in_lab, receive.pieces.len() > outside.spans);
            if let Some(status) = fault {
                // Those before it complete first.
                if !outside.receives.is_empty() {
                    pair.receives.push_front(receive);
                    return Ok(());
                }
                let wc = Wc { wr_id: receive.id, status, opcode: RECEIVED, qp_num: number, ..Wc::default() };
                self.complete(pair.receive_cq, wc, true);
                return Err(status::FLUSHED);
            }
            self.send_to_gateway(&Ask::Receive { number, spans: spans(&receive.pieces) });
            outside.receives.push_back(receive);
        }
        Ok(())
    }

    fn forward_requests(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        let number = pair.number;
        let Some(outside) = &pair.outside else { return Ok(()) };
        while pair.flying.len() < outside.requests
            && let Some(work) = pair.sending.pop_front()
        {
            let has_many = work.inline.is_none() && work.pieces.len() > outside.spans;
            if let Some(status) = fault(work.is_bad || work.in_lab, has_many) {
                pair.sending.push_front(work);
                return if pair.flying.is_empty() { Err(status) } else { Ok(()) };
            }
            self.send_to_gateway(&Ask::Send { number, work: packet(&work) });
            let Work { id, operation, length, is_signaled, .. } = work;
            pair.flying.push_back(Flying { end: 0, id, operation, length, is_signaled, awaited: None });
        }
        Ok(())
    }

    fn send_to_gateway(&mut self, ask: &Ask) {
        if let Some(session) = &mut self.gateway {
            session.send(ask);
            if session.has_kept() {
                self.wake_service();
            }
        }
    }

    /// Requests of a queue pair have completed. An error ends it.
    pub(super) fn completed(&mut self, index: usize, all: &[Completion]) {
        let Some(mut pair) = self.queue_pairs.get_mut(index).and_then(Option::take) else { return };
        self.complete_all(&mut pair, all);
        self.queue_pairs[index] = Some(pair);
        if all.iter().any(|it| it.status != 0) {
            self.fail(index, None);
        } else {
            self.progress(index);
        }
    }

    pub(super) fn complete_all(&mut self, pair: &mut QueuePair, all: &[Completion]) {
        for completion in all {
            if completion.is_receive {
                self.complete_received(pair, completion);
            } else {
                self.complete_sent(pair, completion);
            }
        }
    }

    fn complete_received(&mut self, pair: &mut QueuePair, completion: &Completion) {
        let Some(receive) = pair.outside.as_mut().and_then(|it| it.receives.pop_front()) else { return };
        let wc = Wc {
            wr_id: receive.id,
            status: status_of(completion),
            opcode: RECEIVED + i32::from(completion.is_written),
            byte_len: completion.length,
            imm_data: completion.immediate.unwrap_or(0),
            qp_num: pair.number,
            src_qp: pair.attributes.dest_qp_num,
            wc_flags: if completion.immediate.is_some() { WITH_IMMEDIATE } else { 0 },
            ..Wc::default()
        };
        self.complete(pair.receive_cq, wc, completion.is_solicited);
    }

    fn complete_sent(&mut self, pair: &mut QueuePair, completion: &Completion) {
        let Some(done) = pair.flying.pop_front() else { return };
        if completion.status == 0 {
            return self.complete_request(pair, &done);
        }
        let (wr_id, opcode) = (done.id, done.operation.completion());
        let wc = Wc { wr_id, status: status_of(completion), opcode, qp_num: pair.number, ..Wc::default() };
        self.complete(pair.send_cq, wc, true);
    }
}

fn status_of(completion: &Completion) -> i32 {
    i32::try_from(completion.status).unwrap_or(status::GENERAL)
}

/// Why the gateway cannot have a request: memory that it does not know, or more pieces than a device takes.
fn fault(is_unknown: bool, has_many: bool) -> Option<i32> {
    match (is_unknown, has_many) {
        (true, _) => Some(status::LOCAL_PROTECTION),
        (false, true) => Some(status::INVALID_REQUEST),
        (false, false) => None,
    }
}

fn spans(pieces: &[Piece]) -> Vec<Span> {
    let span = |piece: &Piece| Span { at: piece.at as u64, length: u32::try_from(piece.length).unwrap_or(u32::MAX) };
    pieces.iter().filter(|it| it.length > 0).map(span).collect()
}

fn packet(work: &Work) -> gateway::Work {
    gateway::Work {
        operation: match work.operation {
            Operation::Send => gateway::Operation::Send,
            Operation::Write => gateway::Operation::Write,
            Operation::Read => gateway::Operation::Read,
            Operation::Atomic(Atomic::Add(by)) => gateway::Operation::Add(by),
            Operation::Atomic(Atomic::Swap { compare, with }) => gateway::Operation::Swap { compare, with },
        },
        spans: if work.inline.is_some() { Vec::new() } else { spans(&work.pieces) },
        inline: work.inline.as_deref().map(<[u8]>::to_vec).unwrap_or_default(),
        address: work.address,
        key: work.key,
        immediate: work.immediate,
        is_solicited: work.is_solicited,
        is_fenced: work.is_fenced,
    }
}

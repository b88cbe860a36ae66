//! Requests and completions of one connected queue pair.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::device::Window;
use super::pair::QueuePair;
use super::session::Regions;
use super::{COMPLETIONS, Completion, Counted, INLINE, Operation, Span, Told, Work};
use crate::abi::{Sge, Wc};

/// The bit of a completion's number that says that it is a receive request's.
const RECEIVE: u64 = 1 << 63;
/// `IBV_WC_LOC_PROT_ERR`.
const PROTECTION: u32 = 4;
/// `IBV_WC_RECV_RDMA_WITH_IMM`, and `IBV_WC_WITH_IMM` of flags.
const WRITTEN: i32 = 129;
const WITH_IMMEDIATE: u32 = 1 << 1;

/// A program that posts more than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// The queues of a pair.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) pair: QueuePair,
    /// Bytes of the requests that are incomplete.
    sending: VecDeque<u64>,
    /// Receive requests that are incomplete.
    receiving: u32,
    next: u64,
    /// A request that names memory which is not registered, and whether it is a receive request. It fails once all of its queue
    /// before it has completed, and what comes after is for nothing.
    bad: Option<bool>,
    pub(super) is_joined: bool,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    requests: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
}

/// Whether a request fits its operation. Libraries of devices say little where one does not.
fn is_sound(work: &Work) -> bool {
    let is_inline = !work.inline.is_empty();
    let is_sized = work.inline.len() <= INLINE && (!is_inline || work.spans.is_empty());
    is_sized
        && match work.operation {
            Operation::Send | Operation::Write => true,
            Operation::Read => !is_inline,
            Operation::Add(_) | Operation::Swap { .. } => {
                let is_word = matches!(work.spans.as_slice(), [span] if span.length == 8);
                is_word && !is_inline && work.address.is_multiple_of(8)
            }
        }
}

impl Flow {
    pub(super) fn new(pair: QueuePair) -> Self {
        let (sending, receiving, next, bad, is_joined, counts) = Default::default();
        Self { pair, sending, receiving, next, bad, is_joined, counts }
    }

    fn spans(&self, regions: &Regions, spans: &[Span], is_written: bool) -> Option<Vec<Sge>> {
        let Window { spans: most, .. } = self.pair.window();
        if spans.len() > usize::try_from(most).unwrap_or(0) {
            return None;
        }
        spans.iter().map(|span| regions.name(*span, is_written)).collect()
    }

    /// Posts a request. Its memory is looked up in these regions.
    pub(super) fn send(&mut self, regions: &Regions, work: &Work) -> Result<(), Overrun> {
        if self.sending.len() >= usize::try_from(self.pair.window().requests).unwrap_or(0) {
            return Err(Overrun);
        }
        if self.bad.is_some() {
            return Ok(());
        }
        let is_written = !matches!(work.operation, Operation::Send | Operation::Write);
        if !is_sound(work) {
            self.bad = Some(false);
            return Ok(());
        }
        let length = work.spans.iter().map(|span| u64::from(span.length)).sum::<u64>() + work.inline.len() as u64;
        let posted = self.spans(regions, &work.spans, is_written).map(|spans| self.pair.send(self.next, work, spans));
        match posted {
            Some(Ok(())) => {
                self.next += 1;
                self.sending.push_back(length);
            }
            _ => self.bad = Some(false),
        }
        Ok(())
    }

    /// Posts a receive request. Its memory is looked up in these regions.
    pub(super) fn receive(&mut self, regions: &Regions, spans: &[Span]) -> Result<(), Overrun> {
        if self.receiving >= self.pair.window().receives {
            return Err(Overrun);
        }
        if self.bad.is_some() {
            return Ok(());
        }
        match self.spans(regions, spans, true).map(|spans| self.pair.receive(RECEIVE, spans)) {
            Some(Ok(())) => self.receiving += 1,
            _ => self.bad = Some(true),
        }
        Ok(())
    }

    /// Whether a bad request is to fail now.
    pub(super) fn is_due(&self) -> bool {
        match self.bad {
            Some(true) => self.receiving == 0,
            Some(false) => self.sending.is_empty(),
            None => false,
        }
    }

    /// The completion of a bad request.
    pub(super) fn failed(&self, number: u32) -> Option<Told> {
        let completion = Completion {
            is_receive: self.bad?,
            status: PROTECTION,
            length: 0,
            immediate: None,
            is_written: false,
            is_solicited: true,
        };
        Some(Told::Completed { number, all: vec![completion] })
    }

    /// Takes the completions that there are, as packets about the queue pair with this number.
    pub(super) fn take(&mut self, number: u32) -> Result<Vec<Told>, Errno> {
        let mut packets = Vec::new();
        let mut room = [Wc::default(); COMPLETIONS];
        loop {
            let found = self.pair.poll(&mut room)?;
            let all: Vec<Completion> = room.iter().take(found).map(|wc| self.complete(wc)).collect();
            if all.is_empty() {
                return Ok(packets);
            }
            packets.push(Told::Completed { number, all });
        }
    }

    fn complete(&mut self, wc: &Wc) -> Completion {
        let (is_receive, is_done) = (wc.wr_id & RECEIVE != 0, wc.status == 0);
        if is_receive {
            self.receiving = self.receiving.saturating_sub(1);
            self.counts.received += u64::from(is_done);
            self.counts.received_bytes += if is_done { u64::from(wc.byte_len) } else { 0 };
        } else {
            let length = self.sending.pop_front().unwrap_or(0);
            self.counts.requests += u64::from(is_done);
            self.counts.sent_bytes += if is_done { length } else { 0 };
        }
        Completion {
            is_receive,
            status: wc.status.unsigned_abs(),
            length: wc.byte_len,
            immediate: (wc.wc_flags & WITH_IMMEDIATE != 0).then_some(wc.imm_data),
            is_written: is_done && wc.opcode == WRITTEN,
            is_solicited: true,
        }
    }

    /// The counts, for `slipway fast status`.
    pub(super) fn counted(&self, node: u32, number: u32, peer: SocketAddr) -> Counted {
        let Counts { requests, sent_bytes, received, received_bytes } = self.counts;
        Counted { node, number, peer, requests, sent_bytes, received, received_bytes }
    }
}

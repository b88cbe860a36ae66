//! Queue pairs that fail, and what becomes of their requests.

use super::device::State;
use super::queues::{QueuePair, state, status};
use super::receive::RECEIVED;
use crate::abi::Wc;
use crate::layout::CLOSED;

impl State {
    /// A queue pair fails: its oldest request with this status, and all others flushed. The peer sees it closed.
    pub(super) fn fail(&mut self, index: usize, first: Option<i32>) {
        let Some(mut pair) = self.queue_pairs.get_mut(index).and_then(Option::take) else { return };
        pair.state = state::ERROR;
        if pair.outside.is_some() {
            // Requests that the device has completed by now have succeeded.
            let completions = self.forget(&mut pair);
            self.complete_all(&mut pair, &completions);
        }
        self.flush(&mut pair, first);
        for connection in &mut pair.connections {
            connection.set(CLOSED, 1);
            connection.ring();
        }
        self.queue_pairs[index] = Some(pair);
    }

    /// Completes all requests of a queue pair.
    fn flush(&mut self, pair: &mut QueuePair, first: Option<i32>) {
        let mut status = first.unwrap_or(status::FLUSHED);
        pair.asked = 0;
        let flying = pair.flying.drain(..).map(|it| (it.id, it.operation));
        let waiting = pair.sending.drain(..).map(|it| (it.id, it.operation));
        let all: Vec<_> = flying.chain(waiting).collect();
        for (id, operation) in all {
            let wc = Wc { wr_id: id, status, opcode: operation.completion(), qp_num: pair.number, ..Wc::default() };
            self.complete(pair.send_cq, wc, true);
            status = status::FLUSHED;
        }
        let partial = pair.partial.take().map(|it| it.receive);
        let forwarded = pair.outside.iter_mut().flat_map(|it| it.receives.drain(..));
        let receives: Vec<_> = partial.into_iter().chain(forwarded).chain(pair.receives.drain(..)).collect();
        for receive in receives {
            let wc = Wc {
                wr_id: receive.id,
                status: status::FLUSHED,
                opcode: RECEIVED,
                qp_num: pair.number,
                ..Wc::default()
            };
            self.complete(pair.receive_cq, wc, true);
        }
    }
}

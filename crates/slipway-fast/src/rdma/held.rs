//! Requests that wait for a listener.
//!
//! A program may end a listener, and start the next at the same port: those of perftest connect twice. A device takes longer for a
//! request than such a program for that. Here a request is there at once, so it is held for a moment where the port had a listener.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipway_lab::id::NodeId;

use super::saved::Saved;
use crate::rdma_wire::Offer;
use crate::records::{Record, Records};

/// Time for which a port is remembered after its listener, and for which a request is held.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Most requests that are held, and ports that are remembered. Others are refused at once.
const MOST: usize = 1024;

/// Ports of listeners that have ended.
#[derive(Debug, Default)]
pub(super) struct Left(HashMap<(NodeId, u16), Instant>);

impl Left {
    /// A port's listener has ended.
    pub(super) fn note(&mut self, port: (NodeId, u16)) {
        self.0.retain(|_, since| since.elapsed() < PATIENCE);
        if self.0.len() < MOST {
            self.0.insert(port, Instant::now());
        }
    }

    /// Whether the port had a listener a moment ago.
    pub(super) fn is_recent(&self, port: (NodeId, u16)) -> bool {
        self.0.get(&port).is_some_and(|since| since.elapsed() < PATIENCE)
    }
}

/// A request that is held.
#[derive(Debug)]
pub(super) struct Request {
    /// The client's identifier.
    pub(super) id: u32,
    pub(super) offer: Offer,
    until: Instant,
    _record: Option<Record>,
}

/// Requests that are held, the oldest first.
#[derive(Debug)]
pub(super) struct Held {
    all: VecDeque<Request>,
    records: Arc<Records>,
}

impl Held {
    pub(super) fn new(records: Arc<Records>) -> Self {
        Self { all: VecDeque::new(), records }
    }

    /// Holds a request of a node. False where there are too many.
    pub(super) fn hold(&mut self, node: NodeId, id: u32, offer: &Offer) -> bool {
        let fits = self.all.len() < MOST;
        if fits {
            let record = self.records.add(node);
            if let Some(record) = &record {
                record.write(&Saved::Request { id, offer: Cow::Borrowed(offer) });
            }
            self.push(id, offer.clone(), record);
        }
        fits
    }

    /// Holds a request that the router before held.
    pub(super) fn resume(&mut self, id: u32, offer: Offer, record: Record) {
        self.push(id, offer, Some(record));
    }

    fn push(&mut self, id: u32, offer: Offer, record: Option<Record>) {
        self.all.push_back(Request { id, offer, until: Instant::now() + PATIENCE, _record: record });
    }

    /// Whether an identifier's request is held.
    pub(super) fn has(&self, id: u32) -> bool {
        self.all.iter().any(|request| request.id == id)
    }

    /// All requests, to try them once more: a listener is there. Those that find it is not theirs are held again until their own time.
    pub(super) fn take(&mut self) -> VecDeque<Request> {
        std::mem::take(&mut self.all)
    }

    /// Holds a request further.
    pub(super) fn keep(&mut self, request: Request) {
        self.all.push_back(request);
    }

    /// The next request whose time is over.
    pub(super) fn expired(&mut self, now: Instant) -> Option<u32> {
        self.all.pop_front_if(|request| request.until <= now).map(|request| request.id)
    }

    /// Time until the next request's is over.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.all.front().map(|request| request.until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_held_for_its_own_time_however_often_it_is_tried() {
        let file = crate::journal::file().expect("a file");
        let mut held = Held::new(Records::open(&file, 8).expect("opened").0);
        assert!(held.hold(NodeId(0), 1, &Offer::default()) && held.hold(NodeId(0), 2, &Offer::default()));
        for request in held.take() {
            held.keep(request);
        }
        assert_eq!(held.expired(Instant::now()), None);
        let later = Instant::now() + PATIENCE;
        assert_eq!((held.expired(later), held.expired(later), held.expired(later)), (Some(1), Some(2), None));
        assert_eq!(held.patience(), None);
    }
}

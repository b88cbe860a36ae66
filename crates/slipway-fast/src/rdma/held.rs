//! Requests that wait for a listener.
//!
//! A program may end a listener, and start the next at the same port: those of perftest connect twice. A device takes longer for a
//! request than such a program for that. Here a request is there at once, so it is held for a moment where the port had a listener.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use slipway_lab::id::NodeId;

use crate::rdma_wire::Offer;

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
}

/// Requests that are held, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<Request>);

impl Held {
    /// Holds a request. False where there are too many.
    pub(super) fn hold(&mut self, id: u32, offer: &Offer) -> bool {
        let fits = self.0.len() < MOST;
        if fits {
            self.0.push_back(Request { id, offer: offer.clone(), until: Instant::now() + PATIENCE });
        }
        fits
    }

    /// All requests, to try them once more: a listener is there. Those that find it is not theirs are held again until their own time.
    pub(super) fn take(&mut self) -> VecDeque<Request> {
        std::mem::take(&mut self.0)
    }

    /// Holds a request further.
    pub(super) fn keep(&mut self, request: Request) {
        self.0.push_back(request);
    }

    /// The next request whose time is over.
    pub(super) fn expired(&mut self, now: Instant) -> Option<u32> {
        self.0.pop_front_if(|request| request.until <= now).map(|request| request.id)
    }

    /// Time until the next request's is over.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.0.front().map(|request| request.until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_held_for_its_own_time_however_often_it_is_tried() {
        let mut held = Held::default();
        assert!(held.hold(1, &Offer::default()) && held.hold(2, &Offer::default()));
        for request in held.take() {
            held.keep(request);
        }
        assert_eq!(held.expired(Instant::now()), None);
        let later = Instant::now() + PATIENCE;
        assert_eq!((held.expired(later), held.expired(later), held.expired(later)), (Some(1), Some(2), None));
        assert_eq!(held.patience(), None);
    }
}

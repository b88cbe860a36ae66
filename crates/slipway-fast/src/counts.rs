//! How many connections took which way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::note::Path;
use crate::reason::Reason;

/// Counted since the router started.
#[derive(Debug, Default)]
pub struct Counts {
    pair: AtomicU64,
    tcp: AtomicU64,
    native: [AtomicU64; Reason::ALL.len()],
    refused: AtomicU64,
}

/// The numbers at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Connections within the host that are on the fast path.
    pub pair: u64,
    /// Connections to other hosts, or paced, that are on the fast path.
    pub tcp: u64,
    /// Connections on the container network, by reason.
    pub native: BTreeMap<Reason, u64>,
    /// Connections that nobody listened for.
    pub refused: u64,
}

impl Counts {
    /// A connection took the fast path.
    pub fn taken(&self, path: Path) {
        let counter = match path {
            Path::Pair => &self.pair,
            Path::Tcp => &self.tcp,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection stayed on the container network.
    pub fn native(&self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|other| *other == reason) {
            self.native[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nobody listened.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let native = Reason::ALL.into_iter().zip(self.native.iter().map(read)).filter(|(_, count)| *count > 0);
        Tally { pair: read(&self.pair), tcp: read(&self.tcp), native: native.collect(), refused: read(&self.refused) }
    }
}

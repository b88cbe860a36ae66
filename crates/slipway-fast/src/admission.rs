//! The decision whether a connection may take the fast path, under the current policy and conditions.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;

use crate::address_map::{AddressMap, Interface};
use crate::policy::{Decision, Policy, Terms};
use crate::reason::Reason;
use crate::sync::lock;

/// Permission for a connection to take the fast path, as of one moment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Admission {
    client: NodeId,
    server: Interface,
    port: u16,
    /// The terms of the rule that decided.
    #[serde(skip)]
    pub(crate) terms: Terms,
    /// The number of changes before that moment.
    #[serde(skip, default = "another_routers")]
    state: u64,
}

/// A number of changes that no router comes to: the next one checks again what this one admitted.
fn another_routers() -> u64 {
    u64::MAX
}

/// The policy, and the nodes under conditions.
#[derive(Debug)]
pub(crate) struct Rules {
    address_map: Arc<AddressMap>,
    policy: Mutex<Arc<Policy>>,
    /// Nodes whose links are under conditions.
    conditioned: Mutex<HashSet<NodeId>>,
    /// The number of changes so far.
    changes: AtomicU64,
}

impl Rules {
    /// With this policy, and without conditions.
    pub(crate) fn new(address_map: Arc<AddressMap>, policy: Policy) -> Self {
        let policy = Mutex::new(Arc::new(policy));
        Self { address_map, policy, conditioned: Mutex::default(), changes: AtomicU64::new(0) }
    }

    /// The policy now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&lock(&self.policy))
    }

    /// Replaces the policy. The caller calls [`change`](Self::change) afterwards.
    pub(crate) fn replace_policy(&self, policy: Policy) {
        *lock(&self.policy) = Arc::new(policy);
    }

    /// Replaces the set of nodes under conditions. The caller calls [`change`](Self::change) afterwards.
    pub(crate) fn replace_conditions(&self, nodes: HashSet<NodeId>) {
        *lock(&self.conditioned) = nodes;
    }

    /// Counts a change: connections that were admitted before are checked again.
    pub(crate) fn change(&self) {
        // A connection that was handed out before this is found by a walk after it; the others compare the count.
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a connection may take the fast path at all.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn admits(&self, client: NodeId, server: Interface, port: u16) -> Result<Admission, Reason> {
        let state = self.changes.load(Ordering::SeqCst);
        let conditioned = lock(&self.conditioned);
        if conditioned.contains(&client) || conditioned.contains(&server.node) {
            return Err(Reason::Conditions);
        }
        drop(conditioned);
        if self.address_map.is_ruling(client) || self.address_map.is_ruling(server.node) {
            return Err(Reason::Capabilities);
        }
        match self.policy().decide(client, server.node, port) {
            Decision::Allow(terms) => Ok(Admission { client, server, port, terms, state }),
            Decision::Deny(_) => Err(Reason::Policy),
        }
    }

    /// Decides anew about a connection that was admitted; `None` where nothing has changed since.
    pub(crate) fn recheck(&self, admission: &Admission) -> Option<Result<Admission, Reason>> {
        let is_current = self.changes.load(Ordering::SeqCst) == admission.state;
        (!is_current).then(|| self.admits(admission.client, admission.server, admission.port))
    }
}

//! Connections that live and may not be any more, ended on all hosts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use slipway_fast::flows::{Flow, Scope};
use slipway_fast::policy::Decision;
use slipway_fast::reason::Reason;
use slipway_fast::revoke::revoke;
use slipway_lab::id::HostId;

use super::Routers;
use crate::bypass::Near;
use crate::fast::error::{FastError, says};

/// Before hidden connections are looked for again: the first time, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// When something is done again, and how long is waited for that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    pub(super) due: Instant,
    pause: Duration,
}

impl Routers {
    /// Ends what lives and may not, on all hosts, and gives how many connections these were.
    pub(super) fn revoke(&mut self, near: &Near<'_>) -> Result<u64, FastError> {
        let hosts: Vec<HostId> = self.seats.keys().copied().collect();
        let (mut ended, mut hidden, mut outcome) = (BTreeSet::new(), 0, Ok(()));
        for host in hosts {
            let namespaces = near.namespaces(|node| near.lab.nodes[node].host == host);
            let scope = Scope { metadata: &self.shared.metadata, namespaces: &namespaces, net: (near.host_net)(host) };
            match revoke(scope, |flow| self.forbidden(flow)) {
                Ok(revoked) => {
                    hidden += revoked.hidden;
                    let counts = &mut self.seats.entry(host).or_default().revoked;
                    // Of one between two hosts each has an end.
                    for (_, reason) in revoked.flows.into_iter().filter(|&(number, _)| ended.insert(number)) {
                        *counts.entry(reason).or_default() += 1;
                    }
                }
                Err(error) => {
                    let error = says(format!("end fast connections on {}", near.lab.hosts[host].name))(error);
                    self.note(near.lab, host, &format!("failed to {error}"));
                    outcome = Err(error);
                }
            }
        }
        let pause = self.again.map_or(AGAIN.0, |again| (again.pause * 2).min(AGAIN.1));
        self.again = (hidden > 0).then(|| Again { due: Instant::now() + pause, pause });
        outcome.map(|()| ended.len() as u64)
    }

    /// Why a connection that lives may not, as things stand now.
    fn forbidden(&self, flow: &Flow) -> Option<Reason> {
        let (client, server) = flow.nodes(&self.shared.address_map)?;
        if self.altered.contains(&client) || self.altered.contains(&server) {
            return Some(Reason::Conditions);
        }
        match self.shared.policy.decide(client, server, flow.server.port()) {
            Decision::Allow(terms) if terms.hold(flow.path) => None,
            // One that is allowed cannot be held back as it is.
            Decision::Allow(_) | Decision::Deny(_) => Some(Reason::Policy),
        }
    }
}

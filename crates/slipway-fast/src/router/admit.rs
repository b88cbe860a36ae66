//! Which connections may take the fast path, and what becomes of those that are on their way when that changes.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Router;
use crate::address_map::Interface;
use crate::metadata::Path;
use crate::policy::{Decision, Policy, Terms};
use crate::reason::Reason;
use crate::revoke::cut;
use crate::sync::lock;

/// That a connection may take the fast path, as things stood at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    client: usize,
    server: Interface,
    port: u16,
    /// What a rule says of it.
    pub(crate) terms: Terms,
    /// The state that this is about ([`Router::changes`]).
    state: u64,
}

impl Router {
    /// Says which nodes' links are under conditions from now on. What is on its way is ended where it may not be any more;
    /// what lives is ended from outside, after this ([`revoke`](mod@crate::revoke)).
    pub fn condition(&self, nodes: HashSet<usize>) {
        *lock(&self.conditioned) = nodes;
        self.admit_anew();
    }

    /// Puts another policy in the place of the one that there was, and holds what lives to it. What may not be any more is ended
    /// as by [`condition`](Self::condition).
    pub fn set_policy(&self, policy: Policy) {
        *lock(&self.policy) = Arc::new(policy);
        self.count_anew();
        self.admit_anew();
        self.hold_anew(|_| true);
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&lock(&self.policy))
    }

    /// To be called when something has changed that [`admits`](Self::admits) looks at.
    fn admit_anew(&self) {
        // What was handed out before this is found by whoever looks after it; the rest looks here.
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a connection may take the fast path at all.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn admits(&self, client: usize, server: Interface, port: u16) -> Result<Admission, Reason> {
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

    /// Once a client's end has been handed out, ends the connection if it may not be any more. Its other end needs no such look,
    /// wherever that is by then: both end together.
    pub(crate) fn confirm(&self, admission: &Admission, end: impl AsFd, path: Path) {
        if self.changes.load(Ordering::SeqCst) == admission.state {
            return;
        }
        let reason = match self.admits(admission.client, admission.server, admission.port) {
            Ok(now) if now.terms.hold(path) => return self.hold_again(end, path),
            // What cannot be held back as it is has to be made anew.
            Ok(_) => Reason::Policy,
            Err(reason) => reason,
        };
        if cut(end, path).is_ok() {
            self.counts.revoked(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use slipway_sys::bpf::SocketStorage;

    use super::*;
    use crate::metadata::{BYTES, MetadataStore};
    use crate::peers::Peers;
    use crate::router::PersistentState;

    /// Admitted, then forbidden, then handed out: the walk for what lives may have been over before that.
    #[test]
    fn what_is_forbidden_while_it_is_handed_out_is_ended() {
        let place = Interface { node: 1, host: 0, network: 0 };
        let address_map = [(IpAddr::V4(Ipv4Addr::new(10, 64, 0, 2)), place)].into_iter().collect();
        let storage = SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map");
        let journal = crate::journal::file().expect("a file");
        let persistent = PersistentState { metadata: MetadataStore::new(storage), journal, interruptions: None };
        let router = Router::start(0, address_map, Policy::default(), persistent, Peers::new(None), |_, _| {});
        let router = router.expect("it starts");
        let admission = router.admits(0, place, 80).expect("nothing is against it");
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        router.condition(HashSet::from([7]));
        router.confirm(&admission, &one, Path::Pair);
        other.set_nonblocking(true).expect("set");
        assert_eq!(other.read(&mut [0]).expect_err("it lives").kind(), io::ErrorKind::WouldBlock);
        router.condition(HashSet::from([0]));
        router.confirm(&admission, &one, Path::Pair);
        assert_eq!(other.read(&mut [0]).expect("it has ended"), 0);
        router.confirm(&admission, &client, Path::Tcp);
        assert_eq!(server.read(&mut [0]).expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(router.counts.tally().revoked[&Reason::Conditions], 2);
    }
}

//! The router of a virtual host: it sets up the connections of the host's nodes, and is out of their way afterwards.
//!
//! Each tree of programs has a thread. The thread sleeps in the kernel until a program makes a trapped call, and then runs on that
//! program's processor (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`): a call costs two switches, and wakes no other processor. Helpers
//! serve too where more calls wait. Each node has a thread for its blocked accepts. Threads share little: the metadata of a socket
//! is on the socket.

mod accepts;
mod asked;
mod takeover;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::{io, iter, thread};

use rustix::process::{Resource, getrlimit};
use slipway_lab::id::{HostId, NodeId};
use slipway_sys::bpf::ThreadCounts;
use slipway_sys::notify::{Call, Listener};

use crate::address_map::AddressMap;
use crate::admission::Rules;
use crate::blocked_accepts::BlockedAccepts;
use crate::call::{Trapped, finish};
use crate::counts::Counts;
use crate::delivery::{Delivery, More};
use crate::epolls::Registrar;
use crate::furnish::Furnisher;
use crate::helpers::Helpers;
use crate::journal::{HandoffCall, Journal};
use crate::limits::Limiter;
use crate::metadata::MetadataStore;
use crate::node_table::NodeTable;
use crate::numbers::Numbers;
use crate::pairs::Pairs;
use crate::parts::Parts;
use crate::peers::Peers;
use crate::pending::Connection;
use crate::policy::Policy;
use crate::rdma::{Outside, Rdma};
use crate::records::Records;
use crate::status::Status;
use crate::sync::{STACK_BYTES, lock};
use crate::tree::Tree;
use crate::unsupported_options::UnsupportedOptions;
use crate::wakeup::WakeupSocket;

/// Most calls of a tree that are taken at once, before its thread runs.
const MOST_WAITING: usize = 64;

/// The state that outlives a router.
#[derive(Debug)]
pub struct PersistentState {
    /// The metadata of sockets that were handed out.
    pub metadata: MetadataStore,
    /// The file of the recovery journal ([`crate::journal`]).
    pub journal: OwnedFd,
    /// How often signals interrupted the programs' threads; `None` where nothing counts that.
    pub interruptions: Option<ThreadCounts>,
}

/// A router: its parts, and the threads that use them.
#[derive(Debug)]
pub struct Router {
    /// Connections so far, by path and reason.
    pub counts: Arc<Counts>,
    pub(crate) parts: Arc<Parts>,
    nodes: Arc<NodeTable>,
    helpers: Arc<Helpers>,
    /// Connections that the router before this one was handing to calls.
    unfinished: Mutex<Vec<(HandoffCall, Connection)>>,
    /// Trees that are not served yet.
    introduced: Mutex<Vec<Introduced>>,
}

/// A tree of programs that is not served yet.
#[derive(Debug)]
struct Introduced {
    tree: Arc<Tree>,
    blocked_accepts: Arc<BlockedAccepts>,
    /// Calls that have been taken from it.
    waiting: Vec<Call>,
}

impl Router {
    /// A router with no programs, whose helper threads run. It calls `more` with a node whose wake-up sockets are all in use, of IPv4
    /// or (`true`) of IPv6.
    ///
    /// # Errors
    /// When the kernel has no threads or epoll instances left, or the file is no recovery journal.
    pub fn start(
        host: HostId,
        address_map: AddressMap,
        policy: Policy,
        persistent: PersistentState,
        (peers, outside): (Peers, Option<Outside>),
        more: impl Fn(NodeId, bool) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let PersistentState { metadata, journal, interruptions } = persistent;
        let records = Records::open(&journal, most_pending())?;
        let (address_map, metadata, journal) = (Arc::new(address_map), Arc::new(metadata), Journal::open(&journal)?);
        let (nodes, counts) = (Arc::new(NodeTable::default()), Arc::new(Counts::default()));
        let rules = Arc::new(Rules::new(Arc::clone(&address_map), policy));
        let limiter =
            Limiter::new(Arc::clone(&address_map), Arc::clone(&metadata), Arc::clone(&nodes), Arc::clone(&rules));
        let limiter = Arc::new(limiter);
        let furnisher = Arc::new(Furnisher::new(Arc::clone(&limiter), Arc::clone(&metadata)));
        let delivery = Delivery::new(
            Arc::clone(&address_map),
            Arc::clone(&furnisher),
            Arc::clone(&metadata),
            Arc::clone(&nodes),
            journal,
            most_pending(),
            More(Box::new(more)),
        );
        let rdma = Rdma::new(host, Arc::clone(&address_map), Arc::clone(&rules), outside, records);
        let parts = Arc::new(Parts {
            host,
            address_map,
            rules,
            limiter: Arc::clone(&limiter),
            metadata,
            furnisher,
            delivery,
            unsupported: UnsupportedOptions::default(),
            pairs: Pairs::default(),
            peers,
            registrar: Registrar::start()?,
            interruptions,
            numbers: Numbers::new()?,
            rdma,
            counts: Arc::clone(&counts),
        });
        let helpers = Arc::new(Helpers::default());
        let serving = Arc::clone(&parts);
        helpers.start(move |tree, blocked_accepts, call| {
            Trapped { parts: &serving, tree, blocked_accepts, call }.carry_out();
        })?;
        thread::Builder::new().name("rates".into()).stack_size(STACK_BYTES).spawn(move || limiter.run())?;
        let (unfinished, introduced) = Default::default();
        Ok(Arc::new(Self { counts, parts, nodes, helpers, unfinished, introduced }))
    }

    /// Takes a tree of programs of a node, and goes on with the handoffs that another router had begun; `number` is the tree's, for all
    /// routers the same. It is served from the next [`serve`](Self::serve) on.
    ///
    /// # Errors
    /// When the kernel has no threads or descriptors left.
    pub fn introduce(self: &Arc<Self>, node: NodeId, number: u64, listener: Listener) -> io::Result<()> {
        self.parts.rdma.resume()?;
        let blocked_accepts = self.blocked_accepts_for(node)?;
        let tree = Arc::new(Tree::new(node, number, listener, self.nodes.gate(node))?);
        // Before Linux 6.6 the scheduler chooses, which is only slower.
        let _ = tree.listener.wake_on_the_callers_core();
        finish(&self.parts, &tree, &blocked_accepts, self.handoffs_of(number));
        self.parts.rdma.finish(&tree);
        // They say what became of the earlier router's answers, until the anchor has all programs call again.
        let waiting: Vec<Call> = iter::from_fn(|| tree.another()).take(MOST_WAITING).collect();
        for &call in &waiting {
            // A caller that is gone says nothing.
            let _ = Trapped { parts: &self.parts, tree: &tree, blocked_accepts: &blocked_accepts, call }.settle_reply();
        }
        lock(&self.introduced).push(Introduced { tree, blocked_accepts, waiting });
        Ok(())
    }

    /// Serves all trees that were introduced, each on a thread of its own until the last of its programs has ended.
    ///
    /// # Errors
    /// When the kernel has no threads left.
    pub fn serve(&self) -> io::Result<()> {
        // Connections may be left of programs that have all ended.
        self.parts.rdma.resume()?;
        let introduced = std::mem::take(&mut *lock(&self.introduced));
        introduced.into_iter().try_for_each(|introduced| self.serve_tree(introduced))
    }

    fn serve_tree(&self, Introduced { tree, blocked_accepts, waiting }: Introduced) -> io::Result<()> {
        let (parts, helpers) = (Arc::clone(&self.parts), Arc::clone(&self.helpers));
        let serving = thread::Builder::new().name(format!("node {}", tree.node)).stack_size(STACK_BYTES);
        serving.spawn(move || {
            let trapped = |call| Trapped { parts: &parts, tree: &tree, blocked_accepts: &blocked_accepts, call };
            for call in waiting {
                trapped(call).carry_out();
            }
            loop {
                match tree.next() {
                    Ok(Some((call, more))) => {
                        if more {
                            helpers.call(&tree, &blocked_accepts);
                        }
                        trapped(call).carry_out();
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(None) | Err(_) => return,
                }
            }
        })?;
        Ok(())
    }

    /// A node's blocked accepts, whose thread runs.
    fn blocked_accepts_for(self: &Arc<Self>, node: NodeId) -> io::Result<Arc<BlockedAccepts>> {
        self.nodes.blocked_accepts_or(node, &self.parts.delivery.journal, |blocked_accepts| {
            let router = Arc::clone(self);
            let waiting = thread::Builder::new().name(format!("waits {node}")).stack_size(STACK_BYTES);
            waiting.spawn(move || accepts::run(&router, node, &blocked_accepts))?;
            Ok(())
        })
    }

    /// Sets the PID namespace of a node's programs, by its inode.
    pub fn lives_in(&self, node: NodeId, namespace: u64) {
        let is_new = self.nodes.set_namespace(node, namespace);
        // A router before this one may have handed sockets out.
        if is_new && self.parts.rules.policy().limits() {
            self.parts.limiter.hold_anew(|other| other == node);
        }
    }

    /// Sets the nodes whose links are under conditions. Connections on their way end where they are no longer allowed. The anchor
    /// ends those that live, after this ([`revoke`](mod@crate::revoke)).
    pub fn condition(&self, nodes: HashSet<NodeId>) {
        self.parts.rules.replace_conditions(nodes);
        self.parts.rules.change();
        self.parts.rdma.recheck();
    }

    /// Replaces the policy, and holds connections that live to the new one. Those that are no longer allowed end as by
    /// [`condition`](Self::condition).
    pub fn set_policy(&self, policy: Policy) {
        self.parts.rules.replace_policy(policy);
        self.parts.limiter.count_anew();
        self.parts.rules.change();
        self.parts.rdma.recheck();
        self.parts.limiter.hold_anew(|_| true);
    }

    /// Adds wake-up sockets of one family, made in the node's namespace: all that come of a request.
    pub fn add_wakeup_sockets(&self, node: NodeId, ipv6: bool, wakeup_sockets: Vec<WakeupSocket>) {
        self.parts.delivery.add_wakeup_sockets(node, ipv6, wakeup_sockets);
    }

    /// Holds answers to programs of these nodes, which are about to be frozen ([`crate::gate`]).
    pub fn hold(&self, nodes: &[NodeId]) {
        for &node in nodes {
            self.nodes.gate(node).hold();
        }
    }

    /// Programs of these nodes get answers again.
    pub fn release(&self, nodes: &[NodeId]) {
        for &node in nodes {
            self.nodes.gate(node).release();
        }
        self.parts.rdma.give();
    }

    /// From now on no peer notices that listeners of this node end.
    pub fn silence(&self, node: NodeId) {
        self.nodes.silence(node);
        self.parts.rdma.silence(node);
    }

    /// The node starts anew: connections that waited for its programs end.
    pub fn wake(&self, node: NodeId) {
        if self.nodes.unsilence(node) {
            self.parts.delivery.drop_all_of(node);
            self.parts.rdma.wake(node);
        }
    }

    /// Forgets a node that has ended.
    pub fn forget(&self, node: NodeId) {
        self.parts.delivery.forget(node);
        // Clients of a silent node wait until it starts anew.
        if !self.nodes.is_silent(node) {
            self.nodes.blocked_accepts(node).iter().for_each(|blocked_accepts| blocked_accepts.drop_all());
        }
        self.parts.unsupported.forget(node);
        self.nodes.forget(node);
    }

    /// The state of the router, for a report.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            host: self.parts.host,
            connections: self.counts.tally(),
            waiting: self.parts.delivery.waiting(),
            listed: self.parts.limiter.ends.unwatched(),
            peers: self.parts.peers.status(),
        }
    }
}

/// The most connections that may wait to be accepted, of all nodes: each holds a descriptor of the router's, and a wake-up socket
/// another. Twice as many wake-up sockets may rest. The other half of the descriptors is left to serve calls with.
fn most_pending() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use slipway_lab::id::NetworkId;
    use slipway_sys::bpf::SocketStorage;

    use super::*;
    use crate::address_map::Interface;
    use crate::metadata::BYTES;
    use crate::nodes::{Lab, SERVER};
    use crate::path::Path;
    use crate::reason::Reason;

    /// Admitted, then forbidden, then handed out: the walk for what lives may have been over before that.
    #[test]
    fn what_is_forbidden_while_it_is_handed_out_is_ended() {
        let place = Interface { node: NodeId(1), host: HostId(0), network: NetworkId(0) };
        let address_map = [(IpAddr::V4(Ipv4Addr::new(10, 64, 0, 2)), place)].into_iter().collect();
        let storage = SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map");
        let journal = crate::journal::file().expect("a file");
        let persistent = PersistentState { metadata: MetadataStore::new(storage), journal, interruptions: None };
        let router =
            Router::start(HostId(0), address_map, Policy::default(), persistent, (Peers::new(None), None), |_, _| {});
        let router = router.expect("it starts");
        let admission = router.parts.rules.admits(NodeId(0), place, 80).expect("nothing is against it");
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        router.condition(HashSet::from([NodeId(7)]));
        router.parts.confirm(&admission, &one, Path::Pair);
        other.set_nonblocking(true).expect("set");
        assert_eq!(other.read(&mut [0]).expect_err("it lives").kind(), io::ErrorKind::WouldBlock);
        router.condition(HashSet::from([NodeId(0)]));
        router.parts.confirm(&admission, &one, Path::Pair);
        assert_eq!(other.read(&mut [0]).expect("it has ended"), 0);
        router.parts.confirm(&admission, &client, Path::Tcp);
        assert_eq!(server.read(&mut [0]).expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(router.counts.tally().revoked[&Reason::Conditions], 2);
    }

    /// Clients are answered meanwhile.
    #[test]
    fn programs_get_no_answers_until_they_are_released() {
        let (lab, released) = (Lab::new(), Arc::new(AtomicBool::new(false)));
        let (tell, told) = channel();
        let is_released = Arc::clone(&released);
        let server = lab.server_runs(move || {
            let listener = TcpListener::bind((SERVER, 80)).expect("bound");
            tell.send(()).expect("the test waits");
            let _first = listener.accept().expect("accepted");
            let was_released = is_released.load(Ordering::SeqCst);
            let _second = listener.accept().expect("accepted");
            was_released
        });
        told.recv().expect("it listens");
        lab.router.hold(&[NodeId(1)]);
        for _ in 0..2 {
            lab.client(|| TcpStream::connect((SERVER, 80)).map(drop)).expect("clients are answered");
        }
        released.store(true, Ordering::SeqCst);
        lab.router.release(&[NodeId(1)]);
        assert!(server.join().expect("it has both"), "it was answered before");
    }
}

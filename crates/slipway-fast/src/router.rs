//! The router of a virtual host: it sets up the connections of the host's nodes, and is out of their way afterwards.
//!
//! There is a thread for every tree of programs, which sleeps in the kernel until one of them makes a call that is trapped, and
//! then runs on that program's processor (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`): a call costs two switches and no wake-up of
//! another core. Where more calls wait, helpers serve too. Threads share little: what they know of sockets is written on the
//! sockets.

mod admit;
mod announce;
mod asked;

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{io, thread};

use rustix::process::{Resource, getrlimit};
use slipway_sys::bpf::ThreadCounts;
use slipway_sys::notify::Listener;

pub(crate) use self::admit::Admission;
use self::announce::More;
pub(crate) use self::announce::{AnnounceError, Announced};
use crate::address_map::AddressMap;
use crate::blocked_accepts::BlockedAccepts;
use crate::call::{Trapped, finish};
use crate::counts::Counts;
use crate::defaults::Defaults;
use crate::epolls::Registrar;
use crate::helpers::Helpers;
use crate::journal::{HandoffCall, Journal};
use crate::limits::Limiter;
use crate::listener_cache::ListenerCache;
use crate::metadata::{MetadataStore, first_number};
use crate::pairs::Pairs;
use crate::peers::Peers;
use crate::pending::{Connection, PendingConnections};
use crate::policy::Policy;
use crate::shares::Shares;
use crate::sync::lock;
use crate::tree::Tree;
use crate::unsupported_options::UnsupportedOptions;
use crate::wakeup::WakeupSockets;
use crate::walk;

/// Where clients' ports are counted from: the range that the kernel gives out of (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 32768..61000;

/// A thread that serves a tree of programs needs little.
pub(crate) const STACK_BYTES: usize = 128 * 1024;

/// What outlives a router.
#[derive(Debug)]
pub struct PersistentState {
    /// What is written on sockets that were handed out.
    pub metadata: MetadataStore,
    /// Where it writes what it has in hand ([`crate::journal`]).
    pub journal: OwnedFd,
    /// How often the programs' threads were interrupted; `None` where nobody counts.
    pub interruptions: Option<ThreadCounts>,
}

/// What the threads of a router share.
#[derive(Debug)]
pub struct Router {
    /// The virtual host that it is of.
    pub(crate) host: usize,
    /// Where virtual addresses live.
    pub(crate) address_map: AddressMap,
    /// What is written on sockets that were handed out.
    pub(crate) metadata: MetadataStore,
    /// As [`PersistentState::interruptions`].
    pub(crate) interruptions: Option<ThreadCounts>,
    /// What happened so far.
    pub counts: Counts,
    /// Calls that wait, by node.
    blocked_accepts: Mutex<HashMap<usize, Arc<BlockedAccepts>>>,
    /// Who mends epoll instances.
    pub(crate) registrar: Registrar,
    /// What sockets have on which nobody has set anything.
    pub(crate) defaults: Defaults,
    /// Where connections within the host come from.
    pub(crate) pairs: Pairs,
    /// Which listener is where.
    pub(crate) listener_cache: ListenerCache,
    /// Listeners whose options fast connections cannot keep.
    pub(crate) unsupported: UnsupportedOptions,
    /// The other hosts.
    pub(crate) peers: Peers,
    /// What is in hand, for the next router.
    pub(crate) journal: Arc<Journal>,
    /// What the router before this one was giving to calls.
    unfinished: Mutex<Vec<(HandoffCall, Connection)>>,
    pub(crate) limiter: Limiter,
    pub(crate) helpers: Helpers,
    policy: Mutex<Arc<Policy>>,
    more: More,
    wakeup_sockets: WakeupSockets,
    pub(crate) pending: PendingConnections,
    /// Of the connections that it may have in hand.
    pub(crate) shares: Arc<Shares>,
    /// The PID namespace of each node.
    namespaces: Mutex<HashMap<usize, u64>>,
    /// Nodes that have ended without a word.
    silent: Mutex<HashSet<usize>>,
    /// Nodes whose links are under conditions.
    conditioned: Mutex<HashSet<usize>>,
    first_flow: u64,
    /// How often what is admitted has changed.
    changes: AtomicU64,
    flows: AtomicU64,
    ports: AtomicU16,
}

impl Router {
    /// A router with no programs, whose helper threads run. `more` is called with a node whose knockers are all out, of IPv4
    /// or (`true`) of IPv6.
    ///
    /// # Errors
    /// When the kernel has no threads or epoll instances left, or the ledger is another file.
    pub fn start(
        host: usize,
        address_map: AddressMap,
        policy: Policy,
        persistent: PersistentState,
        peers: Peers,
        more: impl Fn(usize, bool) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let mut begin = [0; 8];
        rustix::rand::getrandom(&mut begin, rustix::rand::GetRandomFlags::empty())?;
        let first_flow = first_number(u64::from_ne_bytes(begin));
        let PersistentState { metadata, journal, interruptions } = persistent;
        let journal = Journal::open(&journal)?;
        let router = Arc::new(Self {
            host,
            address_map,
            metadata,
            interruptions,
            peers,
            journal,
            unfinished: Mutex::default(),
            limiter: Limiter::new(),
            helpers: Helpers::default(),
            policy: Mutex::new(Arc::new(policy)),
            more: More(Box::new(more)),
            counts: Counts::default(),
            blocked_accepts: Mutex::default(),
            registrar: Registrar::start()?,
            defaults: Defaults::default(),
            pairs: Pairs::default(),
            listener_cache: ListenerCache::default(),
            unsupported: UnsupportedOptions::default(),
            wakeup_sockets: WakeupSockets::new(2 * most_pending()),
            pending: PendingConnections::default(),
            shares: Shares::new(most_pending()),
            namespaces: Mutex::default(),
            silent: Mutex::default(),
            conditioned: Mutex::default(),
            first_flow,
            changes: AtomicU64::new(0),
            flows: AtomicU64::new(first_flow),
            ports: AtomicU16::new(u16::from_ne_bytes([begin[0], begin[1]])),
        });
        Helpers::start(&router)?;
        let sharing = Arc::clone(&router);
        thread::Builder::new().name("rates".into()).stack_size(STACK_BYTES).spawn(move || Limiter::run(&sharing))?;
        Ok(router)
    }

    /// Serves a tree of programs of a node, on a thread of its own, until the last has ended. First it goes on with what another router
    /// was giving to them; `number` is the tree's, for all routers the same.
    ///
    /// # Errors
    /// When the kernel has no threads or descriptors left.
    pub fn serve(self: &Arc<Self>, node: usize, number: u64, listener: Listener) -> io::Result<()> {
        let router = Arc::clone(self);
        let tree = Arc::new(Tree::new(node, number, listener, self.blocked_accepts_for(node)?)?);
        // Before Linux 6.6 the scheduler chooses, which is only slower.
        let _ = tree.listener.wake_on_the_callers_core();
        finish(&router, &tree, self.handoffs_of(number));
        let serving = thread::Builder::new().name(format!("node {node}")).stack_size(STACK_BYTES);
        serving.spawn(move || {
            loop {
                match tree.next() {
                    Ok(Some((call, more))) => {
                        if more {
                            router.helpers.call(&tree);
                        }
                        Trapped { router: &router, tree: &tree, call }.carry_out();
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(None) | Err(_) => return,
                }
            }
        })?;
        Ok(())
    }

    /// Where calls of a node's programs wait; `None` before it has any.
    pub(crate) fn blocked_accepts(&self, node: usize) -> Option<Arc<BlockedAccepts>> {
        lock(&self.blocked_accepts).get(&node).cloned()
    }

    /// The same, with its thread. It stays when the node ends, which may start anew.
    pub(crate) fn blocked_accepts_for(self: &Arc<Self>, node: usize) -> io::Result<Arc<BlockedAccepts>> {
        let mut all = lock(&self.blocked_accepts);
        if let Some(blocked_accepts) = all.get(&node) {
            return Ok(Arc::clone(blocked_accepts));
        }
        let blocked_accepts = Arc::new(BlockedAccepts::new(node, Arc::clone(&self.journal))?);
        let (router, waiting_calls) = (Arc::clone(self), Arc::clone(&blocked_accepts));
        let waiting = thread::Builder::new().name(format!("waits {node}")).stack_size(STACK_BYTES);
        waiting.spawn(move || waiting_calls.run(&router))?;
        all.insert(node, Arc::clone(&blocked_accepts));
        Ok(blocked_accepts)
    }

    /// Notes the PID namespace of a node's programs, by its inode.
    pub fn lives_in(&self, node: usize, namespace: u64) {
        let before = lock(&self.namespaces).insert(node, namespace);
        // What a router before this one handed out.
        if before != Some(namespace) && self.policy().limits() {
            self.hold_anew(|other| other == node);
        }
    }

    /// The processes of these nodes of the host ([`crate::walk`]).
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn processes(&self, of: impl Fn(usize) -> bool) -> io::Result<Vec<i32>> {
        let namespaces = lock(&self.namespaces);
        let chosen = namespaces.iter().filter(|(node, _)| of(**node)).map(|(_, namespace)| *namespace).collect();
        drop(namespaces);
        walk::processes(&chosen)
    }

    /// Forgets a node that has ended.
    pub fn forget(&self, node: usize) {
        self.wakeup_sockets.forget(node);
        self.listener_cache.forget(node);
        self.unsupported.forget(node);
        lock(&self.namespaces).remove(&node);
    }

    /// A port for a client that chose none. Two connections have the same one only when as many as there are came in between.
    pub(crate) fn next_port(&self) -> u16 {
        PORTS.start + self.ports.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    }

    pub(crate) fn next_flow(&self) -> u64 {
        self.flows.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a connection of a client's was made by this router, and not by one before it.
    pub(crate) fn made(&self, flow: u64) -> bool {
        (self.first_flow..self.flows.load(Ordering::Relaxed)).contains(&flow)
    }
}

/// How many connections may wait to be accepted, of all nodes: each holds a descriptor of the router's, and another who knocks. Twice
/// as many who knock may rest. The other half is left to serve calls with.
fn most_pending() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(usize::MAX)
}

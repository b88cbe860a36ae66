//! The router of a virtual host: it sets up the connections of the host's nodes, and is out of their way afterwards.
//!
//! There is a thread for every tree of programs, which sleeps in the kernel until one of them makes a call that is trapped, and
//! then runs on that program's processor (`SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`): a call costs two switches and no wake-up of
//! another core. Threads share little: what they know of sockets is written on the sockets.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, io, thread};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use slipway_sys::notify::Listener;
use slipway_sys::sockopt::{self, Name};

use crate::address::canonical;
use crate::call::{Trapped, hand_over};
use crate::channel::{Asked, Open, Reason as Refusal};
use crate::counts::Counts;
use crate::defaults::Defaults;
use crate::doors::Doors;
use crate::epolls::Registrar;
use crate::filter::SO_PASSRIGHTS;
use crate::knock::{Knocker, Knockers};
use crate::limits::{Limits, Member, Turn};
use crate::note::{Notes, Path, REMOTE, Role};
use crate::park::Parker;
use crate::peers::Peers;
use crate::pending::{AllPending, Connection, End, Pending};
use crate::places::{Place, Places};
use crate::policy::{Decision, Policy, Terms};
use crate::reason::Reason;
use crate::revoke::cut;
use crate::sync::lock;
use crate::tree::Tree;
use crate::walk;

const PASSRIGHTS: Name = Name { level: libc::SOL_SOCKET, name: SO_PASSRIGHTS };

/// Beyond `net.core.wmem_max` (`socket(7)`).
const SO_SNDBUFFORCE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUFFORCE };

/// Of an end of a pair, bytes; the kernel doubles it. A writer and a reader on two processors that wait in `select`, as those of
/// iperf3 do, pass 34 Gbit/s on instead of the 17 with the usual 208 KiB; on one, 72 instead of 46. More is little more.
const SEND_BUFFER: i32 = 300 * 1024;

/// How long more sockets to knock with may take to come; usually it is a millisecond.
const MORE_PATIENCE: Duration = Duration::from_millis(250);

/// Where clients' ports are counted from: the range that the kernel gives out of (`ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 32768..61000;

/// A thread that serves a tree of programs needs little.
const STACK_BYTES: usize = 128 * 1024;

/// That a connection may take the fast path, as things stood at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    client: usize,
    server: Place,
    port: u16,
    /// What a rule says of it.
    pub(crate) terms: Terms,
    /// The state that this is about ([`Router::changes`]).
    state: u64,
}

/// Why nobody heard of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// Nobody listens.
    Refused,
    /// The listener's queue is full.
    Full,
    /// The kernel lacked something.
    Failed,
}

impl From<Errno> for Unheard {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNREFUSED => Self::Refused,
            Errno::INPROGRESS | Errno::AGAIN | Errno::TIMEDOUT => Self::Full,
            _ => Self::Failed,
        }
    }
}

/// Asks for more sockets to knock with.
struct More(Box<dyn Fn(usize) + Send + Sync>);

impl fmt::Debug for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("More")
    }
}

/// What the threads of a router share.
#[derive(Debug)]
pub struct Router {
    /// The virtual host that it is of.
    pub host: usize,
    /// Where virtual addresses live.
    pub places: Places,
    /// What is written on sockets that were handed out.
    pub notes: Notes,
    /// What happened so far.
    pub counts: Counts,
    /// Calls that wait.
    pub parker: Parker,
    /// Who mends epoll instances.
    pub registrar: Registrar,
    /// Held while one thread accepts.
    pub accepting: Mutex<()>,
    /// What sockets have on which nobody has set anything.
    pub defaults: Defaults,
    /// Which listener is where.
    pub doors: Doors,
    /// The other hosts.
    pub peers: Peers,
    pub(crate) limits: Limits,
    policy: Mutex<Arc<Policy>>,
    more: More,
    /// Nodes that more was asked for, until it comes: a program that needs many must not have others asked at its pace.
    asked_for: Mutex<HashSet<usize>>,
    knockers: Knockers,
    pending: AllPending,
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
    /// A router with no programs, whose helper threads run. `more` is called with a node whose knockers are all out.
    ///
    /// # Errors
    /// When the kernel has no threads or epoll instances left.
    pub fn start(
        host: usize,
        places: Places,
        policy: Policy,
        notes: Notes,
        peers: Peers,
        more: impl Fn(usize) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        // Anywhere, so that numbers differ from those that a router before this one gave to connections that live.
        let mut begin = [0; 8];
        rustix::rand::getrandom(&mut begin, rustix::rand::GetRandomFlags::empty())?;
        // Of the two highest bits one is another host's, and one the parker's.
        let first_flow = u64::from_ne_bytes(begin) >> 3;
        let router = Arc::new(Self {
            host,
            places,
            notes,
            peers,
            limits: Limits::default(),
            policy: Mutex::new(Arc::new(policy)),
            more: More(Box::new(more)),
            counts: Counts::default(),
            parker: Parker::new()?,
            registrar: Registrar::start()?,
            accepting: Mutex::default(),
            defaults: Defaults::default(),
            doors: Doors::default(),
            asked_for: Mutex::default(),
            knockers: Knockers::default(),
            pending: AllPending::new(most_pending()),
            namespaces: Mutex::default(),
            silent: Mutex::default(),
            conditioned: Mutex::default(),
            first_flow,
            changes: AtomicU64::new(0),
            flows: AtomicU64::new(first_flow),
            ports: AtomicU16::new(u16::from_ne_bytes([begin[0], begin[1]])),
        });
        let parking = Arc::clone(&router);
        thread::Builder::new()
            .name("parker".into())
            .stack_size(STACK_BYTES)
            .spawn(move || parking.parker.run(&parking))?;
        let sharing = Arc::clone(&router);
        thread::Builder::new().name("rates".into()).stack_size(STACK_BYTES).spawn(move || Limits::run(&sharing))?;
        Ok(router)
    }

    /// Serves a tree of programs of a node, on a thread of its own, until the last has ended.
    ///
    /// # Errors
    /// When the kernel has no threads or descriptors left.
    pub fn serve(self: &Arc<Self>, node: usize, listener: Listener) -> io::Result<()> {
        let router = Arc::clone(self);
        let tree = Arc::new(Tree::new(node, listener)?);
        // Before Linux 6.6 the scheduler chooses, which is only slower.
        let _ = tree.listener.wake_on_the_callers_core();
        let serving = thread::Builder::new().name(format!("node {node}")).stack_size(STACK_BYTES);
        serving.spawn(move || {
            loop {
                match tree.listener.receive() {
                    Ok(Some(call)) => {
                        let call = Trapped { router: &router, tree: &tree, call };
                        call.answer(&call.serve());
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(None) | Err(_) => return,
                }
            }
        })?;
        Ok(())
    }

    /// Adds a socket to knock with, made in the node's namespace.
    pub fn add_knocker(&self, node: usize, knocker: Knocker) {
        self.knockers.put(node, Arc::new(knocker));
        lock(&self.asked_for).remove(&node);
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
        self.knockers.forget(node);
        self.doors.forget(node);
        lock(&self.asked_for).remove(&node);
        lock(&self.namespaces).remove(&node);
    }

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

    /// Once a client's end has been handed out, ends the connection if it may not be any more. Its other end needs no such look,
    /// wherever that is by then: both end together.
    pub(crate) fn confirm(&self, admission: &Admission, end: impl AsFd, path: Path) {
        if self.changes.load(Ordering::SeqCst) == admission.state {
            return;
        }
        let reason = match self.admits(admission.client, admission.server, admission.port) {
            // What cannot be held back as it is has to be made anew.
            Ok(now) if path == Path::Pair && now.terms.need_packets() => Reason::Policy,
            Ok(_) => return self.hold_again(end, path),
            Err(reason) => reason,
        };
        if cut(end, path).is_ok() {
            self.counts.revoked(reason, 1);
        }
    }

    /// Whether a connection may take the fast path at all.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn admits(&self, client: usize, server: Place, port: u16) -> Result<Admission, Reason> {
        let state = self.changes.load(Ordering::SeqCst);
        let conditioned = lock(&self.conditioned);
        if conditioned.contains(&client) || conditioned.contains(&server.node) {
            return Err(Reason::Conditions);
        }
        drop(conditioned);
        match self.policy().decide(client, server.node, port) {
            Decision::Allow(terms) => Ok(Admission { client, server, port, terms, state }),
            Decision::Deny(_) => Err(Reason::Policy),
        }
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

    /// A socket to knock with. Where all are out, more are asked for and waited for: a program that connects hundreds of times before
    /// anything is accepted has as many out at once.
    fn knocker(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        self.resting(node, ipv6).or_else(|| self.knockers.wait(node, ipv6, MORE_PATIENCE))
    }

    /// The same without waiting.
    fn resting(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        let knocker = self.knockers.take(node, ipv6);
        if knocker.is_none() && lock(&self.asked_for).insert(node) {
            (self.more.0)(node);
        }
        knocker
    }

    /// A socket that was made in the node, to be asked and not to be used.
    pub(crate) fn native(&self, node: usize, ipv6: bool) -> Option<Arc<Knocker>> {
        self.knockers.look(node, ipv6)
    }

    /// Ends a knock, and keeps who knocked for the next.
    pub(crate) fn rest(&self, node: usize, knocker: Arc<Knocker>) {
        self.parker.mind_no_more(&knocker);
        knocker.rest();
        self.knockers.put(node, knocker);
    }

    /// Tells a server of a connection: gives it to a call that waits for one, or will, or knocks. It may be accepted before this
    /// returns. Where the knock comes from, where there is one.
    pub(crate) fn announce(
        self: &Arc<Self>,
        node: usize,
        connection: Connection,
    ) -> Result<Option<SocketAddr>, Unheard> {
        match hand_over(self, node, connection) {
            Ok(()) => Ok(None),
            Err(connection) => {
                let knocker = self.knocker(node, connection.server.is_ipv6()).ok_or(Unheard::Failed)?;
                self.knock(node, connection, knocker).map(Some).map_err(|(unheard, _)| unheard)
            }
        }
    }

    /// Knocks for a connection that nobody came for, without waiting for somebody to knock.
    ///
    /// # Errors
    /// Gives the connection back.
    pub(crate) fn knock_late(&self, node: usize, connection: Connection) -> Result<(), (Unheard, Connection)> {
        match self.resting(node, connection.server.is_ipv6()) {
            Some(knocker) => self.knock(node, connection, knocker).map(drop),
            None => Err((Unheard::Failed, connection)),
        }
    }

    /// Knocks for a connection. Where the knock comes from.
    fn knock(
        &self,
        node: usize,
        connection: Connection,
        knocker: Arc<Knocker>,
    ) -> Result<SocketAddr, (Unheard, Connection)> {
        let (server, flow) = (connection.server, connection.flow);
        let pending = Pending { connection, since: self.doors.now(), knocker: Arc::clone(&knocker) };
        if let Err(Pending { connection, .. }) = self.pending.add(node, pending) {
            self.rest(node, knocker);
            return Err((Unheard::Failed, connection));
        }
        let heard = knocker.knock(server).map_err(Unheard::from).and_then(|()| {
            // Whoever accepted it already had it rest, and it may be out for another by now.
            let minded = self.pending.with(node, knocker.address, flow, |_| self.parker.mind(&knocker, flow));
            minded.unwrap_or(Ok(())).map_err(|_| Unheard::Failed)
        });
        match heard.map_err(|unheard| (unheard, self.withdraw(node, knocker.address, flow))) {
            Err((unheard, Some(connection))) => Err((unheard, connection)),
            // One that was heard late was heard nevertheless.
            _ => Ok(knocker.address),
        }
    }

    /// Puts a connection back into the queue that it was accepted from: its program had no descriptor for it.
    pub(crate) fn put_back(
        self: &Arc<Self>,
        node: usize,
        end: OwnedFd,
        path: Option<Path>,
        client: SocketAddr,
        server: SocketAddr,
    ) {
        let [client, server] = [client, server].map(canonical);
        let connection = Connection { end: End::There(end), path, flow: self.next_flow(), client, server };
        // Where the queue is full meanwhile, its peer sees it end.
        let _ = self.announce(node, connection);
    }

    /// Takes a connection back; `None` where it has been accepted.
    fn withdraw(&self, node: usize, from: SocketAddr, flow: u64) -> Option<Connection> {
        let Pending { connection, knocker, .. } = self.pending.withdraw(node, from, flow)?;
        self.rest(node, knocker);
        Some(connection)
    }

    pub(crate) fn take_pending(&self, node: usize, from: SocketAddr) -> Option<Pending> {
        self.pending.take(node, from)
    }

    /// A knock ended before it was accepted: the listener is closed. The client sees its connection end.
    pub(crate) fn unheard(&self, flow: u64) {
        if let Some((node, from)) = self.pending.find(flow)
            && !self.is_silent(node)
        {
            self.withdraw(node, from, flow);
        }
    }

    /// Whether nobody is to hear that this node has ended.
    pub(crate) fn is_silent(&self, node: usize) -> bool {
        lock(&self.silent).contains(&node)
    }

    /// From now on nobody hears that listeners of this node end.
    pub fn silence(&self, node: usize) {
        lock(&self.silent).insert(node);
    }

    /// The node starts anew, and what waited for its programs ends.
    pub fn wake(&self, node: usize) {
        if lock(&self.silent).remove(&node) {
            // Who knocked for them knocks no more: the node gets others.
            self.pending.drop_all_of(node);
            self.parker.drop_all_of(node);
        }
    }

    /// Connections that wait to be accepted.
    pub fn waiting(&self) -> usize {
        self.pending.count()
    }

    /// The router of another host asks for a server of this one.
    pub(crate) fn asked(self: &Arc<Self>, asked: Asked) {
        let flow = asked.open.flow | REMOTE;
        let (node, from, turn, member) = match self.announce_for(&asked.open) {
            Ok(announced) => announced,
            Err(refusal) => {
                // A caller that is gone needs no answer.
                let _ = asked.refuse(refusal);
                return;
            }
        };
        let end = asked.accept().ok().map(OwnedFd::from);
        let end = end.filter(|end| self.count(end, member, Path::Tcp).is_ok());
        drop(turn);
        if end.is_some() {
            self.counts.taken(Path::Tcp);
        }
        self.pending.with(node, from, flow, |pending| pending.end = end.map_or(End::Gone, End::There));
    }

    fn announce_for(self: &Arc<Self>, open: &Open) -> Result<(usize, SocketAddr, Turn<'_>, Member), Refusal> {
        let at = self.places.of(open.server.ip()).filter(|at| at.host == self.host).ok_or(Refusal::NoSuchNode)?;
        let client = self.places.of(open.client.ip()).ok_or(Refusal::NoSuchNode)?;
        // Both sides see to it: what one of them does not know yet, the other may.
        let port = open.server.port();
        let admission = self.admits(client.node, at, port).map_err(|reason| match reason {
            Reason::Policy => Refusal::Policy,
            _ => Refusal::NotServed,
        })?;
        let member = Member { role: Role::Server, client: client.node, server: at.node, port };
        let turn = self.turn(member, &admission.terms).map_err(|_| Refusal::Resources)?.ok_or(Refusal::Limit)?;
        let [client, server] = [open.client, open.server];
        let connection =
            Connection { end: End::Awaited, path: Some(Path::Tcp), flow: open.flow | REMOTE, client, server };
        match self.announce(at.node, connection) {
            // One without an end is knocked for.
            Ok(from) => Ok((at.node, from.ok_or(Refusal::Resources)?, turn, member)),
            Err(Unheard::Refused) => Err(Refusal::NobodyListens),
            Err(Unheard::Full) => Err(Refusal::Backlog),
            Err(Unheard::Failed) => Err(Refusal::Resources),
        }
    }
}

/// How many connections may wait to be accepted, of all nodes: each holds a descriptor of the router's, and up to two who knock,
/// and enough must be left to serve calls with.
fn most_pending() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(usize::MAX)
}

/// Makes an end of a pair fit for nodes: no descriptors pass through it, and it holds what a program writes at a time and as much
/// again.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.16.
pub(crate) fn seal(end: impl AsFd) -> io::Result<()> {
    let end = end.as_fd();
    sockopt::set(end, PASSRIGHTS, &0_i32.to_ne_bytes())?;
    // A pair says that it can be written to when three quarters of it are empty (`unix_writable`, `net/unix/af_unix.c`). With the
    // usual size the reader waits by then, and each of the two for the other in turn.
    sockopt::set(end, SO_SNDBUFFORCE, &SEND_BUFFER.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use slipway_sys::bpf::SocketStorage;

    use super::*;
    use crate::note::BYTES;

    #[test]
    fn an_end_of_a_pair_has_room_beyond_the_machines_limit_and_passes_no_descriptors() {
        let (ours, _) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair");
        seal(&ours).expect("these tests need root and Linux 6.16");
        let size = Name { level: libc::SOL_SOCKET, name: libc::SO_SNDBUF };
        assert_eq!(sockopt::int(&ours, size).expect("read"), 2 * SEND_BUFFER);
        assert_eq!(sockopt::int(&ours, PASSRIGHTS).expect("read"), 0);
    }

    /// Admitted, then forbidden, then handed out: the walk for what lives may have been over before that.
    #[test]
    fn what_is_forbidden_while_it_is_handed_out_is_ended() {
        let place = Place { node: 1, host: 0, network: 0 };
        let places = [(IpAddr::V4(Ipv4Addr::new(10, 64, 0, 2)), place)].into_iter().collect();
        let storage = SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map");
        let router = Router::start(0, places, Policy::default(), Notes::new(storage), Peers::new(None), |_| {});
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

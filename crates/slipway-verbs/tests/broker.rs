//! The broker, as plug-ins that may be hostile see it.

#[path = "broker/given.rs"]
mod given;
#[path = "broker/lingering.rs"]
mod lingering;
#[path = "broker/succession.rs"]
mod succession;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg,
};
use slipway_verbs::broker::{Broker, Caps, Limits, NodeConfig, Policy, Terms, gid, listen};
use slipway_verbs::layout::count;
use slipway_verbs::wire::{Answer, End, Gid, Region, Reply, Request, Shared, Transport, WireError, receive, send};

type Job = Box<dyn FnOnce(&mut Broker) + Send>;

/// A broker with nodes 1 and 2, in a thread of its own.
struct Running {
    folder: tempfile::TempDir,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn address(node: u32) -> Gid {
    gid(format!("10.9.0.{node}").parse::<IpAddr>().unwrap())
}

impl Running {
    fn new(caps: Caps, policy: Policy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::new(caps, policy).unwrap();
        for id in [1, 2] {
            let listener = listen(&folder.path().join(id.to_string())).unwrap();
            broker.add(NodeConfig { id, addresses: vec![format!("10.9.0.{id}").parse().unwrap()], listener }).unwrap();
        }
        let (jobs, queue) = mpsc::channel::<Job>();
        let thread = std::thread::spawn(move || {
            loop {
                broker.turn(Some(Duration::from_millis(5))).unwrap();
                match queue.try_recv() {
                    Ok(job) => job(&mut broker),
                    Err(mpsc::TryRecvError::Empty) => {}
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
        });
        Self { folder, jobs: Some(jobs), thread: Some(thread) }
    }

    fn open() -> Self {
        Self::new(Caps::default(), Box::new(|_, _| Ok(())))
    }

    fn with<T: Send + 'static>(&self, job: impl FnOnce(&mut Broker) -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.jobs.as_ref().unwrap().send(Box::new(move |broker| done.send(job(broker)).unwrap())).unwrap();
        result.recv().unwrap()
    }

    fn program(&self, node: u32) -> Program {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(self.folder.path().join(node.to_string())).unwrap())
            .unwrap();
        Program { socket }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Program {
    socket: OwnedFd,
}

impl Program {
    fn hear(&self) -> Result<(Answer, Vec<OwnedFd>), WireError> {
        receive(self.socket.as_fd(), RecvFlags::empty())
    }

    fn ask_with(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        send(self.socket.as_fd(), request, fds).unwrap();
        match self.hear().unwrap() {
            (Answer::Reply(Reply::Refused { errno }), _) => Err(Errno::from_raw_os_error(errno)),
            (Answer::Reply(reply), fds) => Ok((reply, fds)),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        self.ask_with(request, &[])
    }

    fn pair(&self) -> u32 {
        self.pair_of(Transport::Reliable, 1)
    }

    fn pair_of(&self, transport: Transport, domain: u32) -> u32 {
        match self.ask(&Request::CreateQueuePair { transport, domain }).unwrap().0 {
            Reply::QueuePair { number, .. } => number,
            other => panic!("{other:?}"),
        }
    }

    fn connect(&self, number: u32, node: u32, peer: u32) -> Result<(End, Vec<OwnedFd>), Errno> {
        match self.ask(&Request::Connect { number, gid: address(node), peer })? {
            (Reply::Connected { end, .. }, fds) => Ok((end, fds)),
            other => panic!("{other:?}"),
        }
    }

    fn register(&self, region: Region, file: Option<&OwnedFd>) -> Result<u32, Errno> {
        let fds: Vec<_> = file.into_iter().map(AsFd::as_fd).collect();
        match self.ask_with(&Request::Register { domain: 1, region, key: None }, &fds)?.0 {
            Reply::Key { key, .. } => Ok(key),
            other => panic!("{other:?}"),
        }
    }
}

fn region(access: u32) -> Region {
    Region { start: 4096, length: 8192, access, shared: Some(Shared { start: 4096, length: 8192 }) }
}

fn file(seals: SealFlags) -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 8192).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[test]
fn a_node_is_known_by_its_listener() {
    let broker = Running::open();
    for node in [1, 2] {
        let (reply, _) = broker.program(node).ask(&Request::Hello).unwrap();
        assert_eq!(reply, Reply::Node { gids: vec![address(node)] });
    }
}

#[test]
fn both_ends_get_the_same_memory_and_nobody_else() {
    let broker = Running::open();
    let (one, two, three) = (broker.program(1), broker.program(2), broker.program(2));
    let (a, b, c) = (one.pair(), two.pair(), three.pair());
    let (first, memory) = one.connect(a, 2, b).unwrap();
    let (other, another) = three.connect(c, 1, a).unwrap();
    let (second, same) = two.connect(b, 1, a).unwrap();
    assert_eq!((first, second, other), (End::First, End::Second, End::First));
    let inode = |fds: &[OwnedFd]| rustix::fs::fstat(&fds[0]).unwrap().st_ino;
    assert_eq!(inode(&memory), inode(&same));
    assert_ne!(inode(&memory), inode(&another), "a third queue pair is not let in");
    let joined = broker
        .with(|broker| broker.status().iter().map(|it| it.links.iter().filter(|it| it.joined).count()).sum::<usize>());
    assert_eq!(joined, 2, "one connection, at both nodes");
    rustix::net::send(&memory[1], &[1], SendFlags::empty()).unwrap();
    assert_eq!(rustix::net::recv(&same[1], &mut [0; 4], RecvFlags::empty()).unwrap().1, 1);
}

#[test]
fn nobody_touches_what_is_anothers() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(1));
    let number = one.pair();
    let key = one.register(Region { shared: None, ..region(2) }, None).unwrap();
    for request in [
        Request::DestroyQueuePair { number },
        Request::Connect { number, gid: address(2), peer: number },
        Request::Resolve { number, key },
        Request::Deregister { key },
    ] {
        assert_eq!(two.ask(&request).unwrap_err(), Errno::INVAL, "{request:?}");
    }
}

#[test]
fn the_policy_answers_before_anything_is_told() {
    let broker = Running::new(Caps::default(), Box::new(|from, _| if from == 2 { Err(Errno::ACCESS) } else { Ok(()) }));
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.pair(), two.pair());
    assert_eq!(two.connect(b, 1, a).unwrap_err(), Errno::ACCESS);
    assert_eq!(two.connect(b, 1, 999).unwrap_err(), Errno::ACCESS, "there is no such queue pair, and nothing tells");
    assert_eq!(one.connect(a, 2, 999).unwrap_err(), Errno::CONNREFUSED);
    assert_eq!(one.connect(a, 3, b).unwrap_err(), Errno::HOSTUNREACH);
}

#[test]
fn a_region_is_told_to_the_joined_peer_alone() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.pair(), two.pair());
    let key = one.register(region(2), Some(&file(SIZED))).unwrap();
    let resolve = |number, key| two.ask(&Request::Resolve { number, key });
    assert_eq!(resolve(b, key).unwrap_err(), Errno::NOTCONN);
    two.connect(b, 1, a).unwrap();
    assert_eq!(resolve(b, key).unwrap_err(), Errno::NOTCONN, "the owner has not joined");
    one.connect(a, 2, b).unwrap();
    let (reply, fds) = resolve(b, key).unwrap();
    assert_eq!((reply, fds.len()), (Reply::Region(region(2)), 1));
    assert_eq!(resolve(b, key ^ 1).unwrap_err(), Errno::ACCESS);
    let (other, mine) = (one.pair_of(Transport::Reliable, 2), two.pair());
    one.connect(other, 2, mine).unwrap();
    two.connect(mine, 1, other).unwrap();
    assert_eq!(resolve(mine, key).unwrap_err(), Errno::ACCESS, "another protection domain");
    one.ask(&Request::Deregister { key }).unwrap();
    assert_eq!(resolve(b, key).unwrap_err(), Errno::ACCESS);
}

#[test]
fn a_file_that_may_shrink_is_refused() {
    let broker = Running::open();
    let program = broker.program(1);
    let refused = |region: Region, file: Option<&OwnedFd>| program.register(region, file).unwrap_err();
    assert_eq!(refused(region(2), Some(&file(SealFlags::GROW))), Errno::INVAL);
    assert_eq!(refused(region(4), Some(&file(SIZED))), Errno::INVAL, "a region for reading that can be written");
    assert!(program.register(region(4), Some(&file(SIZED | SealFlags::FUTURE_WRITE))).is_ok());
    let longer = Region { length: 4096, ..region(2) };
    assert_eq!(refused(longer, Some(&file(SIZED))), Errno::INVAL, "more is shared than registered");
    let beyond = Region { start: u64::MAX - 1, ..region(2) };
    assert_eq!(refused(beyond, Some(&file(SIZED))), Errno::INVAL);
    assert_eq!(refused(region(2), None), Errno::INVAL);
    assert_eq!(refused(region(2), Some(&std::fs::File::open("/dev/null").unwrap().into())), Errno::BADF);
}

#[test]
fn caps_refuse_the_next() {
    let caps = Caps { programs: 3, queue_pairs: 2, regions: 1, links: 1 };
    let broker = Running::new(caps, Box::new(|_, _| Ok(())));
    let (one, two, other) = (broker.program(1), broker.program(1), broker.program(2));
    let (a, b, c, d) = (one.pair(), two.pair(), other.pair(), other.pair());
    let more = one.ask(&Request::CreateQueuePair { transport: Transport::Reliable, domain: 1 });
    assert_eq!(more.unwrap_err(), Errno::NOMEM);
    let plain = Region { shared: None, ..region(2) };
    one.register(plain, None).unwrap();
    assert_eq!(two.register(plain, None).unwrap_err(), Errno::NOMEM);
    one.connect(a, 2, c).unwrap();
    assert_eq!(two.connect(b, 2, d).unwrap_err(), Errno::NOBUFS);
    drop(one);
    while broker.with(|broker| broker.status()[0].programs) > 1 {
        std::thread::yield_now();
    }
    let others = [broker.program(1), broker.program(1)];
    for other in &others {
        other.ask(&Request::Hello).unwrap();
    }
    let fourth = broker.program(1);
    let _ = send(fourth.socket.as_fd(), &Request::Hello, &[]);
    assert!(fourth.hear().is_err());
    two.pair();
}

#[test]
fn a_revocation_reaches_both_ends() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.pair(), two.pair());
    one.connect(a, 2, b).unwrap();
    two.connect(b, 1, a).unwrap();
    assert_eq!(
        broker.with(|broker| broker.set_policy(Box::new(|_, to| if to == 2 { Err(Errno::ACCESS) } else { Ok(()) }))),
        1
    );
    assert_eq!(one.hear().unwrap().0, Answer::Revoked { number: a });
    assert_eq!(two.hear().unwrap().0, Answer::Revoked { number: b });
    assert_eq!(two.connect(b, 1, a).unwrap_err(), Errno::PERM, "a revoked queue pair is of no more use");
}

#[test]
fn datagrams_reach_a_peer_that_did_not_ask() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.pair_of(Transport::Datagram, 1), two.pair_of(Transport::Datagram, 1));
    one.connect(a, 2, b).unwrap();
    let (note, fds) = two.hear().unwrap();
    assert_eq!((note, fds.len()), (Answer::Reached { number: b, gid: address(1), peer: a, counts: 0 }, 2));
    assert_eq!(two.connect(b, 1, a).unwrap_err(), Errno::ALREADY);
    let reliable = two.pair();
    assert_eq!(one.connect(a, 2, reliable).unwrap_err(), Errno::CONNREFUSED, "another transport");
}

#[test]
fn nonsense_ends_a_program_and_no_other() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(1));
    rustix::net::send(&one.socket, &[255; 40], SendFlags::empty()).unwrap();
    assert!(one.hear().is_err());
    two.ask(&Request::Hello).unwrap();
}

/// Sends bytes along with descriptors, as many as one message may have.
fn send_along(socket: impl AsFd, bytes: &[u8], what: &OwnedFd) -> Result<usize, Errno> {
    const MOST: usize = 253;
    let rights = [what.as_fd(); MOST];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
    sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut ancillary, SendFlags::empty())
}

/// A program of node 1 hands the broker sockets that close slowly, and nobody waits for it.
#[test]
fn sockets_that_close_slowly_hold_nobody_up() {
    let broker = Running::open();
    let two = broker.program(2);
    let answers = |how: &str| {
        let (done, answered) = mpsc::channel();
        let two = Program { socket: two.socket.try_clone().unwrap() };
        std::thread::spawn(move || done.send(two.ask(&Request::Hello).map(drop)));
        assert_eq!(answered.recv_timeout(Duration::from_secs(30)), Ok(Ok(())), "{how}");
    };
    let socket = || {
        let (one, peer) = lingering::stream();
        (lingering::linger(one), peer)
    };
    let (slow, _peer) = socket();
    let one = broker.program(1);
    send(one.socket.as_fd(), &Request::Hello, &[slow.as_fd()]).unwrap();
    drop(slow);
    one.hear().unwrap();
    answers("beside a request");

    let (slow, _peer) = socket();
    send_along(&one.socket, &[255; 40], &slow).unwrap();
    for _ in 0..4 {
        // The broker ends the program before it reads these.
        let _ = send_along(&one.socket, &[255; 40], &slow);
    }
    drop(slow);
    assert!(one.hear().is_err());
    answers("beside nonsense, and unread");

    let (slow, peer) = socket();
    let one = broker.program(1);
    let (a, b) = (one.pair(), two.pair());
    let bell = one.connect(a, 2, b).unwrap().1.remove(1);
    let sent = send_along(&bell, &[1], &slow);
    if sent.is_err() {
        // The kernel refuses from Linux 6.16 on, and this test is the last to have the socket.
        assert_eq!(sent, Err(Errno::PERM));
        drop(peer);
    }
    drop((slow, bell));
    one.ask(&Request::DestroyQueuePair { number: a }).unwrap();
    answers("along a bell");
}

/// Counts are each node's own word: a program writes its own page alone, and its peer's says the same as before.
#[test]
fn a_node_counts_for_itself_and_counts_stay() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let page = |program: &Program| program.ask(&Request::Hello).unwrap().1.remove(0);
    let (mine, theirs) = (page(&one), page(&two));
    let (a, b) = (one.pair(), two.pair());
    one.connect(a, 2, b).unwrap();
    two.connect(b, 1, a).unwrap();
    let put = |page: &OwnedFd, word: usize, value: u64| {
        rustix::io::pwrite(page, &value.to_ne_bytes(), word as u64).unwrap();
    };
    put(&mine, count::SENDS, 5);
    put(&mine, count::SENDS + 8, u64::MAX);
    put(&theirs, count::RECEIVES, 4);
    let traffic = || broker.with(|broker| broker.status().iter().map(|it| it.totals[0].traffic).collect::<Vec<_>>());
    let said = traffic();
    assert_eq!((said[0].sends, said[0].send_bytes, said[1].receives), (5, u64::MAX, 4));
    assert_eq!(rustix::fs::ftruncate(&mine, 0), Err(Errno::PERM), "a page keeps its length");
    one.ask(&Request::DestroyQueuePair { number: a }).unwrap();
    assert_eq!(traffic(), said, "what has ended is counted");
    assert!(broker.with(|broker| broker.status().iter().all(|it| it.links.is_empty())));
}

/// Limits of all connections.
fn limits(terms: Terms) -> Limits {
    Box::new(move |_, _| terms)
}

fn inode(file: &OwnedFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_ino
}

#[test]
fn ends_of_a_limited_connection_share_nothing() {
    let broker = Running::open();
    broker
        .with(|broker| broker.set_rules(Box::new(|_, _| Ok(())), limits(Terms { flow: Some(1), ..Terms::default() })));
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.pair(), two.pair());
    let key = one.register(region(2), Some(&file(SIZED))).unwrap();
    let (_, first) = one.connect(a, 2, b).unwrap();
    let (_, second) = two.connect(b, 1, a).unwrap();
    assert_ne!(inode(&first[0]), inode(&second[0]));
    // Not even by the sockets that wake: what one end sends there, the broker keeps.
    rustix::net::send(&first[1], &[1], SendFlags::empty()).unwrap();
    assert_eq!(rustix::net::recv(&second[1], &mut [0; 4], RecvFlags::DONTWAIT).unwrap_err(), Errno::AGAIN);
    let told = Reply::Region(Region { shared: None, ..region(2) });
    let (reply, fds) = two.ask(&Request::Resolve { number: b, key }).unwrap();
    assert_eq!((reply, fds.len()), (told, 0), "the peer does not get the memory itself");
    let relayed = || broker.with(|broker| broker.status()[0].links[0].relayed);
    assert!(relayed());
    let other = limits(Terms { pair: Some(9), ..Terms::default() });
    assert_eq!(broker.with(|broker| broker.set_rules(Box::new(|_, _| Ok(())), other)), 0, "another limit ends nothing");
    assert_eq!(broker.with(|broker| broker.set_policy(Box::new(|_, _| Err(Errno::ACCESS)))), 1);
    // The relay lets go of both ends at once.
    assert_eq!(rustix::net::recv(&second[1], &mut [0; 4], RecvFlags::empty()).unwrap().1, 0);
}

#[test]
fn a_rule_refuses_connections_above_its_number() {
    let broker = Running::open();
    let most = Terms { connections: Some(1), ..Terms::default() };
    broker.with(move |broker| {
        let limits: Limits =
            Box::new(move |from, _| if from == 1 { most } else { Terms { rule: 1, ..Terms::default() } });
        broker.set_rules(Box::new(|_, _| Ok(())), limits)
    });
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b, c, d) = (one.pair(), one.pair(), two.pair(), two.pair());
    one.connect(a, 2, c).unwrap();
    assert_eq!(one.connect(b, 2, d).unwrap_err(), Errno::CONNREFUSED);
    two.connect(c, 1, a).unwrap();
    one.ask(&Request::DestroyQueuePair { number: a }).unwrap();
    one.connect(b, 2, d).unwrap();
}

#[test]
fn a_node_has_caps_of_its_own() {
    let broker = Running::open();
    broker.with(|broker| broker.cap(1, Some(1), Some(0)));
    let (one, two) = (broker.program(1), broker.program(2));
    one.pair();
    let more = Request::CreateQueuePair { transport: Transport::Reliable, domain: 1 };
    assert_eq!(one.ask(&more).unwrap_err(), Errno::NOMEM);
    let plain = Region { shared: None, ..region(2) };
    assert_eq!(one.register(plain, None).unwrap_err(), Errno::NOMEM);
    two.pair();
    two.pair();
    two.register(plain, None).unwrap();
}

/// A program that asks without end, and reads no reply, loses the device. Others are served meanwhile.
#[test]
fn a_flood_of_requests_harms_its_program_alone() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let asked = (0..1_000_000).find(|_| send(one.socket.as_fd(), &Request::Hello, &[]).is_err());
    assert!(asked.is_some(), "the flood ends");
    two.pair();
    while broker.with(|broker| broker.status()[0].programs) > 0 {
        std::thread::yield_now();
    }
}

/// Programs that connect and end, one after the other: nothing is left in the broker's tables, nor among its descriptors.
fn connect_and_end(times: usize) {
    let broker = Running::open();
    broker.with(|broker| {
        // Each second connection is relayed.
        let limits: Limits =
            Box::new(move |from, _| Terms { flow: (from == 2).then_some(1 << 40), ..Terms::default() });
        broker.set_rules(Box::new(|_, _| Ok(())), limits)
    });
    let (kept, peer) = (broker.program(1), broker.program(2));
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for round in 0..times {
        let short = broker.program(1);
        let (a, b) = (if round % 2 == 0 { &short } else { &kept }.pair(), peer.pair());
        let one = if round % 2 == 0 { &short } else { &kept };
        one.connect(a, 2, b).unwrap();
        peer.connect(b, 1, a).unwrap();
        one.ask(&Request::DestroyQueuePair { number: a }).unwrap();
        peer.ask(&Request::DestroyQueuePair { number: b }).unwrap();
    }
    let idle = |broker: &mut Broker| {
        broker.status().iter().all(|it| it.queue_pairs == 0 && it.links.is_empty() && it.programs == 1)
    };
    // The relay and the broker hear of ends a little later. Other tests of this process open descriptors too.
    while !broker.with(idle) || open() > before + 64 {
        std::thread::yield_now();
    }
}

#[test]
fn connections_leave_nothing() {
    connect_and_end(500);
}

#[test]
#[ignore = "a minute: `make test-long`"]
fn a_hundred_thousand_connections_leave_nothing() {
    connect_and_end(100_000);
}

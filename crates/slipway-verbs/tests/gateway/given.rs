//! A gateway, and the parts of a router and of a program, which a test plays.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
use rustix::io::FdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use slipway_verbs::gateway::{Ask, Completion, Operation, Order, Part, Span, Told, Work};
use slipway_verbs::layout::SIZED;
use slipway_verbs::management::{IN_REQUEST, LENGTH, Message, Offer, Step};
use slipway_verbs::wire;

/// Longest wait for anything: the machine is emulated.
const PATIENCE: Duration = Duration::from_mins(1);

/// A pair of sockets whose receivers wait no longer than that.
fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_timeout(&one, Timeout::Recv, Some(PATIENCE)).unwrap();
    (one, other)
}

/// The program beside the tests, where `scripts/test-vm.sh` puts it.
fn program() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("slipway-gateway")
}

pub(crate) struct Gateway {
    child: Child,
    orders: Option<OwnedFd>,
    folder: tempfile::TempDir,
}

impl Gateway {
    /// Starts one for the device with an address, as the anchor does: without privilege.
    pub(crate) fn start(address: &str) -> Self {
        let (orders, end) = pair(SocketType::SEQPACKET);
        let program = File::open(program()).expect("scripts/verbs.sh has built it");
        rustix::io::fcntl_setfd(&program, FdFlags::empty()).unwrap();
        let mut command = Command::new("prlimit");
        command.args(["--memlock=unlimited", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
        command.arg(format!("/proc/self/fd/{}", program.as_raw_fd())).arg(address);
        let mut child = command.stdin(end).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready rxe0\n");
        Self { child, orders: Some(orders), folder: tempfile::tempdir().unwrap() }
    }

    fn order(&self, order: &Order, fds: &[BorrowedFd<'_>]) {
        wire::send(self.orders.as_ref().unwrap().as_fd(), order, fds).unwrap();
    }

    /// Lets programs of a node connect.
    pub(crate) fn node(&self, node: u32) {
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&listener, &self.address(node)).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        self.order(&Order::Node { node, memory: 1 << 30 }, &[listener.as_fd()]);
    }

    fn address(&self, node: u32) -> SocketAddrUnix {
        SocketAddrUnix::new(self.folder.path().join(node.to_string())).unwrap()
    }

    /// A program of a node.
    pub(crate) fn program(&self, node: u32) -> Program {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        rustix::net::connect(&socket, &self.address(node)).unwrap();
        Program { socket, completed: VecDeque::new(), ended: Vec::new() }
    }

    /// Has a queue pair connected, as a router does.
    pub(crate) fn call(&self, node: u32, to: SocketAddr, number: u32) -> Router {
        let (router, end) = pair(SocketType::STREAM);
        rustix::io::ioctl_fionbio(&end, true).unwrap();
        self.order(&Order::Call { node, to }, &[end.as_fd()]);
        let offer = Offer {
            queue_pair: number,
            private: b"hello".to_vec(),
            responder_resources: 2,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            is_valid: true,
            ..Offer::default()
        };
        let message = Message { step: Step::Request, status: 0, offer: offer.seen(IN_REQUEST) }.write();
        // In two parts, as a stream may have them.
        for part in [&message[..7], &message[7..]] {
            assert_eq!(rustix::net::send(&router, part, SendFlags::NOSIGNAL), Ok(part.len()));
        }
        Router(router)
    }

    pub(crate) fn bar(&self, nodes: &[u32]) {
        self.order(&Order::Barred { nodes: nodes.to_vec(), is_first: true }, &[]);
    }

    /// The gateway's counts.
    pub(crate) fn status(&self) -> Vec<slipway_verbs::gateway::Counted> {
        let (own, end) = pair(SocketType::SEQPACKET);
        self.order(&Order::Status, &[end.as_fd()]);
        drop(end);
        std::iter::from_fn(|| wire::receive(own.as_fd(), RecvFlags::empty()).ok()).map(|it| it.0).collect()
    }

    /// Ends it, as an anchor does that ends itself.
    pub(crate) fn stop(mut self) {
        drop(self.orders.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The router's end of a connection.
pub(crate) struct Router(OwnedFd);

impl Router {
    /// The gateway's next message; none where it has left.
    pub(crate) fn next(&self) -> Option<Message> {
        let mut bytes = [0; LENGTH];
        match rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::WAITALL) {
            Ok((_, LENGTH)) => Some(Message::read(&bytes).unwrap()),
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => None,
            other => panic!("{other:?}"),
        }
    }
}

/// A program's end.
pub(crate) struct Program {
    socket: OwnedFd,
    completed: VecDeque<(u32, Completion)>,
    pub(crate) ended: Vec<u32>,
}

impl Program {
    /// Says something that has no reply.
    pub(crate) fn say(&self, ask: &Ask, fds: &[BorrowedFd<'_>]) {
        wire::send(self.socket.as_fd(), ask, fds).unwrap();
    }

    /// The reply to a packet.
    pub(crate) fn ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Told {
        self.say(ask, fds);
        loop {
            if let Some(reply) = self.hear() {
                return reply;
            }
        }
    }

    /// Hears one packet. Gives it if it is a reply.
    fn hear(&mut self) -> Option<Told> {
        match wire::receive(self.socket.as_fd(), RecvFlags::empty()).expect("the gateway talks").0 {
            Told::Completed { number, all } => self.completed.extend(all.into_iter().map(|it| (number, it))),
            Told::Ended { number } => self.ended.push(number),
            reply => return Some(reply),
        }
        None
    }

    /// The next completion of a queue pair.
    #[track_caller]
    pub(crate) fn completion(&mut self, number: u32) -> Completion {
        loop {
            if let Some((of, completion)) = self.completed.pop_front() {
                assert_eq!(of, number);
                return completion;
            }
            assert!(self.hear().is_none());
        }
    }

    /// Awaits the end of a queue pair's connection, and gives the statuses of what has completed until then.
    pub(crate) fn ended(&mut self, number: u32) -> Vec<(bool, u32)> {
        while self.ended.is_empty() {
            assert!(self.hear().is_none());
        }
        assert_eq!(std::mem::take(&mut self.ended), [number]);
        self.completed.drain(..).map(|(_, it)| (it.is_receive, it.status)).collect()
    }

    /// Whether the gateway ends the program.
    pub(crate) fn is_ended(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match wire::receive::<Told>(self.socket.as_fd(), RecvFlags::empty()) {
                Ok(_) => {}
                Err(_) => return begin.elapsed() < PATIENCE,
            }
        }
        false
    }

    pub(crate) fn register(&mut self, memory: &Memory, domain: u32) -> u32 {
        let (start, at, length) = (Memory::FIRST, Memory::FIRST, Memory::LENGTH);
        let ask = Ask::Register { domain, start, at, length, access: 0b1111, parts: Memory::PARTS.to_vec() };
        let files = memory.files.each_ref().map(AsFd::as_fd);
        match self.ask(&ask, &files) {
            Told::Key { key } => key,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn send(&self, number: u32, work: Work) {
        self.say(&Ask::Send { number, work }, &[]);
    }

    pub(crate) fn receive(&self, number: u32, at: u64, length: u32) {
        self.say(&Ask::Receive { number, spans: vec![Span { at, length }] }, &[]);
    }

    /// A request that must succeed.
    #[track_caller]
    pub(crate) fn carry_out(&mut self, number: u32, work: Work) {
        self.send(number, work);
        let done = self.completion(number);
        assert_eq!((done.is_receive, done.status), (false, 0));
    }
}

/// A request over spans.
pub(crate) fn work(operation: Operation, spans: &[(u64, u32)]) -> Work {
    Work {
        operation,
        spans: spans.iter().map(|&(at, length)| Span { at, length }).collect(),
        inline: Vec::new(),
        address: 0,
        key: 0,
        immediate: None,
        is_solicited: false,
        is_fenced: false,
    }
}

/// Three pages of a program's memory, on two files.
pub(crate) struct Memory {
    files: [OwnedFd; 2],
}

const PAGE: u64 = 4096;

impl Memory {
    /// The first page's address in the program.
    pub(crate) const AT: u64 = 0x7000_0000_0000;
    const PARTS: [Part; 2] = [Part { offset: PAGE, length: PAGE }, Part { offset: 0, length: 2 * PAGE }];

    pub(crate) fn new() -> Self {
        let files = [(); 2].map(|()| {
            let file = memfd_create("memory", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * PAGE).unwrap();
            fcntl_add_seals(&file, SIZED).unwrap();
            file
        });
        Self { files }
    }

    /// The first byte that is registered. It is not the first of its page.
    const FIRST: u64 = Self::AT + 0x100;
    const LENGTH: u64 = 3 * PAGE - 0x100;

    /// The file of a byte, and its offset there.
    fn place(&self, at: u64) -> (&OwnedFd, u64) {
        let offset = at - Self::AT;
        if offset < PAGE { (&self.files[0], PAGE + offset) } else { (&self.files[1], offset - PAGE) }
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            let (file, offset) = self.place(at);
            assert_eq!(rustix::io::pwrite(file, &[*byte], offset), Ok(1));
        }
    }

    pub(crate) fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let byte = |at| {
            let ((file, offset), mut byte) = (self.place(at), [0]);
            assert_eq!(rustix::io::pread(file, &mut byte[..], offset), Ok(1));
            byte[0]
        };
        (at..).take(length).map(byte).collect()
    }
}

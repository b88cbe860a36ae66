//! A device whose node has a gateway, and what a program does with it.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use super::super::super::client::{Client, connect};
use super::super::super::device::{Device, State};
use super::super::super::gateway::Session;
use super::super::super::memory::Piece;
use super::super::super::queues::{Armed, CompletionQueue, Operation, QueuePair, Receive, Work, state};
use super::super::super::regions::access;
use super::super::pairs::modify;
use super::super::requests::{go, push, set_list};
use crate::abi::{QpAttr, QpCap, Wc};
use crate::broker::{Broker, Caps, NodeConfig, listen};
use crate::gateway::{Ask, Completion, Span, Told};
use crate::wire::{self, Proof, Reply, Request, Transport};

/// The attributes' bits for a state, an address and a peer.
const BITS: i32 = 1 | 1 << 7 | 1 << 20;
pub(super) const ACCESS: u32 = access::LOCAL_WRITE | access::REMOTE_WRITE;
pub(super) const DOMAIN: u32 = 1;
/// The broker's proof for each number.
pub(super) const PROOF: Proof = [1; 16];

/// A device whose node has a gateway, and the gateway's end of the session.
pub(super) struct Given {
    pub(super) device: Arc<Device>,
    pub(super) broker: std::path::PathBuf,
    _folder: tempfile::TempDir,
    pub(super) asked: mpsc::Receiver<(Ask, Vec<OwnedFd>)>,
    pub(super) told: OwnedFd,
}

/// Replies as a gateway does that gives keys from 70 on, and has a peer for the queue pairs that it is told of first.
fn serve(socket: &OwnedFd, heard: &mpsc::Sender<(Ask, Vec<OwnedFd>)>) {
    let mut key = 69;
    let mut has_peer = true;
    while let Ok((ask, files)) = wire::receive::<Ask>(socket.as_fd(), RecvFlags::empty()) {
        let reply = match &ask {
            Ask::Register { .. } => {
                key += 1;
                Some(Told::Key { key })
            }
            Ask::Join { .. } if std::mem::take(&mut has_peer) => {
                Some(Told::Window { requests: 2, receives: 2, spans: 2 })
            }
            Ask::Join { .. } => Some(Told::Refused { errno: Errno::HOSTUNREACH.raw_os_error() }),
            Ask::Deregister { .. } | Ask::QueuePair { .. } | Ask::Forget { .. } => Some(Told::Done),
            Ask::Send { .. } | Ask::Receive { .. } => None,
        };
        if heard.send((ask, files)).is_err() {
            return;
        }
        if let Some(reply) = reply {
            wire::send(socket.as_fd(), &reply, &[]).unwrap();
        }
    }
}

pub(super) fn given() -> Given {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broker");
    let mut broker = Broker::new(Caps::default(), Box::new(|_, _| Ok(()))).unwrap();
    let addresses = vec!["10.9.0.1".parse().unwrap()];
    broker.add(NodeConfig { id: 1, addresses, listener: listen(&path).unwrap() }).unwrap();
    broker.succeed(Box::new(|_, _, _| PROOF)).unwrap();
    // It ends with the process.
    std::thread::spawn(move || broker.run());
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let told = theirs.try_clone().unwrap();
    let (heard, asked) = mpsc::channel();
    std::thread::spawn(move || serve(&theirs, &heard));
    let client = Client::over(connect("", path.to_str().unwrap()).unwrap());
    let mut state = State::new(client, Some(Session::over(ours)), -1).unwrap();
    state.completion_queues.push(Some(CompletionQueue {
        completions: VecDeque::new(),
        queue_pairs: Vec::new(),
        armed: Armed::No,
        channel: None,
        events: 0,
        empty_polls: 0,
        passed: 0,
    }));
    Given { device: Device::over(state), broker: path, _folder: folder, asked, told }
}

impl Given {
    pub(super) fn next(&self) -> Ask {
        self.asked.recv_timeout(Duration::from_secs(10)).unwrap().0
    }

    pub(super) fn nothing_more(&self) {
        assert!(self.asked.recv_timeout(Duration::from_millis(50)).is_err());
    }

    pub(super) fn tell(&self, told: &Told) {
        wire::send(self.told.as_fd(), told, &[]).unwrap();
    }

    /// Completions, once there are so many.
    pub(super) fn poll(&self, count: usize) -> Vec<Wc> {
        let mut found = Vec::new();
        for _ in 0..5000 {
            let mut to = [Wc::default(); 16];
            let more = self.device.lock().poll(0, &mut to);
            found.extend_from_slice(&to[..more]);
            if found.len() >= count {
                assert_eq!(found.len(), count, "{found:?}");
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("of {count} completions, {found:?}");
    }

    pub(super) fn register(&self, memory: Piece, flags: u32) -> u32 {
        self.device.lock().register(DOMAIN, memory, memory.at as u64, flags).unwrap()
    }

    pub(super) fn pair(&self) -> (usize, u32) {
        self.pair_of(Transport::Reliable)
    }

    pub(super) fn pair_of(&self, transport: Transport) -> (usize, u32) {
        let mut state = self.device.lock();
        let request = Request::CreateQueuePair { transport, domain: DOMAIN };
        let Ok((Reply::QueuePair { number, proof }, _)) = state.ask(&request, &[]) else { panic!("a queue pair") };
        let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 64 };
        let pair = QueuePair::new((number, proof), (transport, DOMAIN), (0, 0), None, cap, false);
        let index = State::place(&mut state.queue_pairs, Box::new(pair));
        state.queue_pairs[index].as_mut().unwrap().index = index;
        state.completion_queues[0].as_mut().unwrap().queue_pairs.push(index);
        state.introduce(index);
        (index, number)
    }

    pub(super) fn modify(&self, index: usize, to: i32) -> Result<(), Errno> {
        let mut attributes = QpAttr { qp_state: to, dest_qp_num: 99, ..QpAttr::default() };
        attributes.ah_attr.is_global = 1;
        modify(&self.device, index, &attributes, BITS)
    }

    /// A queue pair that is joined with a peer outside. Takes what the gateway has heard of it.
    pub(super) fn joined(&self) -> (usize, u32) {
        let (index, number) = self.pair();
        for to in [state::INIT, state::READY_TO_RECEIVE, state::READY_TO_SEND] {
            self.modify(index, to).unwrap();
        }
        assert_eq!(self.next(), Ask::QueuePair { number, domain: DOMAIN });
        assert_eq!(self.next(), Ask::Join { number });
        (index, number)
    }

    pub(super) fn post(&self, index: usize, work: Work) {
        let mut state = self.device.lock();
        push(&mut state, index, work).unwrap();
        go(&mut state, index);
    }

    pub(super) fn work(&self, id: u64, list: &[Piece], key: u32) -> Work {
        let mut work = Work {
            id,
            operation: Operation::Send,
            is_signaled: true,
            is_solicited: false,
            immediate: None,
            pieces: Vec::new(),
            inline: None,
            length: 0,
            address: 0,
            key: 0,
            to: None,
            is_bad: false,
            in_lab: false,
            done: 0,
            is_fenced: false,
        };
        let sge =
            |it: &Piece| crate::abi::Sge { addr: it.at as u64, length: u32::try_from(it.length).unwrap(), lkey: key };
        let list: Vec<_> = list.iter().map(sge).collect();
        set_list(&mut work, DOMAIN, &self.device.lock().regions, &list);
        work
    }

    pub(super) fn receive(&self, index: usize, id: u64, piece: Piece) {
        let mut state = self.device.lock();
        let receive = Receive { id, pieces: vec![piece], length: piece.length, is_bad: false, in_lab: false };
        state.queue_pairs[index].as_mut().unwrap().receives.push_back(receive);
        go(&mut state, index);
    }
}

pub(super) const DONE: Completion =
    Completion { is_receive: false, status: 0, length: 0, immediate: None, is_written: false, is_solicited: false };

pub(super) fn span(piece: Piece) -> Span {
    Span { at: piece.at as u64, length: u32::try_from(piece.length).unwrap() }
}

/// Results of completions, with their requests.
pub(super) fn results(all: &[Wc]) -> Vec<(u64, i32)> {
    all.iter().map(|it| (it.wr_id, it.status)).collect()
}

/// Reads a channel until there is an event.
pub(super) fn event(channel: i32) -> u64 {
    use std::io::Read as _;
    let mut file = std::fs::File::open(format!("/proc/self/fd/{channel}")).unwrap();
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

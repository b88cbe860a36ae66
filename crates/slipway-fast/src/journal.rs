//! The recovery journal: memory that outlives a router. It lists connections that no program has accepted yet, handoffs that have
//! begun, and nodes whose listeners defer. Writing costs no system call, because the routers of a host map the same memory one
//! after the other.
//!
//! The descriptors stay open when a router ends, because a keeper process shares its descriptor table (`clone_beside`). The
//! anchor takes them from the keeper by their numbers, and hands them to the next router
//! ([`Order::Unaccepted`](crate::control::Order::Unaccepted)).
//!
//! The router answers an `accept` in two steps: the kernel has the caller take the descriptor, then the router returns its
//! number. (`SECCOMP_ADDFD_FLAG_SEND` does both in one step. But the kernel counts the call as answered before the caller
//! has taken anything. A router that is killed between leaves it with number 0: `seccomp_notify_addfd`,
//! `kernel/seccomp.c`.) A router that is killed between the two steps leaves a program with an unknown descriptor. The next
//! router returns its number.
//!
//! A signal may interrupt that call while no router runs. Then the call is gone, as it is after an answer. So the journal has
//! how often signals had interrupted the thread before, for the next router's reply tracker.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;
use slipway_sys::shared::Words;

use crate::address::mapped;
use crate::metadata::Path;
use crate::records;
use crate::shares::{Share, Shares};
use crate::sync::lock;

/// Words of an entry, as many as two lines of a processor's cache.
const WORDS: usize = 16;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// Most entries, of which each node has its share. A connection without an entry ends with its router.
const ENTRIES: usize = 4096;

/// Nodes with a bit behind the entries, which says whether some of their listeners defer: more than any lab has.
const NODES: usize = 65536;

// Offsets in an entry. The stage is written last.
const STAGE: usize = 0;
const NODE: usize = 1;
const PATH: usize = 2;
const FLOW: usize = 3;
const END: usize = 4;
const WAKEUP_SOCKET: usize = 5;
const CLIENT: usize = 6;
const SERVER: usize = 9;
const TREE: usize = 12;
const CALL: usize = 13;
/// The thread, and in the upper half the descriptor of the listener.
const TID: usize = 14;
const INTERRUPTED: usize = 15;

// Stages.
const EMPTY: u64 = 0;
const WAITING: u64 = 1;
const HANDED_OFF: u64 = 2;
const REPORTED: u64 = 3;

/// Marks an absent value: no descriptor or path has this number.
const NONE: u64 = u64::MAX;

/// A connection that a router had in hand when it ended: the server's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unaccepted {
    /// The server's node.
    pub node: NodeId,
    /// The kind of connection; `None` for one of the base network.
    pub path: Option<Path>,
    /// Its number.
    pub flow: u64,
    /// The client's virtual address.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub server: SocketAddr,
    /// The call that the router was handing it to, if any.
    pub handoff: Option<HandoffCall>,
}

/// A call that a router hands a connection to. The caller may have the descriptor already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffCall {
    /// The number of the tree that the caller is of.
    pub tree: u64,
    /// The call.
    pub call: u64,
    /// The thread that makes the call.
    pub tid: i32,
    /// The descriptor at which the call accepts.
    pub listener: i32,
    /// Whether the router had begun to answer the call with the descriptor's number.
    pub reported: bool,
    /// How often signals had interrupted the thread then; `None` where nothing counts that.
    pub interrupted: Option<u64>,
}

/// The recovery journal of a host.
#[derive(Debug)]
pub struct Journal {
    words: Words,
    slots: Mutex<Slots>,
    shares: Arc<Shares>,
}

/// The free entries, and the shares that the others hold.
#[derive(Debug)]
struct Slots {
    free: Vec<usize>,
    taken: HashMap<usize, Share>,
}

/// The entry of one connection, until this is dropped. Drop it before the connection's end is closed.
#[derive(Debug)]
pub struct Entry {
    journal: Arc<Journal>,
    at: usize,
}

/// A connection, and the numbers by which its router had the server's end and the wake-up socket.
pub type TakenEntry = (Unaccepted, i32, Option<i32>);

/// An empty file for a recovery journal.
///
/// # Errors
/// As `memfd_create(2)`.
pub fn file() -> io::Result<OwnedFd> {
    Words::file("slipway-journal", ENTRIES * WORDS + NODES / BITS + records::WORDS)
}

/// Takes all entries of a journal whose router has ended.
///
/// # Errors
/// When the file is no journal, or cannot be mapped.
pub fn take(file: &OwnedFd) -> io::Result<Vec<TakenEntry>> {
    let words = Words::map(file)?;
    let taken = words.chunks_exact(WORDS).take(ENTRIES).filter_map(|entry| {
        let stage = entry[STAGE].swap(EMPTY, Acquire);
        (stage != EMPTY).then(|| read(entry, stage)).flatten()
    });
    Ok(taken.collect())
}

fn read(entry: &[AtomicU64], stage: u64) -> Option<TakenEntry> {
    let word = |at: usize| entry[at].load(Relaxed);
    let address = |at: usize| address([word(at), word(at + 1), word(at + 2)]);
    let number = |at: usize| i32::try_from(word(at)).ok();
    let path = match word(PATH) {
        NONE => None,
        0 => Some(Path::Pair),
        _ => Some(Path::Tcp),
    };
    let [tid, listener] = [0, 32].map(|by| (word(TID) >> by & u64::from(u32::MAX)).try_into().ok());
    let handoff = match stage {
        WAITING => None,
        _ => Some(HandoffCall {
            tree: word(TREE),
            call: word(CALL),
            tid: tid?,
            listener: listener?,
            reported: stage == REPORTED,
            interrupted: Some(word(INTERRUPTED)).filter(|&count| stage == REPORTED && count != NONE),
        }),
    };
    let node = NodeId(usize::try_from(word(NODE)).ok()?);
    let unaccepted =
        Unaccepted { node, path, flow: word(FLOW), client: address(CLIENT), server: address(SERVER), handoff };
    Some((unaccepted, number(END)?, number(WAKEUP_SOCKET)))
}

fn words(address: SocketAddr) -> [u64; 3] {
    let ip = mapped(address.ip());
    let [high, low] = [64, 0].map(|by| u64::try_from(ip.to_bits() >> by & u128::from(u64::MAX)).unwrap_or_default());
    [high, low, u64::from(address.port()) | u64::from(address.is_ipv6()) << 16]
}

fn address([high, low, port]: [u64; 3]) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let ip = if port >> 16 == 0 { ip.to_canonical() } else { ip.into() };
    SocketAddr::new(ip, u16::try_from(port & 0xffff).unwrap_or_default())
}

impl Journal {
    /// The journal in this file. Entries of the router before are dropped.
    ///
    /// # Errors
    /// As [`take`].
    pub fn open(file: &OwnedFd) -> io::Result<Arc<Self>> {
        drop(take(file)?);
        let slots = Mutex::new(Slots { free: (0..ENTRIES).rev().collect(), taken: HashMap::new() });
        Ok(Arc::new(Self { words: Words::map(file)?, slots, shares: Shares::new(ENTRIES) }))
    }

    /// Writes an entry for a connection that waits, or is being handed off, with its server's end. `None` where the node has its share.
    pub fn enter(self: &Arc<Self>, unaccepted: &Unaccepted, end: BorrowedFd<'_>) -> Option<Entry> {
        let share = self.shares.take(unaccepted.node, unaccepted.node)?;
        let mut slots = lock(&self.slots);
        let at = slots.free.pop()?;
        slots.taken.insert(at, share);
        drop(slots);
        let entry = Entry { journal: Arc::clone(self), at };
        let Unaccepted { node, path, flow, client, server, handoff } = unaccepted;
        let path = path.map_or(NONE, |path| u64::from(path == Path::Tcp));
        let stored = [node.index() as u64, path, *flow, number(end), NONE];
        let stored = [&stored[..], &words(*client), &words(*server)].concat();
        for (word, value) in entry.words()[NODE..].iter().zip(stored) {
            word.store(value, Relaxed);
        }
        match handoff {
            None => entry.words()[STAGE].store(WAITING, Release),
            // An earlier router began it.
            Some(HandoffCall { tree, call, tid, listener, reported, interrupted }) => {
                entry.begin_handoff(*tree, *call, *tid, *listener);
                if *reported {
                    entry.report(*interrupted);
                }
            }
        }
        Some(entry)
    }

    /// Writes down that some listeners of a node defer (`TCP_DEFER_ACCEPT`), for all routers from this one on.
    pub fn defer(&self, node: NodeId) {
        if let Some((word, bit)) = self.deferring(node) {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether some listeners of a node defer, as far as this router or an earlier one knows.
    pub fn defers(&self, node: NodeId) -> bool {
        self.deferring(node).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    fn deferring(&self, node: NodeId) -> Option<(&AtomicU64, u64)> {
        let at = node.index();
        let words = &self.words[ENTRIES * WORDS..][..NODES / BITS];
        Some((words.get(at / BITS)?, 1 << (at % BITS)))
    }
}

/// The number of a descriptor in this process.
fn number(descriptor: BorrowedFd<'_>) -> u64 {
    u64::from(descriptor.as_raw_fd().unsigned_abs())
}

impl Entry {
    fn words(&self) -> &[AtomicU64] {
        &self.journal.words[self.at * WORDS..][..WORDS]
    }

    /// Writes down the wake-up socket that announces the connection, if any.
    pub fn set_wakeup_socket(&self, wakeup_socket: Option<BorrowedFd<'_>>) {
        self.words()[WAKEUP_SOCKET].store(wakeup_socket.map_or(NONE, number), Release);
    }

    /// Writes down the call that the connection is handed to, its thread and its listener.
    pub fn begin_handoff(&self, tree: u64, call: u64, tid: i32, listener: i32) {
        let words = self.words();
        let [thread, at] = [tid, listener].map(|number| u64::from(number.unsigned_abs()));
        for (at, value) in [(TREE, tree), (CALL, call), (TID, thread | at << 32)] {
            words[at].store(value, Relaxed);
        }
        words[STAGE].store(HANDED_OFF, Release);
    }

    /// Writes down that the call is being answered, and how often signals have interrupted its thread so far.
    pub fn report(&self, interrupted: Option<u64>) {
        self.words()[INTERRUPTED].store(interrupted.unwrap_or(NONE), Relaxed);
        self.words()[STAGE].store(REPORTED, Release);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.words()[STAGE].store(EMPTY, Release);
        let mut slots = lock(&self.journal.slots);
        slots.taken.remove(&self.at);
        slots.free.push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn unaccepted(flow: u64, path: Option<Path>, client: &str, handoff: Option<HandoffCall>) -> Unaccepted {
        let [client, server] = [client, "[fd53::2]:80"].map(|address| address.parse().expect("an address"));
        Unaccepted { node: NodeId(7), path, flow, client, server, handoff }
    }

    #[test]
    fn what_was_in_hand_is_found_as_it_was() {
        let file = file().expect("a file");
        let journal = Journal::open(&file).expect("opened");
        let handoff = HandoffCall { tree: 1, call: u64::MAX, tid: 9, listener: 3, reported: false, interrupted: None };
        let all = [
            unaccepted(0, None, "10.64.0.1:1", None),
            unaccepted(1, Some(Path::Pair), "10.64.0.1:65535", None),
            unaccepted(u64::MAX, Some(Path::Tcp), "[::ffff:10.64.0.1]:2", Some(handoff)),
            unaccepted(
                3,
                Some(Path::Pair),
                "[fd53::1]:3",
                Some(HandoffCall { reported: true, interrupted: Some(5), ..handoff }),
            ),
        ];
        let waiting = all.map(|unaccepted| Unaccepted { handoff: None, ..unaccepted });
        let entries: Vec<Entry> =
            waiting.iter().map(|unaccepted| journal.enter(unaccepted, file.as_fd()).expect("room")).collect();
        drop(journal.enter(&all[0], file.as_fd()).expect("room"));
        entries[0].set_wakeup_socket(Some(file.as_fd()));
        entries[1].set_wakeup_socket(Some(file.as_fd()));
        entries[1].set_wakeup_socket(None);
        entries[2].begin_handoff(1, u64::MAX, 9, 3);
        entries[3].begin_handoff(1, u64::MAX, 9, 3);
        entries[3].report(Some(5));
        // As when their process is killed.
        entries.into_iter().for_each(std::mem::forget);
        let own = file.as_raw_fd();
        let found = take(&file).expect("there");
        let expected: Vec<TakenEntry> = all
            .into_iter()
            .zip([Some(own), None, None, None])
            .map(|(unaccepted, wakeup_socket)| (unaccepted, own, wakeup_socket))
            .collect();
        assert_eq!(found, expected);
        assert!(take(&file).expect("there").is_empty(), "once");
        // The next router writes it down as it was.
        for unaccepted in &all {
            std::mem::forget(journal.enter(unaccepted, file.as_fd()).expect("room"));
        }
        let again = take(&file).expect("there").into_iter().map(|(unaccepted, ..)| unaccepted);
        assert_eq!(again.collect::<Vec<_>>(), all);
    }

    #[test]
    fn there_is_room_again_for_what_is_over() {
        let file = file().expect("a file");
        let journal = Journal::open(&file).expect("opened");
        let one = unaccepted(0, None, "10.64.0.1:1", None);
        for _ in 0..2 {
            let all: Vec<Entry> = std::iter::from_fn(|| journal.enter(&one, file.as_fd())).collect();
            assert_eq!(all.len(), ENTRIES.div_ceil(3));
            let other = Unaccepted { node: NodeId(8), ..one };
            assert!(journal.enter(&other, file.as_fd()).is_some(), "another node has its part");
        }
        assert!(take(&file).expect("there").is_empty());
    }

    #[test]
    fn who_defers_is_known_to_the_next() {
        let file = file().expect("a file");
        let journal = Journal::open(&file).expect("opened");
        for node in [0, 64, NODES - 1, NODES, usize::MAX] {
            journal.defer(NodeId(node));
        }
        drop(journal);
        let next = Journal::open(&file).expect("opened");
        let defer: Vec<usize> = (0..=NODES).filter(|&node| next.defers(NodeId(node))).collect();
        assert_eq!(defer, [0, 64, NODES - 1]);
        let one = unaccepted(0, None, "10.64.0.1:1", None);
        let enter = |node| next.enter(&Unaccepted { node: NodeId(node), ..one }, file.as_fd());
        let all: Vec<Entry> = (0..ENTRIES).filter_map(enter).collect();
        assert!(all.iter().any(|entry| entry.at == ENTRIES - 1));
        assert!(!next.defers(NodeId(1)), "entries are elsewhere");
    }
}

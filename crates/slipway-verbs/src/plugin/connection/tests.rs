//! Two ends of a connection within a host, and peers that lie.

use super::super::ring::{Lie, for_each, kind};
use super::*;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

fn ends() -> (Connection, Connection) {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, MEMORY as u64).unwrap();
    fcntl_add_seals(&memory, SIZED).unwrap();
    let (bell, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let same = memory.try_clone().unwrap();
    (joined(memory, bell, End::First).unwrap(), joined(same, other, End::Second).unwrap())
}

fn joined(memory: OwnedFd, bell: OwnedFd, end: End) -> Result<Connection, Errno> {
    let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    Connection::new(Joint { fds: vec![memory, bell], end, counts: 0, peer: ([0; 16], 1) }, None, (epoll, 0))
}

fn piece(bytes: &mut [u8]) -> Piece {
    Piece { at: bytes.as_mut_ptr() as usize, length: bytes.len() }
}

fn put(from: &mut Connection, bytes: &mut [u8]) -> bool {
    let Ok(Some(room)) = from.requests.room(&from.memory) else { return false };
    let length = u32::try_from(bytes.len()).unwrap();
    if room < bytes.len() {
        return false;
    }
    let header = Header { kind: kind::SEND, length, total: length, address: 7, operands: [1, 2], ..Header::default() };
    from.put_request(header, &[piece(bytes)], 0);
    true
}

fn take(at: &mut Connection) -> Result<Option<Vec<u8>>, Lie> {
    let Some(header) = at.their_requests.next(&at.memory)? else { return Ok(None) };
    let mut bytes = vec![0; header.length as usize];
    at.their_requests.take(&at.memory, &header, &[piece(&mut bytes)], 0);
    at.their_requests.pass(&at.memory, &header);
    Ok(Some(bytes))
}

#[test]
fn a_file_that_may_shrink_is_no_memory_of_a_connection() {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, MEMORY as u64).unwrap();
    let (bell, _other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    assert_eq!(joined(memory, bell, End::First).unwrap_err(), Errno::INVAL);
}

/// As UCX and Open MPI do: they send datagrams to themselves.
#[test]
fn a_queue_pair_that_is_joined_with_itself_rings_itself() {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, MEMORY as u64).unwrap();
    fcntl_add_seals(&memory, SIZED).unwrap();
    let (bell, _) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut both = joined(memory, bell, End::Both).unwrap();
    both.silence(16);
    assert!(!both.is_closed(), "nobody else has the broker's end");
    both.sleep(true);
    assert!(put(&mut both, &mut [7; 100]));
    both.ring();
    assert_eq!(rustix::net::recv(both.bell(), &mut [0; 8], RecvFlags::DONTWAIT).unwrap().1, 1);
    assert_eq!(take(&mut both), Ok(Some(vec![7; 100])));
}

#[test]
fn who_sleeps_is_rung_once_and_a_closed_socket_is_seen() {
    let (mut one, mut other) = ends();
    other.ring();
    one.silence(16);
    one.sleep(true);
    other.ring();
    other.ring();
    let mut bytes = [0; 8];
    assert_eq!(rustix::net::recv(one.bell(), &mut bytes, RecvFlags::DONTWAIT).unwrap().1, 1);
    assert_eq!(rustix::net::recv(one.bell(), &mut bytes, RecvFlags::DONTWAIT).unwrap_err(), Errno::AGAIN);
    assert!(!one.is_closed());
    drop(other);
    one.silence(16);
    assert!(one.is_closed());
}

/// The peer read that nobody waits, and did not ring.
#[test]
fn what_was_consumed_before_the_wish_is_seen_with_it() {
    let (mut one, mut other) = ends();
    assert!(put(&mut one, &mut [7; 100]));
    assert!(!one.want_head(true).unwrap(), "nothing was consumed");
    assert!(!one.want_head(false).unwrap());
    assert!(take(&mut other).unwrap().is_some());
    other.ring_for_head();
    one.silence(16);
    assert_eq!((one.want_head(true).unwrap(), one.want_head(true).unwrap()), (true, false));
}

/// A peer that leaves its wake-ups in the socket, or makes it small, does not block the end that wakes it.
#[test]
fn a_full_socket_holds_nobody_up() {
    let (mut one, mut other) = ends();
    while rustix::net::send(other.bell(), &[1], SendFlags::DONTWAIT).is_ok() {}
    one.sleep(true);
    other.ring();
    assert_eq!(one.memory.word32(one.mine + BELL).load(Ordering::Relaxed), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Messages arrive whole and in their order, whatever their lengths and however often the ring is full.
    #[test]
    fn what_is_put_is_taken(messages in proptest::collection::vec(0_usize..40_000, 1..60), seed: u8) {
        let (mut one, mut other) = ends();
        let mut waiting = std::collections::VecDeque::new();
        for (number, length) in messages.into_iter().enumerate() {
            let first = seed.wrapping_add(u8::try_from(number).unwrap());
            let mut bytes: Vec<u8> = (0..length).map(|at| first.wrapping_add(u8::try_from(at % 251).unwrap())).collect();
            while !put(&mut one, &mut bytes) {
                prop_assert_eq!(take(&mut other).unwrap(), waiting.pop_front());
            }
            waiting.push_back(bytes);
        }
        for bytes in waiting {
            prop_assert_eq!(take(&mut other).unwrap(), Some(bytes));
        }
        prop_assert_eq!(take(&mut other).unwrap(), None);
    }

    /// A peer may write anything anywhere: this end reads within the memory, or notices the lie.
    #[test]
    fn whatever_the_peer_writes_nothing_outside_is_touched(
        lies in proptest::collection::vec((0_usize..RINGS / 8 + 40, any::<u64>()), 1..40),
        near in 0_u64..4096,
    ) {
        let (mut one, other) = ends();
        for (at, value) in lies {
            let place = if at < RINGS / 8 { at * 8 } else { RINGS + REQUESTS + (at - RINGS / 8) * 8 };
            other.memory.word64(place).store(value, Ordering::Relaxed);
            // Nearly right counters are worse than wrong ones.
            other.memory.word64(BLOCK + REQUEST_TAIL).store(near * 64, Ordering::Relaxed);
            for _ in 0..8 {
                if !matches!(take(&mut one), Ok(Some(_))) {
                    break;
                }
            }
            let _ = put(&mut one, &mut [1; 100]);
            let _ = one.requests.consumed(&one.memory);
            one.silence(16);
            one.refresh();
        }
    }

    #[test]
    fn pieces_are_visited_in_order(lengths in proptest::collection::vec(0_usize..50, 0..6), skip in 0_usize..120, length in 0_usize..200) {
        let pieces: Vec<Piece> = lengths.iter().enumerate().map(|(at, length)| Piece { at: at * 1000, length: *length }).collect();
        let all: Vec<usize> = pieces.iter().flat_map(|it| it.at..it.at + it.length).collect();
        let mut seen = Vec::new();
        for_each(&pieces, skip, length, |piece| seen.extend(piece.at..piece.at + piece.length));
        let expected: Vec<usize> = all.into_iter().skip(skip).take(length).collect();
        prop_assert_eq!(seen, expected);
    }
}

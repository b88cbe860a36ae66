//! Two ends of a stream, and peers that send anything.

use super::super::connection::{Connection, Joint};
use super::*;
use crate::wire::End;
use proptest::prelude::*;
use rustix::event::epoll::CreateFlags;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

fn far(stream: OwnedFd) -> Connection {
    let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
    let joint = Joint { fds: vec![stream], end: End::Far, counts: 0, peer: ([0; 16], 1) };
    Connection::new(joint, None, (epoll, 7)).unwrap()
}

fn streams() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

fn put(from: &mut Connection, bytes: &mut [u8], is_request: bool) -> bool {
    from.pull();
    let producer = if is_request { &mut from.requests } else { &mut from.responses };
    let room = producer.room(&from.memory).unwrap();
    if room.is_none_or(|room| room < bytes.len()) {
        return false;
    }
    let length = u32::try_from(bytes.len()).unwrap();
    let kind = if is_request { kind::SEND } else { kind::DATA };
    let header = Header { kind, length, total: length, flags: flag::WAITS, address: 7, ..Header::default() };
    let pieces = [Piece { at: bytes.as_mut_ptr() as usize, length: bytes.len() }];
    if is_request {
        from.put_request(header, &pieces, 0);
    } else {
        from.put_response(header, &pieces, 0);
    }
    true
}

fn take(at: &mut Connection, is_request: bool) -> Option<Vec<u8>> {
    at.pull();
    let ring = if is_request { &mut at.their_requests } else { &mut at.their_responses };
    let header = ring.next(&at.memory).unwrap()?;
    let mut bytes = vec![0; header.length as usize];
    ring.take(&at.memory, &header, &[Piece { at: bytes.as_mut_ptr() as usize, length: bytes.len() }], 0);
    ring.pass(&at.memory, &header);
    at.ring_for_head();
    Some(bytes)
}

#[test]
fn words_reach_the_peer_and_its_end_is_seen() {
    let (one, other) = streams();
    let (mut one, mut other) = (far(one), far(other));
    one.set(NOT_READY, 1);
    one.ring();
    other.pull();
    assert!(other.is_not_ready() && !other.is_closed());
    one.set(CLOSED, 1);
    one.set(FAILED, 10);
    one.ring();
    drop(one);
    other.pull();
    assert!(other.is_closed() && other.theirs(FAILED) == 10);
}

#[test]
fn an_end_that_asks_is_owed_what_was_consumed() {
    let (one, other) = streams();
    let (mut one, mut other) = (far(one), far(other));
    one.put_request(Header { kind: kind::SEND, ..Header::default() }, &[], 0);
    other.pull();
    let header = other.their_requests.next(&other.memory).unwrap().unwrap();
    other.their_requests.pass(&other.memory, &header);
    assert!(!other.owes(), "nobody waits for a record without the flag");
    one.ask_for_head();
    other.pull();
    assert!(other.owes());
    other.ring_for_head();
    one.pull();
    assert_eq!(one.requests.consumed(&one.memory), Ok(UNIT as u64));
}

#[test]
fn records_beyond_the_room_of_a_ring_cut_the_peer_off() {
    let (one, other) = streams();
    let mut other = far(other);
    let header = Header { kind: kind::SEND, length: u32::MAX, ..Header::default() };
    rustix::net::send(&one, &header.to_bytes(), SendFlags::empty()).unwrap();
    other.pull();
    assert!(other.is_cut);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Messages arrive whole and in their order, however often the room is used up.
    #[test]
    fn what_is_put_is_taken(messages in proptest::collection::vec((0_usize..40_000, any::<bool>()), 1..80), seed: u8) {
        let (one, other) = streams();
        let (mut one, mut other) = (far(one), far(other));
        let mut waiting = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
        for (number, (length, is_request)) in messages.into_iter().enumerate() {
            let first = seed.wrapping_add(u8::try_from(number).unwrap());
            let mut bytes: Vec<u8> =
                (0..length).map(|at| first.wrapping_add(u8::try_from(at % 251).unwrap())).collect();
            while !put(&mut one, &mut bytes, is_request) {
                if let Some(taken) = take(&mut other, is_request) {
                    prop_assert_eq!(Some(taken), waiting[usize::from(is_request)].pop_front());
                }
            }
            waiting[usize::from(is_request)].push_back(bytes);
        }
        while waiting.iter().any(|it| !it.is_empty()) {
            one.pull();
            for is_request in [false, true] {
                if let Some(taken) = take(&mut other, is_request) {
                    prop_assert_eq!(Some(taken), waiting[usize::from(is_request)].pop_front());
                }
            }
        }
        prop_assert!(!one.is_cut && !other.is_cut);
    }

    /// A peer may send anything: this end stays within its memory, or cuts the peer off.
    #[test]
    fn whatever_the_peer_sends_nothing_outside_is_touched(
        records in proptest::collection::vec((0_u8..10, any::<u8>(), 0_u32..70_000, any::<[u64; 2]>(), 0_usize..200), 1..40),
    ) {
        let (one, other) = streams();
        let mut other = far(other);
        for (kind, flags, length, heads, sent) in records {
            let mut bytes = Header { kind, flags, length, ..Header::default() }.to_bytes().to_vec();
            for (place, head) in bytes[HEADS..].chunks_exact_mut(8).zip(heads) {
                place.copy_from_slice(&head.to_le_bytes());
            }
            bytes.resize(UNIT + sent, 1);
            if rustix::net::send(&one, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                break;
            }
            other.pull();
            let _ = other.requests.consumed(&other.memory);
            while let Ok(Some(header)) = other.their_requests.next(&other.memory) {
                other.their_requests.pass(&other.memory, &header);
            }
        }
    }
}

//! A program's device with a gateway, which these tests play.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::super::client::{Client, connect};
use super::super::connection::Connection;
use super::super::memory::{Mapping, Piece};
use super::super::queues::{Armed, Operation, state, status};
use super::super::regions::access;
use super::super::service::turn;
use super::super::waiters::Next;
use super::requests::set_inline;
use crate::abi::Wc;
use crate::gateway::{Ask, Completion, Told};
use crate::wire::{Object, Region, Reply, Request, Transport};
use given::{ACCESS, DOMAIN, DONE, PROOF, event, given, results, span};

mod given;

#[test]
fn a_region_has_the_gateways_key_within_the_lab_too() {
    let given = given();
    // Another region of the lab has the first key that the gateway gives.
    let mut other = Client::over(connect("", given.broker.to_str().unwrap()).unwrap());
    let region = Region { start: 0, length: 1, access: 0, shared: None };
    other.ask(&Request::Register { domain: 1, region, key: Some(70) }, &[]).unwrap();
    let memory = Mapping::private(8192).unwrap();
    let (piece, local) = (memory.piece(100, 5000).unwrap(), memory.piece(6000, 10).unwrap());
    let (key, local_key) = (given.register(piece, ACCESS), given.register(local, access::LOCAL_WRITE));
    assert_eq!((key, local_key), (71, 72));
    for _ in 0..2 {
        let (ask, files) = given.asked.recv().unwrap();
        let Ask::Register { domain, start, at, length, access, parts } = ask else { panic!("{ask:?}") };
        assert_eq!((domain, access, start, at, length), (DOMAIN, ACCESS, at, piece.at as u64, 5000));
        assert_eq!((files.len(), parts[0].offset, parts[0].length), (1, 0, 8192));
    }
    assert_eq!(given.next(), Ask::Deregister { key: 70 });
    assert!(matches!(given.next(), Ask::Register { .. }));
    let taken = other.ask(&Request::Register { domain: 1, region, key: Some(71) }, &[]);
    assert!(matches!(taken, Err(Errno::EXIST)));
    given.device.lock().deregister(key);
    assert_eq!(given.next(), Ask::Deregister { key });
    other.ask(&Request::Register { domain: 1, region, key: Some(71) }, &[]).unwrap();
    assert!(matches!(other.ask(&Request::Register { domain: 1, region, key: Some(0) }, &[]), Err(Errno::INVAL)));
    given.nothing_more();
}

#[test]
fn requests_are_named_in_their_order_and_within_the_window() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let [one, other] = [memory.piece(0, 64).unwrap(), memory.piece(100, 64).unwrap()];
    let key = given.register(memory.piece(0, 4096).unwrap(), ACCESS);
    given.next();
    let (index, number) = given.joined();
    for id in 1..=3 {
        given.receive(index, id, one);
    }
    for _ in 0..2 {
        assert_eq!(given.next(), Ask::Receive { number, spans: vec![span(one)] });
    }
    let mut read = given.work(10, &[one, other], key);
    (read.operation, read.address, read.key) = (Operation::Read, 5, 6);
    given.post(index, read);
    let mut inline = given.work(11, &[], key);
    set_inline(&mut inline, std::iter::once(one));
    (inline.immediate, inline.is_fenced, inline.is_signaled) = (Some(4), true, false);
    given.post(index, inline);
    given.post(index, given.work(12, &[other], key));
    let Ask::Send { number: of, work } = given.next() else { panic!("a request") };
    assert_eq!(
        (of, work.operation, work.spans),
        (number, crate::gateway::Operation::Read, vec![span(one), span(other)])
    );
    assert_eq!((work.address, work.key, work.immediate, work.is_fenced), (5, 6, None, false));
    let Ask::Send { work, .. } = given.next() else { panic!("a request") };
    assert_eq!((work.spans, work.inline, work.immediate, work.is_fenced), (vec![], vec![0; 64], Some(4), true));
    given.nothing_more();
    let received = Completion { is_receive: true, length: 33, immediate: Some(8), ..DONE };
    given.tell(&Told::Completed { number, all: vec![DONE, received, DONE] });
    let all = given.poll(2);
    assert_eq!(results(&all), [(10, 0), (1, 0)], "one request was not to be signaled");
    assert_eq!((all[0].opcode, all[0].byte_len, all[0].qp_num), (2, 128, number));
    let Wc { opcode, byte_len, imm_data, qp_num, src_qp, wc_flags, .. } = all[1];
    assert_eq!((opcode, byte_len, imm_data, qp_num, src_qp, wc_flags), (128, 33, 8, number, 99, 2));
    assert_eq!(given.next(), Ask::Receive { number, spans: vec![span(one)] });
    assert!(matches!(given.next(), Ask::Send { .. }));
    // More than there is, or of nobody, changes nothing.
    given.tell(&Told::Completed { number: number + 1, all: vec![DONE] });
    given.tell(&Told::Completed { number, all: vec![DONE; 5] });
    assert_eq!(results(&given.poll(1)), [(12, 0)]);
}

#[test]
fn an_error_ends_a_queue_pair_and_a_reset_begins_anew() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let piece = memory.piece(0, 64).unwrap();
    let key = given.register(piece, ACCESS);
    let (index, number) = {
        given.next();
        given.joined()
    };
    given.receive(index, 1, piece);
    for id in 10..13 {
        given.post(index, given.work(id, &[piece], key));
    }
    for _ in 0..3 {
        given.next();
    }
    given.tell(&Told::Completed { number, all: vec![DONE, Completion { status: 10, ..DONE }] });
    assert_eq!(results(&given.poll(4)), [(10, 0), (11, 10), (12, 5), (1, 5)]);
    assert_eq!(given.next(), Ask::Forget { number });
    given.post(index, given.work(13, &[piece], key));
    assert_eq!(results(&given.poll(1)), [(13, status::FLUSHED)]);
    given.modify(index, state::RESET).unwrap();
    assert_eq!(given.next(), Ask::QueuePair { number, domain: DOMAIN });
    given.modify(index, state::INIT).unwrap();
    assert_eq!(given.modify(index, state::READY_TO_RECEIVE), Err(Errno::HOSTUNREACH), "the gateway has no peer for it");
    assert_eq!(given.next(), Ask::Join { number });
    given.nothing_more();
}

#[test]
fn memory_that_the_gateway_cannot_have_serves_the_lab_alone() {
    let given = given();
    let mut local = [0_u8; 64];
    let stack = Piece { at: local.as_mut_ptr() as usize, length: 64 };
    let memory = Mapping::private(4096).unwrap();
    let piece = memory.piece(0, 64).unwrap();
    let (key, stack_key) = (given.register(piece, ACCESS), given.register(stack, ACCESS));
    given.next();
    let (index, number) = given.joined();
    given.post(index, given.work(1, &[piece], key));
    given.post(index, given.work(2, &[stack], stack_key));
    assert!(matches!(given.next(), Ask::Send { .. }));
    given.nothing_more();
    given.tell(&Told::Completed { number, all: vec![DONE] });
    assert_eq!(results(&given.poll(2)), [(1, 0), (2, status::LOCAL_PROTECTION)]);
    assert_eq!(given.next(), Ask::Forget { number });
}

#[test]
fn a_completion_rings_its_channel_whoever_waits() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let channel = super::super::loader::channel();
    given.device.lock().completion_queues[0].as_mut().unwrap().channel = Some((channel, 1234));
    let (index, number) = given.joined();
    let received = Told::Completed { number, all: vec![Completion { is_receive: true, ..DONE }] };
    for id in 1..=3 {
        given.receive(index, id, memory.piece(0, 64).unwrap());
    }
    given.device.lock().arm(0, Armed::Solicited);
    given.tell(&received);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(given.device.lock().completion_queues[0].as_ref().unwrap().events, 0, "nobody has solicited it");
    given.device.lock().arm(0, Armed::Any);
    given.tell(&received);
    assert_eq!(event(channel), 1234, "the thread of service writes it");
    // A program that spins is looked after when it does so no more.
    let mut state = given.device.lock();
    state.spin(true);
    drop(state);
    given.device.lock().arm(0, Armed::Any);
    given.tell(&received);
    assert_eq!(event(channel), 1234);
    assert_eq!(results(&given.poll(3)), [(1, 0), (2, 0), (3, 0)]);
}

#[test]
fn more_pieces_than_the_device_takes_are_an_error() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let piece = memory.piece(0, 64).unwrap();
    let key = given.register(piece, ACCESS);
    let (index, _) = {
        given.next();
        given.joined()
    };
    given.post(index, given.work(1, &[piece; 3], key));
    given.post(index, given.work(2, &[piece], key));
    assert_eq!(results(&given.poll(2)), [(1, status::INVALID_REQUEST), (2, status::FLUSHED)]);
}

#[test]
fn connections_end_with_their_peer_or_with_the_gateway_and_the_rest_goes_on() {
    let given = given();
    let memory = Mapping::private(1 << 16).unwrap();
    let piece = memory.piece(0, 1 << 16).unwrap();
    let (index, number) = given.joined();
    given.receive(index, 1, piece);
    given.tell(&Told::Ended { number });
    assert_eq!(results(&given.poll(1)), [(1, status::FLUSHED)]);
    assert_eq!(given.device.lock().queue_pairs[index].as_ref().unwrap().state, state::ERROR);
    let given = given::given();
    let (index, _) = given.joined();
    given.receive(index, 2, piece);
    rustix::net::shutdown(&given.told, rustix::net::Shutdown::Both).unwrap();
    assert_eq!(results(&given.poll(1)), [(2, status::FLUSHED)]);
    let (index, _) = given.pair();
    given.modify(index, state::INIT).unwrap();
    assert_eq!(given.modify(index, state::READY_TO_RECEIVE), Err(Errno::HOSTUNREACH));
    let mut state = given.device.lock();
    assert!(state.gateway.is_none());
    let key = state.register(DOMAIN, piece, piece.at as u64, ACCESS).unwrap();
    assert!(!state.regions.is_outside(key));
    state.deregister(key);
}

#[test]
fn what_came_before_a_change_to_the_error_state_is_not_flushed() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let (index, number) = given.joined();
    given.receive(index, 1, memory.piece(0, 64).unwrap());
    given.receive(index, 2, memory.piece(0, 64).unwrap());
    given.tell(&Told::Completed { number, all: vec![Completion { is_receive: true, ..DONE }] });
    given.modify(index, state::ERROR).unwrap();
    assert_eq!(results(&given.poll(2)), [(1, 0), (2, status::FLUSHED)]);
}

#[test]
fn a_thread_that_waits_hears_the_gateway_itself() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let channel = super::super::loader::channel();
    given.device.lock().completion_queues[0].as_mut().unwrap().channel = Some((channel, 1234));
    let (index, number) = given.joined();
    given.receive(index, 1, memory.piece(0, 64).unwrap());
    given.device.lock().arm(0, Armed::Any);
    // It agrees with the thread of service first.
    let mut next = Next::Read;
    while next == Next::Read {
        next = given.device.lock().begin_wait(channel, || true);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(next, Next::Sleep);
    given.tell(&Told::Completed { number, all: vec![Completion { is_receive: true, ..DONE }] });
    let epoll = given.device.lock().epoll.clone();
    while next == Next::Sleep {
        let mut events = [std::mem::MaybeUninit::uninit(); 4];
        let (happened, _) = rustix::event::epoll::wait(&*epoll, &mut events, None).unwrap();
        let happened: Vec<u64> = happened.iter().map(|it| it.data.u64()).collect();
        next = given.device.lock().waited(&happened);
    }
    assert_eq!(next, Next::Event(1234));
    assert_eq!(results(&given.poll(1)), [(1, 0)]);
}

#[test]
fn what_was_told_of_a_queue_pair_before_it_was_forgotten_counts_no_more() {
    let given = given();
    let memory = Mapping::private(4096).unwrap();
    let (index, number) = given.joined();
    given.receive(index, 1, memory.piece(0, 64).unwrap());
    given.tell(&Told::Completed { number, all: vec![Completion { is_receive: true, ..DONE }] });
    given.tell(&Told::Ended { number });
    given.modify(index, state::RESET).unwrap();
    let state = given.device.lock();
    let pair = state.queue_pairs[index].as_ref().unwrap();
    assert!(pair.state == state::RESET && pair.is_told && pair.outside.is_none());
    drop(state);
    for _ in 0..3 {
        assert_eq!(given.device.lock().poll(0, &mut [Wc::default(); 4]), 0);
    }
}

/// Waits until the peer has closed a connection.
fn closed(connection: &Connection) {
    poll(&mut [PollFd::new(&connection.bell(), PollFlags::RDHUP)], None).unwrap();
}

/// Either end of a connection may be gone while both queue pairs live.
#[test]
fn datagrams_reach_a_peer_anew_where_either_end_has_lost_the_connection() {
    let given = given();
    let mut peer = Client::over(connect("", given.broker.to_str().unwrap()).unwrap());
    let made = peer.ask(&Request::CreateQueuePair { transport: Transport::Datagram, domain: DOMAIN }, &[]);
    let Ok((Reply::QueuePair { number: to, .. }, _)) = made else { panic!("a queue pair") };
    let (index, number) = given.pair_of(Transport::Datagram);
    let gid = given.device.lock().gids[0];
    let begin = || {
        for to in [state::INIT, state::READY_TO_RECEIVE, state::READY_TO_SEND] {
            given.modify(index, to).unwrap();
        }
    };
    let mut send = || {
        given.post(index, super::super::queues::Work { to: Some((gid, to)), ..given.work(1, &[], 0) });
        assert_eq!(results(&given.poll(1)), [(1, 0)]);
        // The note stands before the reply.
        peer.ask(&Request::Hello, &[]).unwrap();
        peer.reached(to, number)
    };
    begin();
    let kept = send();
    assert!(kept.is_some());
    // This queue pair begins anew.
    given.modify(index, state::RESET).unwrap();
    begin();
    let kept = (kept, send());
    assert!(kept.1.is_some(), "the peer hears of another connection");
    // The peer's does.
    drop(kept);
    let mut state = given.device.lock();
    closed(&state.queue_pairs[index].as_ref().unwrap().connections[0]);
    turn(&mut state, (index as u64) << 32, true);
    drop(state);
    assert!(send().is_some(), "and of a third");
    assert!(send().is_none());
}

/// A carrier, a relaying broker or the peer's program may have ended: the peer itself is there again.
#[test]
fn datagrams_reach_a_peer_anew_whose_connection_was_cut() {
    let given = given();
    let peer = || Client::over(connect("", given.broker.to_str().unwrap()).unwrap());
    let mut before = peer();
    let transport = Transport::Datagram;
    let made = before.ask(&Request::CreateQueuePair { transport, domain: DOMAIN }, &[]);
    let Ok((Reply::QueuePair { number: to, .. }, _)) = made else { panic!("a queue pair") };
    let (index, number) = given.pair_of(transport);
    let gid = given.device.lock().gids[0];
    for to in [state::INIT, state::READY_TO_RECEIVE, state::READY_TO_SEND] {
        given.modify(index, to).unwrap();
    }
    let send = |peer: &mut Client| {
        given.post(index, super::super::queues::Work { to: Some((gid, to)), ..given.work(1, &[], 0) });
        assert_eq!(results(&given.poll(1)), [(1, 0)]);
        // The note stands before the reply.
        peer.ask(&Request::Hello, &[]).unwrap();
        peer.reached(to, number)
    };
    let kept = send(&mut before);
    assert!(kept.is_some());
    assert!(send(&mut before).is_none(), "one connection for all");
    drop((before, kept));
    let mut after = peer();
    let object = Object::QueuePair { number: to, transport, domain: DOMAIN };
    after.ask(&Request::Resume { object, proof: PROOF }, &[]).unwrap();
    let mut state = given.device.lock();
    // The broker closes its own copies in a thread.
    closed(&state.queue_pairs[index].as_ref().unwrap().connections[0]);
    turn(&mut state, (index as u64) << 32, true);
    drop(state);
    let joint = send(&mut after);
    assert!(joint.is_some(), "the peer hears of a connection that was made anew");
    let connections = given.device.lock().queue_pairs[index].as_ref().unwrap().connections.len();
    assert_eq!(connections, 1, "in the place of the old");
    assert!(send(&mut after).is_none());
}

//! A broker that ends, as a program's device sees it.

use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::super::queues::QueuePair;
use super::*;
use crate::abi::QpCap;
use crate::layout::{MEMORY, SIZED};
use crate::wire::{Answer, Transport, send};

fn bells() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

#[test]
fn a_note_of_a_broker_that_has_ended_is_heard() {
    let (ours, theirs) = bells();
    let gids = vec![[1; 16]];
    send(theirs.as_fd(), &Answer::Reply(Reply::Node { gids }), &[]).unwrap();
    let mut state = State::new(Client::over(ours), None, -1).unwrap();
    let (cap, number) = (QpCap::default(), 20);
    let pair = QueuePair::new((number, [0; 16]), (Transport::Datagram, 1), (0, 0), None, cap, false);
    let index = State::place(&mut state.queue_pairs, Box::new(pair));
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, MEMORY as u64).unwrap();
    fcntl_add_seals(&memory, SIZED).unwrap();
    let (bell, _peer) = bells();
    let note = Answer::Reached { number, gid: [2; 16], peer: 30, counts: 0 };
    send(theirs.as_fd(), &note, &[memory.as_fd(), bell.as_fd()]).unwrap();
    drop(theirs);
    // No other broker listens here.
    let request = Request::CreateQueuePair { transport: Transport::Datagram, domain: 1 };
    assert_eq!(state.ask(&request, &[]).unwrap_err(), Errno::CONNRESET);
    let pair = state.queue_pairs[index].as_ref().unwrap();
    assert_eq!(pair.connections.iter().map(|it| it.peer.1).collect::<Vec<_>>(), [30]);
}

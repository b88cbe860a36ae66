//! The descriptors that programs are given, and requests that they repeat.

use rustix::fs::{FileType, fcntl_get_seals, fstat};
use rustix::net::sockopt::socket_type;

use super::*;

/// Completion queues' addresses go by channels, which are pipes of one program. So a peer must never have one.
fn are_memory_and_bell(fds: &[OwnedFd]) {
    let [memory, bell] = fds else { panic!("{} descriptors", fds.len()) };
    let kind = |fd: &OwnedFd| FileType::from_raw_mode(fstat(fd).unwrap().st_mode);
    assert_eq!((kind(memory), kind(bell)), (FileType::RegularFile, FileType::Socket));
    assert!(fcntl_get_seals(memory).unwrap().contains(SIZED | SealFlags::SEAL));
    assert_eq!(socket_type(bell).unwrap(), SocketType::SEQPACKET);
}

#[test]
fn a_peer_gets_memory_and_a_bell_and_nothing_else() {
    for flow in [None, Some(1)] {
        let broker = Running::open();
        broker
            .with(move |broker| broker.set_rules(Box::new(|_, _| Ok(())), limits(Terms { flow, ..Terms::default() })));
        let (one, two) = (broker.program(1), broker.program(2));
        let (a, b) = (one.pair(), two.pair());
        are_memory_and_bell(&one.connect(a, 2, b).unwrap().1);
        are_memory_and_bell(&two.connect(b, 1, a).unwrap().1);
        let (c, d) = (one.pair_of(Transport::Datagram, 1), two.pair_of(Transport::Datagram, 1));
        are_memory_and_bell(&one.connect(c, 2, d).unwrap().1);
        are_memory_and_bell(&two.hear().unwrap().1);
    }
}

#[test]
fn a_request_that_is_repeated_harms_its_program_alone() {
    let broker = Running::open();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b, c, d) = (one.pair(), two.pair(), one.pair(), two.pair());
    for (mine, theirs) in [(a, b), (c, d)] {
        one.connect(mine, 2, theirs).unwrap();
        two.connect(theirs, 1, mine).unwrap();
    }
    let joined = || {
        broker.with(|broker| {
            let links = broker.status().swap_remove(1).links;
            links.iter().filter(|it| it.joined).map(|it| it.queue_pair).collect::<Vec<_>>()
        })
    };
    assert_eq!(joined(), [b, d]);
    // Its own connection ends, as where a queue pair is reset.
    assert_eq!(one.connect(a, 2, b).unwrap().0, End::First);
    assert_eq!(joined(), [d]);
    let key = one.register(Region { shared: None, ..region(2) }, None).unwrap();
    for request in [Request::DestroyQueuePair { number: a }, Request::Deregister { key }] {
        one.ask(&request).unwrap();
        assert_eq!(one.ask(&request).unwrap_err(), Errno::INVAL);
    }
    assert_eq!(joined(), [d]);
    assert!(two.ask(&Request::Hello).is_ok());
}

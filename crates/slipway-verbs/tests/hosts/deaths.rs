//! Brokers and carriers that end, and queue pairs that go on or connect anew.

use rustix::net::{Shutdown, shutdown};

use super::*;

#[test]
fn a_question_waits_for_a_queue_pair_that_has_yet_to_be_named() {
    let mut lab = Lab::new([open(), open()]);
    let (a, b) = (lab.program(0), lab.program(1));
    let [reliable, datagrams] = [Transport::Reliable, Transport::Datagram]
        .map(|transport| (lab.pair(&a, transport), lab.pair(&b, transport), transport));
    lab.succeed(1);
    let b = lab.program(1);
    let (one, other, _) = datagrams;
    lab.connect(&a, one, 1, other);
    assert_eq!(lab.carry(0), Err(Errno::CONNREFUSED), "a datagram is lost, and nothing waits for it");
    assert_eq!(refused(&a), Errno::CONNREFUSED);
    let (one, other, transport) = reliable;
    lab.connect(&a, one, 1, other);
    assert_eq!(lab.carry(0), Err(Errno::AGAIN));
    assert!(hear(&a).is_none());
    assert!(lab.brokers[1].patience().is_some(), "whoever runs the broker hears when the time is over");
    lab.ask(&b, &Request::Resume { object: Object::QueuePair { number: other, transport, domain: 1 }, proof: [1; 16] });
    assert_eq!(hear(&b).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    lab.carry(0).unwrap();
    let ours = joined(&a);
    lab.connect(&b, other, 0, one);
    are_ends(&ours, &joined(&b));
}

/// As where a carrier has ended: both programs see the end of their stream.
#[test]
fn a_datagram_connection_that_has_ended_is_made_anew() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Datagram);
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    let ours = joined(&a);
    assert!(matches!(hear(&b), Some((Answer::Reached { .. }, _))));
    shutdown(&ours, Shutdown::Both).unwrap();
    lab.connect(&b, other, 0, one);
    lab.carry(1).unwrap();
    let theirs = joined(&b);
    let Some((Answer::Reached { number, peer, .. }, fds)) = hear(&a) else { panic!("not reached") };
    assert_eq!((number, peer), (one, other));
    are_ends(&theirs, &fds[0]);
}

/// As where the other broker has relayed, and was killed.
#[test]
fn a_relayed_datagram_connection_that_has_ended_is_made_anew() {
    let mut lab = Lab::new([open(), open()]);
    lab.brokers[0].set_rules(open(), Box::new(|_, _| Terms { flow: Some(1 << 30), ..Terms::default() }));
    let [(a, one), (b, other)] = lab.pairs(Transport::Datagram);
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    let Some((Answer::Reply(Reply::Connected { end: End::Second, .. }), ours)) = hear(&a) else { panic!("no relay") };
    let Some((Answer::Reached { .. }, fds)) = hear(&b) else { panic!("not reached") };
    shutdown(&fds[0], Shutdown::Both).unwrap();
    let mut bell = [PollFd::new(&ours[1], PollFlags::RDHUP)];
    poll(&mut bell, None).unwrap();
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    assert!(matches!(hear(&a), Some((Answer::Reply(Reply::Connected { end: End::Second, .. }), _))));
    assert!(matches!(hear(&b), Some((Answer::Reached { .. }, _))));
}

/// The broker that asks anew has lost the stream, even where the other one sees no end of it yet.
#[test]
fn a_datagram_connection_is_made_anew_for_the_broker_that_asked_for_it() {
    let mut lab = Lab::new([open(), open()]);
    let [(_a, one), (b, other)] = lab.pairs(Transport::Datagram);
    let name = |node: usize, number| Name { gid: gid(address(node)), number };
    let join = Join { transport: Transport::Datagram, from: name(0, one), to: name(1, other) };
    for _ in 0..2 {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        lab.brokers[1].asked(0, &join, || Ok(theirs)).unwrap();
        let Some((Answer::Reached { .. }, fds)) = hear(&b) else { panic!("not reached") };
        are_ends(&ours, &fds[0]);
    }
}

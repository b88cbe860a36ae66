//! A broker that takes another's place, and programs that say what they had: some of them lie.

use slipway_verbs::broker::Kind;
use slipway_verbs::wire::{Object, Proof};

use super::*;

/// The proof of brokers that have a key in common.
fn proof(node: u32, kind: Kind, number: u32) -> Proof {
    let mut proof = [7; 16];
    proof[..4].copy_from_slice(&node.to_ne_bytes());
    proof[4..8].copy_from_slice(&number.to_ne_bytes());
    proof[8] = u8::from(kind == Kind::Region);
    proof
}

fn successor() -> Running {
    let broker = Running::open();
    broker.with(|broker| broker.succeed(Box::new(proof))).unwrap();
    broker
}

impl Program {
    fn resume(&self, number: u32, proof: Proof) -> Result<(), Errno> {
        let object = Object::QueuePair { number, transport: Transport::Reliable, domain: 1 };
        self.ask(&Request::Resume { object, proof }).map(drop)
    }

    /// A queue pair of this node's that an earlier broker named.
    fn old(&self, node: u32, number: u32) -> u32 {
        self.resume(number, proof(node, Kind::QueuePair, number)).unwrap();
        number
    }

    fn rejoin(&self, number: u32, node: u32, peer: u32, end: End) -> Result<(), Errno> {
        let (reply, fds) = self.ask(&Request::Rejoin { number, gid: address(node), peer, end })?;
        assert!(matches!(reply, Reply::Connected { .. }) && fds.is_empty());
        Ok(())
    }

    fn hears_nothing(&self) -> bool {
        matches!(receive::<Answer>(self.socket.as_fd(), RecvFlags::DONTWAIT), Err(WireError::Socket(Errno::AGAIN)))
    }
}

#[test]
fn a_number_is_taken_up_by_the_node_that_had_it() {
    let broker = successor();
    let (one, two) = (broker.program(1), broker.program(2));
    let of_one = proof(1, Kind::QueuePair, 20);
    let mut wrong = of_one;
    wrong[15] ^= 1;
    assert_eq!(one.resume(20, wrong), Err(Errno::PERM));
    assert_eq!(two.resume(20, of_one), Err(Errno::PERM), "another node's");
    assert_eq!(one.resume(21, of_one), Err(Errno::PERM), "another number's");
    assert_eq!(one.resume(20, proof(1, Kind::Region, 20)), Err(Errno::PERM), "a proof for a region");
    one.resume(20, of_one).unwrap();
    assert_eq!(one.resume(20, of_one), Err(Errno::EXIST));
    let beyond = 0x0100_0000;
    assert_eq!(one.resume(beyond, proof(1, Kind::QueuePair, beyond)), Err(Errno::EXIST), "no number of a queue pair");
    assert_eq!(Running::open().program(1).resume(20, of_one), Err(Errno::OPNOTSUPP), "a broker without a key");
    let (reply, _) = one.ask(&Request::CreateQueuePair { transport: Transport::Reliable, domain: 1 }).unwrap();
    let Reply::QueuePair { number, proof: given } = reply else { panic!("{reply:?}") };
    assert_eq!(given, proof(1, Kind::QueuePair, number));
    broker.with(|broker| broker.cap(1, Some(2), Some(0)));
    assert_eq!(one.resume(30, proof(1, Kind::QueuePair, 30)), Err(Errno::NOMEM), "caps hold");
    let object = Object::Region { key: 5, domain: 1, region: region(2) };
    let refused = one.ask(&Request::Resume { object, proof: proof(1, Kind::Region, 5) });
    assert_eq!(refused.unwrap_err(), Errno::NOMEM);
}

#[test]
fn a_successor_rules_over_connections_of_its_predecessor() {
    let broker = successor();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.old(1, 20), two.old(2, 30));
    let object = Object::Region { key: 5, domain: 1, region: region(2) };
    one.ask(&Request::Resume { object, proof: proof(1, Kind::Region, 5) }).unwrap();
    two.rejoin(b, 1, a, End::Second).unwrap();
    let resolve = || two.ask(&Request::Resolve { number: b, key: 5 });
    assert_eq!(resolve().unwrap_err(), Errno::NOTCONN, "the owner has not said that it is joined");
    let links = |broker: &mut Broker| -> Vec<_> {
        broker.status().iter().map(|it| it.links.iter().map(|link| link.joined).collect::<Vec<_>>()).collect()
    };
    assert_eq!(broker.with(links), [vec![], vec![false]]);
    one.rejoin(a, 2, b, End::First).unwrap();
    assert_eq!(broker.with(links), [[true], [true]]);
    let (reply, fds) = resolve().unwrap();
    assert_eq!((reply, fds.len()), (Reply::Region(Region { shared: None, ..region(2) }), 0));
    assert_eq!(one.rejoin(a, 2, b, End::First), Err(Errno::EXIST));
    // Nodes that do not hear one another, and then a rule.
    assert_eq!(broker.with(|broker| broker.set_silence(Box::new(|_, _| true))), 1);
    assert_eq!(one.hear().unwrap().0, Answer::Silenced { number: a, peer: b, is_silent: true });
    assert_eq!(two.hear().unwrap().0, Answer::Silenced { number: b, peer: a, is_silent: true });
    assert_eq!(broker.with(|broker| broker.set_policy(Box::new(|_, _| Err(Errno::ACCESS)))), 1);
    assert_eq!(one.hear().unwrap().0, Answer::Revoked { number: a });
    assert_eq!(two.hear().unwrap().0, Answer::Revoked { number: b });
}

#[test]
fn rules_and_cuts_of_now_hold_for_older_connections() {
    let broker = successor();
    broker.with(|broker| broker.set_silence(Box::new(|_, _| true)));
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b) = (one.old(1, 20), two.old(2, 30));
    for (program, number, node, peer, end) in [(&one, a, 2, b, End::First), (&two, b, 1, a, End::Second)] {
        send(program.socket.as_fd(), &Request::Rejoin { number, gid: address(node), peer, end }, &[]).unwrap();
        assert_eq!(program.hear().unwrap().0, Answer::Silenced { number, peer, is_silent: true });
        assert!(matches!(program.hear().unwrap().0, Answer::Reply(Reply::Connected { .. })));
    }
    // A rule forbids the next, or has it relayed.
    let (c, d) = (one.old(1, 21), one.old(1, 22));
    broker.with(|broker| broker.set_policy(Box::new(|_, to| if to == 1 { Err(Errno::ACCESS) } else { Ok(()) })));
    assert_eq!(one.hear().unwrap().0, Answer::Revoked { number: a });
    assert_eq!(one.rejoin(c, 2, b, End::First), Err(Errno::ACCESS), "the way back counts too");
    let limited = limits(Terms { flow: Some(1), ..Terms::default() });
    broker.with(|broker| {
        broker.set_silence(Box::new(|_, _| false));
        broker.set_rules(Box::new(|_, _| Ok(())), limited)
    });
    assert_eq!(one.rejoin(d, 2, b, End::First), Err(Errno::PERM));
    for number in [c, d] {
        assert_eq!(one.connect(number, 2, b).unwrap_err(), Errno::PERM, "a revoked queue pair is of no more use");
    }
}

#[test]
fn a_lie_about_a_connection_touches_nobody_else() {
    let broker = successor();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b, c) = (one.old(1, 20), two.old(2, 30), one.old(1, 21));
    // The peer never said so: it is not revoked, and its room and its list of connections are as before.
    one.rejoin(c, 2, b, End::First).unwrap();
    assert!(broker.with(|broker| broker.status()[1].links.is_empty()));
    broker.with(|broker| broker.set_policy(Box::new(|_, to| if to == 2 { Err(Errno::ACCESS) } else { Ok(()) })));
    assert_eq!(one.hear().unwrap().0, Answer::Revoked { number: c });
    assert!(two.hears_nothing());
    broker.with(|broker| broker.set_policy(Box::new(|_, _| Ok(()))));
    // Ends that contradict each other: one says that its peer is another node, whose rules are kinder.
    one.rejoin(a, 1, b, End::First).unwrap();
    assert_eq!(two.rejoin(b, 1, a, End::Second), Err(Errno::PERM));
    assert_eq!(one.hear().unwrap().0, Answer::Revoked { number: a });
    for (number, node, end) in [(a, 3, End::First), (c, 2, End::Far), (c, 2, End::Both)] {
        assert!(one.rejoin(number, node, b, end).is_err());
    }
    assert_eq!(two.rejoin(a, 1, b, End::First), Err(Errno::INVAL), "another program's queue pair");
}

#[test]
fn a_connection_waits_for_a_peer_that_has_yet_to_name_itself() {
    let broker = successor();
    let (one, two) = (broker.program(1), broker.program(2));
    let (a, b, unnamed) = (one.old(1, 20), 30, 31);
    let connect = |peer| {
        send(one.socket.as_fd(), &Request::Connect { number: a, gid: address(2), peer }, &[]).unwrap();
        // The broker serves a program's requests in their order.
        assert!(matches!(one.ask(&Request::Hello).unwrap().0, Reply::Node { .. }));
    };
    connect(b);
    assert_eq!(one.connect(a, 2, unnamed).unwrap_err(), Errno::BUSY, "one waits for each program");
    two.old(2, b);
    let (heard, fds) = one.hear().unwrap();
    assert!(matches!(heard, Answer::Reply(Reply::Connected { end: End::First, .. })), "{heard:?}");
    assert_eq!((fds.len(), two.connect(b, 1, a).unwrap().0), (2, End::Second));
    // Nothing waits for datagrams, or for a queue pair that is there and is another's.
    let datagrams = one.pair_of(Transport::Datagram, 1);
    for (number, peer) in [(datagrams, unnamed), (a, datagrams), (a, 0x0100_0000)] {
        assert_eq!(one.connect(number, 2, peer).unwrap_err(), Errno::CONNREFUSED);
    }
    connect(unnamed);
    let refused = Answer::Reply(Reply::Refused { errno: Errno::CONNREFUSED.raw_os_error() });
    assert_eq!(one.hear().unwrap().0, refused, "the time for names is over");
    assert_eq!(one.connect(a, 2, unnamed).unwrap_err(), Errno::CONNREFUSED);
}

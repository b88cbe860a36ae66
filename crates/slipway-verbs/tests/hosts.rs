//! Brokers of two virtual hosts, and programs that may be hostile. A queue of questions takes the place of the network.

#[path = "hosts/deaths.rs"]
mod deaths;
#[path = "broker/lingering.rs"]
mod lingering;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, socketpair};
use slipway_verbs::broker::{
    Broker, Caps, Hosts, Join, Limits, Membership, Name, NodeConfig, Policy, Question, Terms, gid, listen,
};
use slipway_verbs::wire::{Answer, End, Object, Reply, Request, Transport, WireError, receive, send};

type Questions = Arc<Mutex<VecDeque<(u64, Question)>>>;

/// Two hosts with one node each, whose numbers and addresses are the hosts'.
struct Lab {
    folder: tempfile::TempDir,
    brokers: [Broker; 2],
    questions: [Questions; 2],
}

fn address(node: usize) -> IpAddr {
    format!("10.9.0.{node}").parse().unwrap()
}

fn open() -> Policy {
    Box::new(|_, _| Ok(()))
}

/// The broker of a host.
fn broker(folder: &Path, host: usize, policy: Policy, asked: &Questions) -> Broker {
    let mut broker = Broker::new(Caps::default(), policy).unwrap();
    let listener = listen(&folder.join(host.to_string())).unwrap();
    let asked = Arc::clone(asked);
    let own = u32::try_from(host).unwrap();
    broker.reach(Hosts {
        own,
        count: 2,
        nodes: vec![(1 - own, 1 - own, vec![address(1 - host)])],
        way: Box::new(move |_, ticket, question| {
            asked.lock().unwrap().push_back((ticket, *question));
            Ok(())
        }),
        still: Box::new(|_, _| ()),
    });
    broker.add(NodeConfig { id: own, addresses: vec![address(host)], listener }).unwrap();
    broker
}

impl Lab {
    fn new(policies: [Policy; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let questions = [Questions::default(), Questions::default()];
        let mut host = 0;
        let brokers = policies.map(|policy| {
            host += 1;
            broker(folder.path(), host - 1, policy, &questions[host - 1])
        });
        Self { folder, brokers, questions }
    }

    /// Has another broker take the place of a host's, whose questions are lost.
    fn succeed(&mut self, host: usize) {
        std::fs::remove_file(self.folder.path().join(host.to_string())).unwrap();
        self.questions[host].lock().unwrap().clear();
        self.brokers[host] = broker(self.folder.path(), host, open(), &self.questions[host]);
        self.brokers[host].succeed(Box::new(|_, _, _| [1; 16])).unwrap();
    }

    fn program(&self, host: usize) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(self.folder.path().join(host.to_string())).unwrap())
            .unwrap();
        socket
    }

    /// Has both brokers do what is due, but carries no question.
    fn turn(&mut self) {
        for broker in &mut self.brokers {
            for _ in 0..4 {
                broker.turn(Some(Duration::ZERO)).unwrap();
            }
        }
    }

    /// Carries the oldest question of a host. Gives what the other broker said. `EAGAIN`: it is the oldest still.
    fn carry(&mut self, host: usize) -> Result<(), Errno> {
        let (ticket, question) = self.questions[host].lock().unwrap().pop_front().expect("a question");
        let from = u32::try_from(host).unwrap();
        let other = &mut self.brokers[1 - host];
        match question {
            Question::Join(join) => {
                let stream = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
                let (ours, theirs) = stream.unwrap();
                let said = other.asked(from, &join, || Ok(theirs));
                if said == Err(Errno::AGAIN) {
                    self.questions[host].lock().unwrap().push_front((ticket, question));
                    return said;
                }
                self.brokers[host].answered(ticket, said.map(|()| ours));
                said
            }
            Question::Groups => {
                other.asked_for_groups(from);
                self.brokers[host].answered(ticket, Err(Errno::ALREADY));
                Ok(())
            }
            Question::Group(news) => {
                let said = other.told(from, &news);
                self.brokers[host].answered(ticket, Err(Errno::ALREADY));
                said
            }
        }
    }

    /// Carries all questions about groups.
    fn carry_all(&mut self) {
        while let Some(host) = [0, 1].into_iter().find(|host| !self.questions[*host].lock().unwrap().is_empty()) {
            self.carry(host).unwrap();
        }
    }

    fn ask(&mut self, program: &OwnedFd, request: &Request) {
        send(program.as_fd(), request, &[]).unwrap();
        self.turn();
    }

    fn pair(&mut self, program: &OwnedFd, transport: Transport) -> u32 {
        self.ask(program, &Request::CreateQueuePair { transport, domain: 1 });
        match hear(program) {
            Some((Answer::Reply(Reply::QueuePair { number, .. }), _)) => number,
            other => panic!("{other:?}"),
        }
    }

    /// A program of each host, with a queue pair.
    fn pairs(&mut self, transport: Transport) -> [(OwnedFd, u32); 2] {
        [0, 1].map(|host| {
            let program = self.program(host);
            let number = self.pair(&program, transport);
            (program, number)
        })
    }

    fn connect(&mut self, program: &OwnedFd, number: u32, host: usize, peer: u32) {
        self.ask(program, &Request::Connect { number, gid: gid(address(host)), peer });
    }
}

fn hear(program: &OwnedFd) -> Option<(Answer, Vec<OwnedFd>)> {
    match receive(program.as_fd(), RecvFlags::DONTWAIT) {
        Ok(heard) => Some(heard),
        Err(WireError::Socket(Errno::AGAIN)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn joined(program: &OwnedFd) -> OwnedFd {
    match hear(program) {
        Some((Answer::Reply(Reply::Connected { end: End::Far, .. }), mut fds)) if fds.len() == 1 => fds.remove(0),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(program: &OwnedFd) -> Errno {
    match hear(program) {
        Some((Answer::Reply(Reply::Refused { errno }), _)) => Errno::from_raw_os_error(errno),
        other => panic!("{other:?}"),
    }
}

fn are_ends(one: &OwnedFd, other: &OwnedFd) {
    rustix::io::write(one, b"x").unwrap();
    let mut byte = [0];
    assert_eq!(rustix::net::recv(other, &mut byte, RecvFlags::DONTWAIT).unwrap().1, 1);
}

#[test]
fn one_after_the_other_gets_an_end_of_one_stream() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Reliable);
    assert_ne!(one, other, "numbers of a lab differ");
    lab.connect(&a, one, 1, other);
    assert!(hear(&a).is_none(), "the other broker is asked first");
    lab.carry(0).unwrap();
    let ours = joined(&a);
    lab.connect(&b, other, 0, one);
    are_ends(&ours, &joined(&b));
    assert!(lab.brokers.iter().flat_map(Broker::status).flat_map(|it| it.links).all(|it| it.joined));
}

#[test]
fn both_at_once_get_the_ends_of_one_stream() {
    for first in [0, 1] {
        let mut lab = Lab::new([open(), open()]);
        let [(a, one), (b, other)] = lab.pairs(Transport::Reliable);
        lab.connect(&a, one, 1, other);
        lab.connect(&b, other, 0, one);
        let mut said = [Ok(()); 2];
        for host in [first, 1 - first] {
            said[host] = lab.carry(host);
        }
        // The question of the first host counts, whichever is heard first.
        assert_eq!(said, [Ok(()), Err(Errno::ALREADY)]);
        are_ends(&joined(&a), &joined(&b));
    }
}

#[test]
fn datagrams_reach_a_program_that_did_not_ask() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Datagram);
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    let ours = joined(&a);
    let Some((Answer::Reached { number, peer, .. }, fds)) = hear(&b) else { panic!("not reached") };
    assert_eq!((number, peer), (other, one));
    are_ends(&ours, &fds[0]);
    lab.connect(&b, other, 0, one);
    assert_eq!(refused(&b), Errno::ALREADY);
}

#[test]
fn policy_is_asked_on_both_sides_before_anything_is_told() {
    let closed = || -> Policy { Box::new(|_, _| Err(Errno::ACCESS)) };
    let mut lab = Lab::new([closed(), open()]);
    let a = lab.program(0);
    let one = lab.pair(&a, Transport::Reliable);
    lab.connect(&a, one, 1, 77);
    assert_eq!(refused(&a), Errno::ACCESS);
    assert!(lab.questions[0].lock().unwrap().is_empty());
    let mut lab = Lab::new([open(), closed()]);
    let a = lab.program(0);
    let one = lab.pair(&a, Transport::Reliable);
    // The number is nobody's, and the program does not learn that.
    lab.connect(&a, one, 1, 77);
    assert_eq!(lab.carry(0), Err(Errno::ACCESS));
    assert_eq!(refused(&a), Errno::ACCESS);
}

#[test]
fn a_broker_speaks_for_its_own_host_alone() {
    let mut lab = Lab::new([open(), open()]);
    let b = lab.program(1);
    let other = lab.pair(&b, Transport::Reliable);
    let name = |host: usize, number: u32| Name { gid: gid(address(host)), number };
    let mut ask =
        |from: Name, to: Name, transport| lab.brokers[1].asked(0, &Join { transport, from, to }, || panic!("accepted"));
    // Another host's node, another host's number, a node that is not here, a queue pair that is not there, another transport.
    assert_eq!(ask(name(1, 20), name(1, other), Transport::Reliable), Err(Errno::PERM));
    assert_eq!(ask(name(0, other), name(1, other), Transport::Reliable), Err(Errno::PERM));
    assert_eq!(ask(name(0, 20), name(0, other), Transport::Reliable), Err(Errno::HOSTUNREACH));
    assert_eq!(ask(name(0, 20), name(1, other + 1), Transport::Reliable), Err(Errno::CONNREFUSED));
    assert_eq!(ask(name(0, 20), name(1, other), Transport::Datagram), Err(Errno::CONNREFUSED));
}

#[test]
fn a_revocation_ends_the_stream_for_both_whatever_they_hold() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Reliable);
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    let ours = joined(&a);
    lab.connect(&b, other, 0, one);
    let theirs = joined(&b);
    assert_eq!(lab.brokers[0].set_policy(Box::new(|_, _| Err(Errno::ACCESS))), 1);
    assert!(matches!(hear(&a), Some((Answer::Revoked { number }, _)) if number == one));
    assert_eq!(rustix::net::recv(&theirs, &mut [0; 1], RecvFlags::DONTWAIT).unwrap().1, 0);
    assert_eq!(rustix::io::write(&ours, b"x").unwrap_err(), Errno::PIPE);
}

/// The broker goes on, though the last one to close the stream has to wait for a minute.
#[test]
fn a_stream_that_closes_slowly_holds_nobody_up() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (_b, other)] = lab.pairs(Transport::Reliable);
    lab.connect(&a, one, 1, other);
    let (ticket, question) = lab.questions[0].lock().unwrap().pop_front().expect("a question");
    let Question::Join(join) = question else { panic!("{question:?}") };
    let (ours, theirs) = lingering::stream();
    lab.brokers[1].asked(0, &join, || Ok(theirs)).unwrap();
    lab.brokers[0].answered(ticket, Ok(ours));
    drop(lingering::linger(joined(&a)));
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        lab.ask(&a, &Request::DestroyQueuePair { number: one });
        let _ = done.send(hear(&a));
    });
    let answer = ended.recv_timeout(Duration::from_secs(30)).expect("the broker answers");
    assert!(matches!(answer, Some((Answer::Reply(Reply::Done), _))), "{answer:?}");
}

#[test]
fn an_answer_for_a_program_that_is_gone_closes_the_stream() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Reliable);
    lab.connect(&a, one, 1, other);
    drop(a);
    lab.turn();
    lab.carry(0).unwrap();
    lab.connect(&b, other, 0, one);
    let theirs = joined(&b);
    assert_eq!(rustix::net::recv(&theirs, &mut [0; 1], RecvFlags::DONTWAIT).unwrap().1, 0);
}

/// Neither program gets the stream, so neither passes the rate by.
#[test]
fn a_limited_pair_is_relayed_by_both_brokers() {
    for transport in [Transport::Reliable, Transport::Datagram] {
        let mut lab = Lab::new([open(), open()]);
        for broker in &mut lab.brokers {
            let limits: Limits = Box::new(|_, _| Terms { flow: Some(1 << 30), ..Terms::default() });
            broker.set_rules(open(), limits);
        }
        let [(a, one), (b, other)] = lab.pairs(transport);
        lab.connect(&a, one, 1, other);
        lab.carry(0).unwrap();
        let Some((Answer::Reply(Reply::Connected { end: End::Second, .. }), ours)) = hear(&a) else {
            panic!("a stream")
        };
        if transport == Transport::Reliable {
            lab.connect(&b, other, 0, one);
        }
        let theirs = match hear(&b) {
            Some((Answer::Reply(Reply::Connected { end: End::Second, .. }) | Answer::Reached { .. }, theirs)) => theirs,
            heard => panic!("{heard:?}"),
        };
        assert_eq!([ours.len(), theirs.len()], [2, 2], "memory and a socket each");
        assert!(lab.brokers.iter().flat_map(Broker::status).flat_map(|it| it.links).all(|it| it.joined && it.relayed));
        // The end of one program reaches the other by both relays and the stream.
        drop((a, ours));
        let mut bell = [PollFd::new(&theirs[1], PollFlags::RDHUP)];
        while !bell[0].revents().contains(PollFlags::RDHUP) {
            lab.turn();
            poll(&mut bell, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
        }
    }
}

#[test]
fn parted_nodes_stand_still_and_are_joined_no_more() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Reliable);
    lab.connect(&a, one, 1, other);
    lab.carry(0).unwrap();
    joined(&a);
    lab.connect(&b, other, 0, one);
    let theirs = joined(&b);
    for is_parted in [true, false] {
        assert_eq!(lab.brokers[1].set_silence(Box::new(move |_, _| is_parted)), 1);
        let Some((Answer::Silenced { number, peer, is_silent }, _)) = hear(&b) else { panic!("no note") };
        assert_eq!((number, peer, is_silent), (other, one, is_parted));
        assert_eq!(lab.brokers[1].set_silence(Box::new(move |_, _| is_parted)), 0, "it is so already");
    }
    assert_eq!(rustix::net::recv(&theirs, &mut [0; 1], RecvFlags::DONTWAIT).unwrap_err(), Errno::AGAIN, "it lives");
    lab.brokers[1].set_silence(Box::new(|_, _| true));
    let fresh = lab.pair(&a, Transport::Reliable);
    lab.connect(&a, fresh, 1, other);
    assert_eq!(lab.carry(0), Err(Errno::HOSTUNREACH));
}

/// The address of a group.
fn group() -> [u8; 16] {
    gid("239.1.2.3".parse().unwrap())
}

/// The members of the group that a program may send to.
fn members(lab: &mut Lab, program: &OwnedFd) -> Vec<u32> {
    let mut all = vec![];
    loop {
        lab.ask(program, &Request::Member { group: group(), after: all.last().copied().unwrap_or(0) });
        match hear(program) {
            Some((Answer::Reply(Reply::Member { number, .. }), _)) => all.push(number),
            Some((Answer::Reply(Reply::Done), _)) => return all,
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn is_told_of_a_change(program: &OwnedFd) -> bool {
    match hear(program) {
        Some((Answer::Regrouped { group: told }, _)) => told == group(),
        None => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn brokers_tell_each_other_of_the_members_of_groups() {
    let mut lab = Lab::new([open(), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Datagram);
    assert_eq!(members(&mut lab, &a), []);
    for (program, number) in [(&a, one), (&b, other)] {
        lab.ask(program, &Request::Attach { number, group: group() });
    }
    assert_eq!(hear(&b).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    assert_eq!(hear(&a).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    assert!(is_told_of_a_change(&a), "what it was told is old");
    assert_eq!(members(&mut lab, &a), [one]);
    lab.carry_all();
    assert!(is_told_of_a_change(&a) && !is_told_of_a_change(&a));
    assert_eq!(members(&mut lab, &a), [one, other]);
    // A queue pair that ends leaves its groups.
    lab.ask(&b, &Request::DestroyQueuePair { number: other });
    lab.carry(1).unwrap();
    assert!(is_told_of_a_change(&a));
    assert_eq!(members(&mut lab, &a), [one]);
    assert!(lab.questions[1].lock().unwrap().is_empty());
}

/// Others tell it of their members. They forget those of its host, and hear which there still are.
#[test]
fn a_successor_learns_of_the_members_of_groups() {
    let mut lab = Lab::new([open(), open()]);
    let (a, b) = (lab.program(0), lab.program(1));
    let [one, gone] = [0, 1].map(|_| lab.pair(&a, Transport::Datagram));
    let other = lab.pair(&b, Transport::Datagram);
    for (program, number) in [(&a, one), (&a, gone), (&b, other)] {
        lab.ask(program, &Request::Attach { number, group: group() });
        assert_eq!(hear(program).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    }
    lab.carry_all();
    assert_eq!(members(&mut lab, &b), [one, gone, other]);
    lab.succeed(0);
    let a = lab.program(0);
    let object = Object::QueuePair { number: one, transport: Transport::Datagram, domain: 1 };
    lab.ask(&a, &Request::Resume { object, proof: [1; 16] });
    assert_eq!(hear(&a).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    lab.carry_all();
    assert!(is_told_of_a_change(&b));
    assert_eq!(members(&mut lab, &b), [other], "none of that host is named yet");
    lab.ask(&a, &Request::Attach { number: one, group: group() });
    assert_eq!(hear(&a).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    lab.carry_all();
    assert!(is_told_of_a_change(&b));
    for program in [&a, &b] {
        assert_eq!(members(&mut lab, program), [one, other]);
    }
}

#[test]
fn a_group_has_bounds_and_only_members_that_the_policy_lets_a_program_reach() {
    let mut lab = Lab::new([Box::new(|from, to| if from == to { Ok(()) } else { Err(Errno::ACCESS) }), open()]);
    let [(a, one), (b, other)] = lab.pairs(Transport::Datagram);
    let reliable = lab.pair(&a, Transport::Reliable);
    lab.ask(&b, &Request::Attach { number: other, group: group() });
    lab.carry_all();
    assert_eq!(members(&mut lab, &a), [], "it learns nothing of members that it may not reach");
    for (number, to) in [(reliable, group()), (one, gid(address(1))), (other, group())] {
        lab.ask(&a, &Request::Attach { number, group: to });
        assert_eq!(refused(&a), Errno::INVAL);
    }
    for number in 0..20_u8 {
        let to = gid(format!("239.1.3.{number}").parse().unwrap());
        lab.ask(&a, &Request::Attach { number: one, group: to });
        let said = hear(&a).expect("an answer").0;
        assert_eq!(said == Answer::Reply(Reply::Done), number < 16, "{said:?}");
    }
    // A broker speaks for its own host alone.
    let told = |lab: &mut Lab, node, number| {
        let member = Name { gid: gid(address(node)), number };
        lab.brokers[0].told(1, &Membership { group: group(), member, is_member: true })
    };
    assert_eq!(told(&mut lab, 0, other), Err(Errno::PERM));
    assert_eq!(told(&mut lab, 1, one), Err(Errno::PERM));
    let full = (0..100).find(|number| told(&mut lab, 1, other + 1 + number).is_err());
    assert_eq!(full, Some(63));
}

/// A broker that takes another's place gets a copy of each stream from the program, and rules over it.
#[test]
fn a_successor_ends_and_holds_streams_of_its_predecessor() {
    let mut lab = Lab::new([open(), open()]);
    lab.brokers[0].succeed(Box::new(|_, _, _| [1; 16])).unwrap();
    let a = lab.program(0);
    let first = 20;
    for number in [first, first + 1] {
        let object = Object::QueuePair { number, transport: Transport::Reliable, domain: 1 };
        lab.ask(&a, &Request::Resume { object, proof: [1; 16] });
        assert_eq!(hear(&a).map(|heard| heard.0), Some(Answer::Reply(Reply::Done)));
    }
    let rejoin = |lab: &mut Lab, number: u32, stream: &OwnedFd| {
        let request = Request::Rejoin { number, gid: gid(address(1)), peer: 0x00c0_0000, end: End::Far };
        send(a.as_fd(), &request, &[stream.as_fd()]).unwrap();
        lab.turn();
        hear(&a).expect("an answer").0
    };
    let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let has_ended = |stream: &OwnedFd| rustix::net::recv(stream, &mut [0; 1], RecvFlags::DONTWAIT).is_ok();
    let (ours, theirs) = pair();
    assert!(matches!(rejoin(&mut lab, first, &ours), Answer::Reply(Reply::Connected { .. })));
    assert!(!has_ended(&theirs));
    assert_eq!(lab.brokers[0].set_policy(Box::new(|_, _| Err(Errno::ACCESS))), 1);
    assert!(has_ended(&theirs) && has_ended(&ours), "whatever programs keep");
    assert_eq!(hear(&a).map(|heard| heard.0), Some(Answer::Revoked { number: first }));
    let (ours, theirs) = pair();
    let refused = Answer::Reply(Reply::Refused { errno: Errno::ACCESS.raw_os_error() });
    assert_eq!(rejoin(&mut lab, first + 1, &ours), refused);
    assert!(has_ended(&theirs));
}

//! The gateway over a real device, with ordinary peers on another machine: `make test-vm` runs this (`scripts/vm.sh --pair`).

#[path = "gateway/given.rs"]
mod given;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use given::{Gateway, Memory, Program, Router, work};
use rustix::io::Errno;
use slipway_verbs::gateway::{Ask, Operation, Told, Work};
use slipway_verbs::management::{IN_REJECTION, IN_REPLY, Step};

/// Gives a machine a device at its network card, once.
const DEVICE: &str =
    "modprobe -a rdma_rxe ib_uverbs rdma_ucm; rdma link show rxe0/1 >&2 || rdma link add rxe0 type rxe netdev eth0";
/// Machine `a`, where the gateway is.
const OWN: &str = "192.0.2.1";
const NODE: u32 = 7;
const NUMBER: u32 = 0x1234;
const DOMAIN: u32 = 3;

/// Bytes across the border of two files.
const SOURCE: u64 = Memory::AT + 4096 - 20;
/// Bytes across the border of two pages.
const SINK: u64 = Memory::AT + 8192 - 30;
const ADVERT: u64 = Memory::AT + 0x200;
const INBOX: u64 = Memory::AT + 0x300;

/// A command on machine `b`.
fn on_b(words: &str) -> Command {
    let rsh = std::env::var("SLIPWAY_RSH").expect("`scripts/vm.sh --pair` sets it");
    let mut command = Command::new("timeout");
    command.arg("300").args(rsh.split(' ')).args(["b", words]).stdin(Stdio::null());
    command
}

/// A peer on machine `b`, until this is dropped.
struct Peer(Child);

impl Peer {
    fn start(words: &str) -> Self {
        Self(on_b(words).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both machines have devices, and this one a gateway, which serves a node.
fn gateway() -> Gateway {
    assert!(Command::new("sh").args(["-ec", DEVICE]).status().unwrap().success());
    let answers = (0..60).any(|_| {
        std::thread::sleep(Duration::from_secs(1));
        on_b("true").status().unwrap().success()
    });
    assert!(answers, "machine b");
    assert!(on_b(&format!("sh -ec '{DEVICE}'")).status().unwrap().success());
    let gateway = Gateway::start(OWN);
    gateway.node(NODE);
    gateway
}

/// A program with a queue pair and a region, and the region's key.
fn program(gateway: &Gateway, memory: &Memory) -> (Program, u32) {
    let mut program = gateway.program(NODE);
    assert_eq!(program.ask(&Ask::QueuePair { number: NUMBER, domain: DOMAIN }, &[]), Told::Done);
    let key = program.register(memory, DOMAIN);
    (program, key)
}

/// Connects, as often as it takes the peer to listen.
fn connect(gateway: &Gateway, to: SocketAddr) -> (Router, slipway_verbs::management::Offer) {
    for _ in 0..60 {
        let router = gateway.call(NODE, to, NUMBER);
        match router.next() {
            Some(message) if message.step == Step::Accepted => return (router, message.offer),
            Some(message) => assert_eq!(message.offer.private.len(), IN_REJECTION),
            None => {}
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("{to} does not listen");
}

fn join(program: &mut Program) -> (u32, u32) {
    match program.ask(&Ask::Join { number: NUMBER }, &[]) {
        Told::Window { requests, receives, spans } => {
            assert!(spans >= 2);
            (requests, receives)
        }
        other => panic!("{other:?}"),
    }
}

/// Address, key and length, as `rping` and the peer tell one another.
fn advert(at: u64, key: u32, length: u32) -> Vec<u8> {
    [&at.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}

#[test]
#[ignore = "takes a device: `make test-vm`"]
fn a_node_is_a_client_of_rping() {
    let gateway = gateway();
    let _server = Peer::start("timeout 250 rping -s -P -a 192.0.2.2");
    let (memory, to) = (Memory::new(), "192.0.2.2:7174".parse().unwrap());
    let (mut program, key) = program(&gateway, &memory);
    let refused = Told::Refused { errno: Errno::HOSTUNREACH.raw_os_error() };
    assert_eq!(program.ask(&Ask::Join { number: NUMBER }, &[]), refused);
    let (router, offer) = connect(&gateway, to);
    assert_eq!((offer.private.len(), offer.is_valid), (IN_REPLY, true));
    assert_ne!(offer.queue_pair, 0);
    assert_eq!(gateway.status(), []);
    join(&mut program);
    assert_eq!(program.ask(&Ask::Join { number: NUMBER }, &[]), refused);

    for round in 0..3 {
        let text = format!("rdma-ping-{round}: across the border of two files, two pages, and more\0");
        memory.write(SOURCE, &text.as_bytes()[..63]);
        memory.write(SINK, &[0; 64]);
        program.receive(NUMBER, INBOX, 16);
        // The server reads the source, and says so.
        let inline = Work { inline: advert(SOURCE, key, 64), ..work(Operation::Send, &[]) };
        program.carry_out(NUMBER, inline);
        let told = program.completion(NUMBER);
        assert_eq!((told.is_receive, told.status, told.length), (true, 0, 16));
        // It writes what it has read to the sink, and says so.
        program.receive(NUMBER, INBOX + 16, 16);
        memory.write(ADVERT, &advert(SINK, key, 64));
        program.carry_out(NUMBER, work(Operation::Send, &[(ADVERT, 5), (ADVERT + 5, 11)]));
        let told = program.completion(NUMBER);
        assert_eq!((told.is_receive, told.status, told.length), (true, 0, 16));
        assert_eq!(memory.read(SINK, 64), memory.read(SOURCE, 64));
        assert_eq!(memory.read(SINK, 11), format!("rdma-ping-{round}").as_bytes());
    }

    let counted = gateway.status();
    assert_eq!(counted.len(), 1);
    assert_eq!((counted[0].node, counted[0].number, counted[0].peer), (NODE, NUMBER, to));
    assert_eq!((counted[0].requests, counted[0].sent_bytes), (6, 96));
    assert_eq!((counted[0].received, counted[0].received_bytes), (6, 96));

    // The router leaves: what has not completed is flushed.
    program.receive(NUMBER, INBOX, 16);
    program.receive(NUMBER, INBOX, 16);
    assert_eq!(program.ask(&Ask::Join { number: NUMBER }, &[]), refused);
    drop(router);
    assert!(are_flushed(&program.ended(NUMBER)));
    assert_eq!(program.ask(&Ask::Join { number: NUMBER }, &[]), refused);

    // The queue pair may be connected anew. A cut ends that, too.
    let (router, _) = connect(&gateway, to);
    join(&mut program);
    gateway.bar(&[NODE]);
    assert_eq!(program.ended(NUMBER), []);
    assert!(router.next().is_none());
    assert!(gateway.call(NODE, to, NUMBER).next().is_none());
    gateway.bar(&[]);
    let (router, _) = connect(&gateway, to);
    assert_eq!(program.ask(&Ask::Forget { number: NUMBER }, &[]), Told::Done);
    assert!(router.next().is_none());
    assert_eq!(program.ask(&Ask::Deregister { key }, &[]), Told::Done);
    let invalid = Told::Refused { errno: Errno::INVAL.raw_os_error() };
    assert_eq!(program.ask(&Ask::Deregister { key }, &[]), invalid);
    assert_eq!(program.ask(&Ask::Forget { number: NUMBER }, &[]), invalid);
    gateway.stop();
}

/// Whether these are receives that were flushed. A device may flush some after the gateway has told of the end.
fn are_flushed(completions: &[(bool, u32)]) -> bool {
    completions.iter().all(|it| *it == (true, 5))
}

/// A number in the place of eight bytes.
fn word(memory: &Memory, at: u64) -> u64 {
    u64::from_ne_bytes(memory.read(at, 8).try_into().unwrap())
}

#[test]
#[ignore = "takes a device: `make test-vm`"]
fn all_operations_reach_a_peer_and_what_fails_is_told_in_order() {
    let gateway = gateway();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/peer.c");
    let compile = format!("cc -o /tmp/peer {source} -lrdmacm -libverbs");
    assert!(on_b(&compile).status().unwrap().success());
    let _peer = Peer::start("timeout 250 /tmp/peer 192.0.2.2 7471");
    let (memory, to) = (Memory::new(), "192.0.2.2:7471".parse().unwrap());
    let (mut program, key) = program(&gateway, &memory);
    let (router, offer) = connect(&gateway, to);
    // As this side's program reads the peer's numbers: it serves four reads at once, and makes three.
    assert_eq!((offer.initiator_depth, offer.responder_resources), (4, 3));
    let address = u64::from_be_bytes(offer.private[..8].try_into().unwrap());
    let peer_key = u32::from_be_bytes(offer.private[8..12].try_into().unwrap());
    let there = |operation, spans: &[(u64, u32)], at: u64| Work {
        address: address + at,
        key: peer_key,
        ..work(operation, spans)
    };
    join(&mut program);

    // Writes and reads.
    let text: Vec<u8> = (1..=64).collect();
    memory.write(SOURCE, &text);
    program.carry_out(NUMBER, there(Operation::Write, &[(SOURCE, 10), (SOURCE + 10, 54)], 0));
    program.carry_out(NUMBER, there(Operation::Read, &[(SINK, 64)], 0));
    assert_eq!(memory.read(SINK, 64), text);

    // Atomic operations.
    let five = Work { inline: 5_u64.to_ne_bytes().to_vec(), ..there(Operation::Write, &[], 128) };
    program.carry_out(NUMBER, five);
    program.carry_out(NUMBER, there(Operation::Add(3), &[(INBOX, 8)], 128));
    program.carry_out(NUMBER, there(Operation::Swap { compare: 8, with: 9 }, &[(INBOX + 8, 8)], 128));
    program.carry_out(NUMBER, there(Operation::Swap { compare: 8, with: 7 }, &[(INBOX + 16, 8)], 128));
    program.carry_out(NUMBER, there(Operation::Read, &[(INBOX + 24, 8)], 128));
    assert_eq!([0, 8, 16, 24].map(|at| word(&memory, INBOX + at)), [5, 8, 9, 9]);

    // Messages with immediate data and without, and an empty one.
    let immediate = Some(0x0102_0304_u32.to_be());
    for (inline, immediate) in [(b"abc".to_vec(), immediate), (b"de".to_vec(), None), (Vec::new(), None)] {
        let length = u32::try_from(inline.len()).unwrap();
        program.receive(NUMBER, INBOX, 64);
        program.carry_out(NUMBER, Work { inline: inline.clone(), immediate, ..work(Operation::Send, &[]) });
        let told = program.completion(NUMBER);
        assert_eq!((told.is_receive, told.status, told.length, told.immediate), (true, 0, length, immediate));
        assert!(!told.is_written);
        assert_eq!(memory.read(INBOX, inline.len()), inline);
    }

    // Writes with immediate data, in both directions.
    program.receive(NUMBER, INBOX, 64);
    program.carry_out(NUMBER, Work { immediate, ..there(Operation::Write, &[(SOURCE, 4)], 256) });
    let told = program.completion(NUMBER);
    assert_eq!((told.status, told.length, told.immediate, told.is_written), (0, 0, immediate, false));
    memory.write(SINK, &[0; 64]);
    program.receive(NUMBER, INBOX, 64);
    let please = Work {
        inline: advert(SINK, key, 64),
        immediate: Some(77_u32.to_be()),
        is_solicited: true,
        ..work(Operation::Send, &[])
    };
    program.carry_out(NUMBER, please);
    let told = program.completion(NUMBER);
    assert_eq!((told.status, told.length, told.immediate, told.is_written), (0, 64, Some(78_u32.to_be()), true));
    assert_eq!(memory.read(SINK, 64), text);

    // Bytes that no region has: that request fails after the one before it, and the rest is flushed.
    program.receive(NUMBER, INBOX, 64);
    program.send(NUMBER, there(Operation::Write, &[(SOURCE, 64)], 0));
    program.send(NUMBER, there(Operation::Write, &[(Memory::AT, 8)], 0));
    program.send(NUMBER, there(Operation::Write, &[(SOURCE, 8)], 0));
    let (sent, received): (Vec<_>, Vec<_>) = program.ended(NUMBER).into_iter().partition(|it| !it.0);
    assert_eq!(sent, [(false, 0), (false, 4)]);
    assert!(are_flushed(&received));
    drop(router);

    // A key that the peer does not have.
    let (router, _) = connect(&gateway, to);
    join(&mut program);
    program.receive(NUMBER, INBOX, 64);
    program.send(NUMBER, Work { key: 1, ..there(Operation::Write, &[(SOURCE, 8)], 0) });
    let failed = program.completion(NUMBER);
    assert_eq!((failed.is_receive, failed.status), (false, 10));
    drop(router);
    assert!(are_flushed(&program.ended(NUMBER)));

    // An atomic operation on no word: libraries of devices say little of it, and the gateway goes on.
    let (router, _) = connect(&gateway, to);
    join(&mut program);
    program.send(NUMBER, there(Operation::Add(1), &[(INBOX, 8)], 1));
    assert_eq!(program.ended(NUMBER), [(false, 4)]);
    drop(router);

    // Nobody listens there, and a queue pair that no program has told of.
    let nobody = gateway.call(NODE, "192.0.2.2:7999".parse().unwrap(), NUMBER);
    let rejected = nobody.next().unwrap();
    assert_eq!((rejected.step, rejected.offer.private.len()), (Step::Rejected, IN_REJECTION));
    assert_ne!(rejected.status, 0);
    assert!(nobody.next().is_none());
    assert!(gateway.call(NODE, to, NUMBER + 1).next().is_none());
    assert!(gateway.call(NODE + 1, to, NUMBER).next().is_none());

    // A program that asks for more than the window ends, and others do not.
    let (router, _) = connect(&gateway, to);
    let (_, most) = join(&mut program);
    for _ in 0..=most {
        let ask = Ask::Receive { number: NUMBER, spans: Vec::new() };
        program.say(&ask, &[]);
    }
    assert!(program.is_ended());
    assert!(router.next().is_none());
    let (mut other, _) = self::program(&gateway, &memory);
    let (router, _) = connect(&gateway, to);
    join(&mut other);
    // So does the peer of a program that is gone.
    drop(other);
    assert!(router.next().is_none());
    gateway.stop();
}

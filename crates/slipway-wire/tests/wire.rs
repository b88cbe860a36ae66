//! The wire's own process: over socket pairs, which keep frames whole as a device does, and over TAP devices in namespaces
//! made here. Needs root and /dev/net/tun. (No test harness: it would run threads, and the wire is cloned from a process
//! that has one.)

#[path = "../../slipway-sys/tests/path/mod.rs"]
mod path;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use path::{FAR, NEAR, Path, address};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use slipway_document::units::{Fraction, Rate, Seconds};
use slipway_lab::condition::{LinkConditions, Loss};
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::netlink::Offload;
use slipway_sys::process::{end_with, reap, status, wait_for_end};
use slipway_sys::tap::VnetHeader;
use slipway_wire::{Direction, Peer, PortStats, Spec, Wire, WireError};

fn main() {
    for (name, test) in TESTS {
        let begun = Instant::now();
        test();
        println!("{name}: ok, {:.1} s", begun.elapsed().as_secs_f64());
    }
}

const TESTS: &[(&str, fn())] = &[
    ("frames come back whole and in order", frames_come_back_whole_and_in_order),
    ("the same seed loses the same frames", the_same_seed_loses_the_same_frames),
    ("a delay holds back, and its change", a_delay_holds_back),
    ("a rate that rises lets go what waits", a_rate_that_rises_lets_go_what_waits),
    ("a port that is full holds up no other", a_port_that_is_full_holds_up_no_other),
    ("hundreds of ports with hundreds of peers", hundreds_of_ports_with_hundreds_of_peers),
    ("what is impossible is refused", what_is_impossible_is_refused),
    ("the process has given up what it does not need", the_process_is_confined),
    ("with its maker the wire ends", with_its_maker_the_wire_ends),
    ("a process that its maker is too late to end sees it", an_orphan_knows_that_it_is_one),
    ("the wire holds its lab's lock until it has ended", the_wire_holds_its_labs_lock),
    ("TCP over devices comes whole through a bad link", tcp_comes_whole_through_a_bad_link),
    ("without the wire nothing passes", without_the_wire_nothing_passes),
];

fn start() -> Wire {
    Wire::start(SingleThread::check().expect("one thread"), None).expect("root may")
}

fn spec(all: LinkConditions) -> Spec {
    Spec { direction: Direction::Egress, seed: [7; 32], all, peers: Vec::new(), mtu: 1500 }
}

#[allow(clippy::unnecessary_wraps, reason = "conditions are optional")]
fn ms(milliseconds: f64) -> Option<Seconds> {
    Some(Seconds(milliseconds / 1e3))
}

/// A port's device, and the world behind it.
struct Pair {
    world: OwnedFd,
    device: OwnedFd,
}

impl Pair {
    fn new() -> Self {
        let (world, device) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        Self { world, device }
    }

    /// Attaches a device and gives the world's end.
    fn attach(self, wire: &Wire, port: u32, spec: &Spec) -> OwnedFd {
        wire.attach(port, &self.device, spec).expect("attaches");
        self.world
    }
}

/// A numbered frame behind an empty header.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; VnetHeader::LEN + 60];
    frame.extend(number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.last_chunk().expect("a frame"))
}

fn take(world: &OwnedFd, flags: RecvFlags) -> Option<u32> {
    let mut buffer = [0; 200];
    match recv(world, &mut buffer[..], flags) {
        Ok((length, _)) => Some(number(&buffer[..length])),
        Err(rustix::io::Errno::AGAIN) => None,
        Err(error) => panic!("receives: {error}"),
    }
}

fn stats(wire: &Wire, port: u32) -> PortStats {
    wire.stats().expect("answers").into_iter().find(|stats| stats.port == port).expect("the port is there")
}

/// Sends frames and gives the numbers of those that come back. A few at a time: a socket does not hold many.
fn carry(wire: &Wire, port: u32, world: &OwnedFd, numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut came = Vec::new();
    let mut sent = stats(wire, port).received;
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(50) {
        for &number in some {
            send(world, &frame(number), SendFlags::empty()).expect("sends");
        }
        sent += some.len() as u64;
        // The wire answers between frames, so it is asked until it has them all.
        while Some(stats(wire, port)).is_some_and(|stats| stats.received < sent || stats.waiting > 0) {}
        came.extend(std::iter::from_fn(|| take(world, RecvFlags::DONTWAIT)));
    }
    came
}

fn frames_come_back_whole_and_in_order() {
    let wire = start();
    let world = Pair::new().attach(&wire, 5, &spec(LinkConditions::default()));
    assert!(carry(&wire, 5, &world, 0..1000).into_iter().eq(0..1000));
    let delayed = LinkConditions { delay: ms(1.0), rate: Some(Rate(1_000_000_000)), ..Default::default() };
    wire.set(5, &spec(delayed)).expect("sets");
    assert!(carry(&wire, 5, &world, 0..1000).into_iter().eq(0..1000));
    let stats = stats(&wire, 5);
    assert_eq!((stats.received, stats.sent, stats.waiting_bytes, stats.late.count), (2000, 2000, 0, 1000));
    println!("    {:?}, late: {:?} ns", wire.scheduling(), stats.late);
    wire.stop();
}

fn the_same_seed_loses_the_same_frames() {
    let wire = start();
    let lossy = LinkConditions {
        loss: Some(Loss::Random(Fraction(0.02))),
        duplicate: Some(Fraction(0.01)),
        delay: ms(0.2),
        ..Default::default()
    };
    let runs = [(1, [7; 32]), (2, [7; 32]), (3, [8; 32])].map(|(port, seed)| {
        let world = Pair::new().attach(&wire, port, &Spec { seed, ..spec(lossy.clone()) });
        let came = carry(&wire, port, &world, 0..20_000);
        let stats = stats(&wire, port);
        assert_eq!(came.len() as u64, stats.sent);
        let came: BTreeSet<u32> = came.into_iter().collect();
        let lost = 20_000 - came.len();
        // 2.576 standard deviations of 400 lost: the 99 % interval.
        assert!((349..=451).contains(&lost), "{lost} lost");
        came
    });
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    wire.stop();
}

fn a_delay_holds_back() {
    let wire = start();
    let world = Pair::new().attach(&wire, 0, &spec(LinkConditions { delay: ms(30.0), ..Default::default() }));
    let begun = Instant::now();
    send(&world, &frame(1), SendFlags::empty()).expect("sends");
    while stats(&wire, 0).waiting == 0 {}
    // Set to nothing, the link lets the next frame overtake; what waits stays due when it was.
    wire.set(0, &spec(LinkConditions::default())).expect("sets");
    send(&world, &frame(2), SendFlags::empty()).expect("sends");
    assert_eq!(take(&world, RecvFlags::empty()), Some(2));
    assert_eq!(take(&world, RecvFlags::empty()), Some(1));
    assert!(begun.elapsed() >= Duration::from_millis(30));
    wire.stop();
}

fn a_rate_that_rises_lets_go_what_waits() {
    let wire = start();
    // Each frame lasts a minute.
    let slow = LinkConditions { rate: Some(Rate(8)), ..Default::default() };
    let world = Pair::new().attach(&wire, 0, &spec(slow));
    for number in 0..100 {
        send(&world, &frame(number), SendFlags::empty()).expect("sends");
    }
    while stats(&wire, 0).waiting < 100 {}
    wire.set(0, &spec(LinkConditions { rate: Some(Rate(1_000_000_000)), ..Default::default() })).expect("sets");
    assert!((0..100).all(|number| take(&world, RecvFlags::empty()) == Some(number)));
    wire.stop();
}

fn a_port_that_is_full_holds_up_no_other() {
    let wire = start();
    let all = LinkConditions { duplicate: Some(Fraction(1.0)), ..Default::default() };
    let full = Pair::new().attach(&wire, 0, &spec(all));
    let mut sent = 0;
    // Nobody takes what comes out of it, twice as much as goes in, until no more goes in.
    while send(&full, &frame(sent), SendFlags::DONTWAIT).is_ok() {
        sent += 1;
        while stats(&wire, 0).received < u64::from(sent) {}
        if stats(&wire, 0).waiting > 100 {
            break;
        }
    }
    assert!(stats(&wire, 0).waiting > 0, "it is full");
    let free = Pair::new().attach(&wire, 1, &spec(LinkConditions::default()));
    assert!(carry(&wire, 1, &free, 0..100).into_iter().eq(0..100));
    // Once there is room, everything comes, in order.
    let came: Vec<u32> = (0..2 * sent).map(|_| take(&full, RecvFlags::empty()).expect("comes")).collect();
    assert!(came.into_iter().eq((0..sent).flat_map(|number| [number, number])));
    wire.stop();
}

fn hundreds_of_ports_with_hundreds_of_peers() {
    let wire = start();
    let peers = |from: u16| {
        let address = |number: u16| IpAddr::from([10, 64, (number >> 8) as u8, (number & 0xff) as u8]);
        let peer = |number: u16| Peer {
            addresses: vec![address(number), format!("fd53::{number:x}").parse().expect("an address")],
            seed: [3; 32],
            conditions: LinkConditions { delay: ms(f64::from(number ^ from) / 100.0), ..Default::default() },
        };
        (0..500).map(peer).collect()
    };
    let mut worlds = Vec::new();
    for port in 0..200 {
        let spec = Spec { peers: peers(port), ..spec(LinkConditions::default()) };
        worlds.push(Pair::new().attach(&wire, port.into(), &spec));
    }
    assert_eq!(
        wire.stats().expect("answers").iter().map(|stats| stats.port).collect::<Vec<_>>(),
        (0..200).collect::<Vec<_>>()
    );
    let memory = status(wire.pid().as_raw_nonzero().get(), "RssAnon").expect("it runs");
    println!("    200 ports, 500 peers each: {memory} of its own");

    // A frame from an IPv4 header on: the delay is that of its destination.
    let mut to_peer = frame(0)[..VnetHeader::LEN].to_vec();
    to_peer.extend([0; 12]);
    to_peer.extend([8, 0]);
    to_peer.extend([0; 16]);
    to_peer.extend([10, 64, 1, 0xf3]);
    let begun = Instant::now();
    send(&worlds[0], &to_peer, SendFlags::empty()).expect("sends");
    take(&worlds[0], RecvFlags::empty()).expect("comes");
    assert!(begun.elapsed() >= Duration::from_micros(4990));
    wire.detach(0).expect("detaches");
    assert_eq!(recv(&worlds[0], &mut [0; 10][..], RecvFlags::empty()).expect("the other end is closed").0, 0);
    wire.stop();
}

fn what_is_impossible_is_refused() {
    let wire = start();
    let all = spec(LinkConditions::default());
    let pair = Pair::new();
    wire.attach(1, &pair.device, &all).expect("attaches");
    for (refused, why) in [
        (wire.attach(1, &pair.device, &all), "the port is in use"),
        (wire.set(2, &all), "there is no such port"),
        (wire.detach(2), "there is no such port"),
    ] {
        assert!(matches!(&refused, Err(WireError::Refused(account)) if account.contains(why)), "{refused:?}");
    }
    assert!(carry(&wire, 1, &pair.world, 0..10).into_iter().eq(0..10), "the port is as it was");
    // An end that closes is a device that is gone: the port says so, until it is detached.
    drop(pair);
    while stats(&wire, 1).alive {}
    wire.detach(1).expect("detaches");
    assert_eq!(wire.stats().expect("answers"), []);
    wire.stop();
}

fn the_process_is_confined() {
    let wire = start();
    let value = |name: &str| status(wire.pid().as_raw_nonzero().get(), name).expect("it runs");
    assert_eq!(value("Name"), "slipway-wire");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(value(set).trim_start_matches('0'), "", "{set}");
    }
    assert_eq!((value("NoNewPrivs").as_str(), value("Seccomp").as_str()), ("1", "2"));
    let open = std::fs::read_dir(format!("/proc/{}/fd", wire.pid().as_raw_nonzero())).expect("listed").count();
    assert_eq!(open, 6, "standard streams, control, epoll, timer");
    let pidfd = wire.pidfd().try_clone_to_owned().expect("a copy");
    pidfd_send_signal(&pidfd, Signal::KILL).expect("ends it");
    assert!(wait_for_end(&pidfd, Duration::from_mins(1)).expect("waits"));
    assert!(matches!(wire.stats(), Err(WireError::Gone)));
    wire.stop();
}

fn with_its_maker_the_wire_ends() {
    let (mut told, mut tell) = std::io::pipe().expect("a pipe");
    let (mut until, end) = std::io::pipe().expect("a pipe");
    match clone(SingleThread::check().expect("one thread"), nix::sched::CloneFlags::empty()).expect("forks") {
        Cloned::Child => {
            drop((told, end));
            let wire = start();
            tell.write_all(&wire.pid().as_raw_nonzero().get().to_be_bytes()).expect("tells");
            let _ = until.read(&mut [0]);
            // Not dropped, as by a crash.
            std::mem::forget(wire);
            std::process::exit(0)
        }
        Cloned::Parent { pidfd, .. } => {
            drop((tell, until));
            let mut pid = [0; 4];
            told.read_exact(&mut pid).expect("is told");
            let pid = rustix::process::Pid::from_raw(i32::from_be_bytes(pid)).expect("a pid");
            let wire = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
            drop(end);
            reap(&pidfd).expect("the maker ends");
            assert!(wait_for_end(&wire, Duration::from_mins(1)).expect("waits"), "so does the wire");
        }
    }
}

/// As a node's init, in a PID namespace of its own, where nothing tells who its parent is.
fn an_orphan_knows_that_it_is_one() {
    let alone = SingleThread::check().expect("one thread");
    for orphaned in [true, false] {
        let (mut told, mut tell) = std::io::pipe().expect("a pipe");
        let (mut until, end) = std::io::pipe().expect("a pipe");
        let Cloned::Parent { pidfd: maker, .. } = clone(alone, nix::sched::CloneFlags::empty()).expect("forks") else {
            drop((told, end));
            let maker = pidfd_open(getpid(), PidfdFlags::empty()).expect("it runs");
            match clone(alone, nix::sched::CloneFlags::CLONE_NEWPID).expect("root may") {
                Cloned::Child => {
                    if orphaned {
                        let _ = until.read(&mut [0]);
                    }
                    tell.write_all(&[u8::from(end_with(&maker).is_ok())]).expect("tells");
                    let _ = until.read(&mut [0]);
                }
                Cloned::Parent { .. } if orphaned => {}
                Cloned::Parent { .. } => {
                    drop(tell);
                    let _ = until.read(&mut [0]);
                }
            }
            std::process::exit(0)
        };
        drop((tell, until));
        let mut is_tied = [9];
        if orphaned {
            reap(&maker).expect("the maker ends");
            drop(end);
            told.read_exact(&mut is_tied).expect("is told");
            assert_eq!(is_tied, [0], "it is not tied to one that has ended");
        } else {
            told.read_exact(&mut is_tied).expect("is told");
            assert_eq!(is_tied, [1]);
            pidfd_send_signal(&maker, Signal::KILL).expect("ends it");
            assert_eq!(told.read(&mut is_tied).expect("reads"), 0, "it ends with its maker");
            reap(&maker).expect("the maker ends");
        }
    }
}

fn the_wire_holds_its_labs_lock() {
    let file = std::env::temp_dir().join(format!("slipway-wire-lock-{}", getpid()));
    let open = || std::fs::File::options().create(true).append(true).open(&file).expect("a file");
    let take = |file: &std::fs::File| flock(file, FlockOperation::NonBlockingLockExclusive);
    let lock = open();
    take(&lock).expect("free");
    let wire = Wire::start(SingleThread::check().expect("one thread"), Some(lock.as_fd())).expect("root may");
    drop(lock);
    let next = open();
    assert_eq!(take(&next), Err(rustix::io::Errno::WOULDBLOCK));
    wire.stop();
    take(&next).expect("free again");
    std::fs::remove_file(&file).expect("removes");
}

fn tcp_comes_whole_through_a_bad_link() {
    let loss = LinkConditions { loss: Some(Loss::Random(Fraction(0.002))), ..Default::default() };
    let delay = LinkConditions { delay: ms(2.0), ..Default::default() };
    let accidents = LinkConditions {
        corrupt: Some(Fraction(0.002)),
        duplicate: Some(Fraction(0.01)),
        reorder: Some(Fraction(0.01)),
        ..LinkConditions { delay: ms(2.0), ..loss.clone() }
    };
    let peer = |conditions| Peer { addresses: vec![address(FAR), address(NEAR)], seed: [9; 32], conditions };
    // Whole segments, segments cut around packets, and rates at which packets come by themselves.
    for (name, all, peers) in [
        ("delay alone", delay.clone(), vec![]),
        ("100 Mbit/s", LinkConditions { rate: Some(Rate(100_000_000)), ..Default::default() }, vec![]),
        ("loss alone", loss.clone(), vec![]),
        ("every accident", accidents.clone(), vec![]),
        (
            "every accident, at a high rate",
            LinkConditions { rate: Some(Rate(2_000_000_000)), ..accidents.clone() },
            vec![],
        ),
        ("every accident with one peer", delay.clone(), vec![peer(accidents.clone())]),
        ("every accident, and jitter", LinkConditions { jitter: ms(0.5), ..accidents }, vec![]),
    ] {
        let mut path = Path::new();
        // Else the far end of a veth takes what is not summed up yet for right.
        path.netlink.set_offload("eth0", Offload::TxChecksum, false).expect("a veth can");
        let taps = path.by_taps(false);
        let wire = start();
        for (port, (tap, direction)) in (0..).zip(taps.iter().zip([Direction::Egress, Direction::Ingress])) {
            let spec = Spec { direction, peers: peers.clone(), ..spec(all.clone()) };
            wire.attach(port, tap, &spec).expect("attaches");
        }
        path.transfer(3_000_000);
        for stats in wire.stats().expect("answers") {
            println!("    {name}: {stats:?}");
            assert!(stats.alive && stats.received > 4 * 3_000_000 / 1448 / 2, "{stats:?}");
            assert_eq!((stats.refused, stats.malformed, stats.over_limit), (0, 0, 0), "{stats:?}");
        }
        wire.stop();
    }
}

fn without_the_wire_nothing_passes() {
    let mut path = Path::new();
    let wire = start();
    for (port, tap) in (0..).zip(path.by_taps(false)) {
        // The only descriptor of the device is the wire's now.
        wire.attach(port, tap, &spec(LinkConditions { delay: ms(5.0), ..Default::default() })).expect("attaches");
    }
    let near = path.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let far = path.far(|| UdpSocket::bind((address(FAR), 0))).expect("binds");
    let to = far.local_addr().expect("bound");
    let begun = Instant::now();
    let mut buffer = [0; 10];
    near.send_to(b"there", to).expect("sends");
    let (length, from) = far.recv_from(&mut buffer).expect("comes");
    far.send_to(&buffer[..length], from).expect("sends back");
    assert_eq!(near.recv(&mut buffer).expect("comes back"), 5);
    assert!(begun.elapsed() >= Duration::from_millis(10), "5 ms each way");
    println!("    echo over 5 ms each way: {:?}", begun.elapsed());

    wire.stop();
    assert!(path.netlink.link("eth0-out").is_err(), "the device went with the wire");
    let before = path.netlink.link("eth0").expect("there").counters.tx_packets;
    for _ in 0..10 {
        // The kernel may tell the sender that it dropped the packet, or not.
        let _ = near.send_to(b"lost", to);
    }
    assert_eq!(path.netlink.link("eth0").expect("there").counters.tx_packets, before);
    assert_eq!(poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&rustix::time::Timespec::default())), Ok(0));
}

//! The way of a packet through a program outside the kernel, on real namespaces: a gate on a device sends packets to a TAP
//! device, its reader writes them back, and a second program lets them go on where they were. Needs root and /dev/net/tun.

mod path;

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};

use path::{ETH0, FAR, NEAR, Path, address, gate};
use rustix::event::{PollFd, PollFlags, poll};
use slipway_sys::netlink::{BpfFilter, Direction, Handle, Offload, Qdisc, ReplaceQdisc, Request, Tbf};
use slipway_sys::tap::{FRAME_BYTES, Tap, VnetHeader};

const MTU: usize = 1500;
const ETHERNET: usize = 14;
/// Bytes of a transfer.
const BYTES: usize = 8_000_000;
/// Frames that came through a TAP device.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    frames: usize,
    packets: usize,
    /// Bytes, Ethernet header included.
    largest: usize,
    /// The most bytes of one packet, counted from what `packets` says of its frame.
    largest_packet: usize,
}

/// Carries every frame back, until `stop` is closed.
fn carry(taps: &[Tap; 2], stop: &OwnedFd, carriage: Carriage) -> [Seen; 2] {
    let mut seen = [Seen::default(); 2];
    let mut buffer = vec![0; FRAME_BYTES];
    loop {
        let mut ready = [
            PollFd::new(&taps[0], PollFlags::IN),
            PollFd::new(&taps[1], PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        poll(&mut ready, None).expect("polls");
        if !ready[2].revents().is_empty() {
            return seen;
        }
        for (tap, seen) in taps.iter().zip(&mut seen) {
            loop {
                let read = match tap.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    other => &buffer[..other.expect("reads")],
                };
                let (header, frame) = VnetHeader::parse(read).expect("never shorter than its header");
                let packets = header.packets(frame);
                seen.frames += 1;
                seen.packets += packets;
                seen.largest = seen.largest.max(frame.len());
                seen.largest_packet = seen.largest_packet.max(frame.len() / packets);
                match carriage {
                    Carriage::Cut if packets > 1 => {
                        for part in [0..1, 1..packets] {
                            let part = header.part(frame, part).expect("it is a segment");
                            tap.write(&part).expect("the kernel takes the parts");
                        }
                    }
                    _ => tap.write(read).expect("the kernel takes back what it gave"),
                }
            }
        }
    }
}

/// The way in which frames go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carriage {
    /// Unchanged, as they came.
    Whole,
    /// The first packet of a large segment, then the others.
    Cut,
}

fn start(taps: [Tap; 2], carriage: Carriage) -> (OwnedFd, JoinHandle<[Seen; 2]>) {
    let (stop, stopped) = rustix::pipe::pipe().expect("a pipe");
    (stopped, thread::spawn(move || carry(&taps, &stop, carriage)))
}

/// Transfers both ways over IPv4 and IPv6, and gives what came through the TAP devices for sending and for receiving.
fn transfers(segments: bool, carriage: Carriage) -> [Seen; 2] {
    let mut path = Path::new();
    if carriage == Carriage::Cut {
        // Else the far end of a veth takes what is not summed up yet for right.
        path.netlink.set_offload("eth0", Offload::TxChecksum, false).expect("a veth can");
    }
    let (stop, carrier) = start(path.by_taps(segments), carriage);
    path.transfer(BYTES);
    drop(stop);
    carrier.join().expect("carries to the end")
}

#[test]
fn large_segments_pass_whole_where_they_may() {
    for seen in transfers(true, Carriage::Whole) {
        assert!(seen.largest > 10 * MTU, "{seen:?}");
        assert!(seen.largest_packet <= MTU + ETHERNET, "{seen:?}");
        assert!(seen.packets > 2 * BYTES / MTU, "{seen:?}");
    }
}

#[test]
fn large_segments_are_cut_where_they_may_not() {
    for seen in transfers(false, Carriage::Whole) {
        assert_eq!(seen.largest, MTU + ETHERNET, "{seen:?}");
        assert_eq!(seen.packets, seen.frames, "{seen:?}");
    }
}

/// Sequence numbers, lengths and checksums of the parts are what the kernel and the receiver expect.
#[test]
fn large_segments_can_be_cut_on_the_way() {
    for seen in transfers(true, Carriage::Cut) {
        assert!(seen.largest > 10 * MTU, "{seen:?}");
    }
}

/// So that a queueing discipline below it draws for each packet, whatever connection it belongs to.
#[test]
fn a_token_bucket_of_one_packet_cuts_large_segments_for_its_child() {
    let mut path = Path::new();
    let frame = u32::try_from(MTU + ETHERNET).expect("fits");
    let qdisc = Qdisc::Tbf(Tbf { rate: 100_000_000_000, burst: frame, limit: 1 << 30 });
    let child = Qdisc::Tbf(Tbf { rate: 100_000_000_000, burst: 1 << 20, limit: 1 << 30 });
    let below = Handle { major: 1, minor: 1 };
    path.netlink
        .run(&[
            Request::ReplaceQdisc(ReplaceQdisc { index: ETH0, parent: Handle::ROOT, handle: 1, qdisc }),
            Request::ReplaceQdisc(ReplaceQdisc { index: ETH0, parent: below, handle: 2, qdisc: child }),
        ])
        .expect("the kernel takes them");
    path.transfer(BYTES);
    let found = path.netlink.qdiscs(ETH0).expect("lists");
    let child = found.iter().find(|qdisc| qdisc.handle.major == 2).expect("it is there");
    assert_eq!(child.drops, 0);
    assert!(child.bytes > BYTES as u64, "{child:?}");
    let passed = path.netlink.link("eth0").expect("there").counters;
    assert!(passed.tx_bytes / passed.tx_packets <= u64::from(frame), "{passed:?}");
}

#[test]
fn a_packet_passes_once_and_unmarked() {
    let mut path = Path::new();
    let (stop, carrier) = start(path.by_taps(true), Carriage::Whole);
    let near = path.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let far = path.far(|| UdpSocket::bind((address(FAR), 0))).expect("binds");
    near.connect(far.local_addr().expect("bound")).expect("connects");
    far.connect(near.local_addr().expect("bound")).expect("connects");
    let mut buffer = [0; 100];
    for number in 0..10 {
        near.send(&[number]).expect("sends");
        assert_eq!((far.recv(&mut buffer).expect("comes"), buffer[0]), (1, number));
        far.send(&[number]).expect("sends");
        assert_eq!((near.recv(&mut buffer).expect("comes back"), buffer[0]), (1, number));
    }
    drop(stop);
    let seen = carrier.join().expect("carries to the end");
    assert!(seen.iter().all(|seen| seen.frames >= 10), "{seen:?}");
}

#[test]
fn damage_after_the_checksum_is_noticed() {
    let mut path = Path::new();
    let [out, _in] = path.by_taps(false);
    let near = path.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let far = path.far(|| UdpSocket::bind((address(FAR), 0))).expect("binds");
    // Only sending goes by the TAP device here; nothing is asked of receiving.
    path.netlink.run(&[Request::DeleteClsact(ETH0)]).expect("takes both gates away");
    let index = path.netlink.link("eth0-out").expect("there").index;
    let gate = gate(index);
    let gated = BpfFilter { index: ETH0, direction: Direction::Egress, order: 1, program: gate.as_fd(), name: "gate" };
    path.netlink.run(&[Request::AddClsact(ETH0), Request::AddBpfFilter(gated)]).expect("one gate");

    let to = far.local_addr().expect("bound");
    let mut buffer = vec![0; FRAME_BYTES];
    for (damaged, text) in [(true, b"damaged"), (false, b"as sent")] {
        near.send_to(text, to).expect("sends");
        let (mut header, mut frame) = loop {
            poll(&mut [PollFd::new(&out, PollFlags::IN)], None).expect("polls");
            let read = out.read(&mut buffer).expect("reads");
            let (header, frame) = VnetHeader::parse(&buffer[..read]).expect("a frame");
            // Others than ours: the kernel's own IPv6 messages.
            if frame.ends_with(text) {
                break (header, frame.to_vec());
            }
        };
        assert_eq!(header.flags, VnetHeader::NEEDS_CSUM);
        assert!(header.complete_checksum(&mut frame));
        if damaged {
            *frame.last_mut().expect("not empty") ^= 1;
        }
        out.write(&[&header.to_bytes()[..], &frame].concat()).expect("writes");
    }
    let length = far.recv(&mut buffer).expect("one comes");
    assert_eq!(&buffer[..length], b"as sent", "the damaged one did not come before");
}

#[test]
fn without_a_reader_nothing_passes() {
    let mut path = Path::new();
    drop(path.by_taps(true));
    let near = path.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let before = path.netlink.link("eth0").expect("there").counters.tx_packets;
    for _ in 0..10 {
        // The kernel may tell the sender that it dropped the packet, or not.
        let _ = near.send_to(b"lost", (address(FAR), 9));
    }
    assert_eq!(path.netlink.link("eth0").expect("there").counters.tx_packets, before);
}

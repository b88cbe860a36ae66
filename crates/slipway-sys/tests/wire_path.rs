//! The way of a packet through a program outside the kernel, on real namespaces: a gate on a device sends packets to a TAP
//! device, its reader writes them back, and a second program lets them go on where they were. Needs root and /dev/net/tun.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use slipway_sys::bpf::asm::{Cond, Helper, Insn, Operand, R0, R1, R2, R3, Size, skb};
use slipway_sys::bpf::{BPF_F_INGRESS, Kind, Program, TC_ACT_OK};
use slipway_sys::netlink::{
    AddrGenMode, BpfFilter, Direction, Handle, Mac, Netlink, NewLink, Offload, Peer, Qdisc, ReplaceQdisc, Request,
    SetLink, Tbf, Veth,
};
use slipway_sys::ns::{create_net, with_net};
use slipway_sys::tap::{FRAME_BYTES, Tap, VnetHeader};

const ETH0: u32 = 10;
const NEAR: &str = "10.64.0.1";
const FAR: &str = "10.64.0.2";
const NEAR_6: &str = "fd53::1";
const FAR_6: &str = "fd53::2";
const NEAR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const FAR_MAC: Mac = [2, 0, 0, 0, 0, 2];
const MTU: usize = 1500;
const ETHERNET: usize = 14;
/// After which a transfer that stands still fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// Tells a packet that comes back from one that comes for the first time.
const BACK: i32 = 0x51_1b;

/// Lets packets with the mark pass, and takes the mark from them; sends the others to the TAP device.
fn gate(tap: u32) -> Program {
    let program = [
        Insn::Load(Size::Word, R2, R1, skb::MARK),
        Insn::JumpIf(Cond::Eq, R2, Operand::Imm(BACK), "back"),
        Insn::Mov(R1, Operand::Imm(tap.cast_signed())),
        Insn::Mov(R2, Operand::Imm(0)),
        Insn::Call(Helper::Redirect),
        Insn::Exit,
        Insn::Label("back"),
        Insn::Mov(R2, Operand::Imm(0)),
        Insn::Store(Size::Word, R1, skb::MARK, Operand::Of(R2)),
        Insn::Mov(R0, Operand::Imm(TC_ACT_OK)),
        Insn::Exit,
    ];
    Program::load(Kind::SchedCls, "gate", &program).expect("the verifier takes it")
}

/// Marks packets, and gives them back to the device.
fn back(flags: i32) -> Program {
    let program = [
        Insn::Mov(R3, Operand::Imm(BACK)),
        Insn::Store(Size::Word, R1, skb::MARK, Operand::Of(R3)),
        Insn::Mov(R1, Operand::Imm(ETH0.cast_signed())),
        Insn::Mov(R2, Operand::Imm(flags)),
        Insn::Call(Helper::Redirect),
        Insn::Exit,
    ];
    Program::load(Kind::SchedCls, "back", &program).expect("the verifier takes it")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two namespaces joined by a wire; `eth0` is in the near one.
struct Pair {
    near: OwnedFd,
    far: OwnedFd,
    netlink: Netlink,
}

impl Pair {
    fn new() -> Self {
        let [near, far] = [(); 2].map(|()| create_net().expect("these tests need root, to make network namespaces"));
        let open = |net: &OwnedFd| with_net(net.as_fd(), Netlink::open).expect("enters").expect("a socket opens");
        let (mut netlink, mut beyond) = (open(&near), open(&far));
        let link =
            NewLink { name: "eth0".into(), index: Some(ETH0), mac: Some(NEAR_MAC), up: true, ..NewLink::default() };
        let peer = Peer {
            name: "far".into(),
            index: Some(ETH0),
            mac: Some(FAR_MAC),
            net: Some(far.as_fd()),
            ..Peer::default()
        };
        netlink.run(&[Request::AddVeth(Veth { link, peer })]).expect("makes a pair");
        beyond
            .run(&[Request::SetLink(SetLink { index: ETH0, up: Some(true), ..SetLink::default() })])
            .expect("goes up");
        for (netlink, own, other, mac) in [
            (&mut netlink, [NEAR, NEAR_6], [FAR, FAR_6], FAR_MAC),
            (&mut beyond, [FAR, FAR_6], [NEAR, NEAR_6], NEAR_MAC),
        ] {
            for (own, prefix) in own.into_iter().zip([24, 64]) {
                let add = Request::AddAddress { index: ETH0, address: address(own), prefix, subnet_route: true };
                netlink.run(&[add]).expect("an address");
            }
            for other in other {
                netlink
                    .run(&[Request::AddNeighbour { index: ETH0, address: address(other), mac }])
                    .expect("a neighbour");
            }
        }
        Self { near, far, netlink }
    }

    /// Both directions of `eth0` by way of a TAP device each: (sent, received).
    fn by_taps(&mut self, segments: bool) -> [Tap; 2] {
        self.netlink.run(&[Request::AddClsact(ETH0)]).expect("places for programs");
        [(Direction::Egress, "eth0-out", 0), (Direction::Ingress, "eth0-in", BPF_F_INGRESS)].map(
            |(direction, name, flags)| {
                let tap =
                    with_net(self.near.as_fd(), || Tap::create(name)).expect("enters").expect("root may make one");
                tap.set_offload(segments).expect("this kernel can");
                let index = self.netlink.link(name).expect("it is there").index;
                let (gate, back) = (gate(index), back(flags));
                // An address of its own would have the kernel send messages through it.
                let quiet = SetLink { index, addr_gen_mode: Some(AddrGenMode::None), ..SetLink::default() };
                let up = SetLink { index, up: Some(true), tx_queue_len: Some(4096), ..SetLink::default() };
                let returned = BpfFilter { index, direction: Direction::Ingress, program: back.as_fd(), name: "back" };
                let gated = BpfFilter { index: ETH0, direction, program: gate.as_fd(), name: "gate" };
                self.netlink
                    .run(&[
                        Request::AddClsact(index),
                        Request::AddBpfFilter(returned),
                        Request::SetLink(quiet),
                        Request::SetLink(up),
                        Request::AddBpfFilter(gated),
                    ])
                    .expect("the kernel takes them");
                tap
            },
        )
    }

    fn near<T>(&self, action: impl FnOnce() -> T) -> T {
        with_net(self.near.as_fd(), action).expect("enters")
    }

    fn far<T>(&self, action: impl FnOnce() -> T) -> T {
        with_net(self.far.as_fd(), action).expect("enters")
    }
}

/// What came through a TAP device.
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
                            let (header, part) = header.part(frame, part).expect("it is a segment");
                            tap.write(&[&header.to_bytes()[..], &part].concat()).expect("the kernel takes the parts");
                        }
                    }
                    _ => tap.write(read).expect("the kernel takes back what it gave"),
                }
            }
        }
    }
}

/// How frames go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carriage {
    /// As they came.
    Whole,
    /// The first packet of a large segment, then the others.
    Cut,
}

fn start(taps: [Tap; 2], carriage: Carriage) -> (OwnedFd, JoinHandle<[Seen; 2]>) {
    let (stop, stopped) = rustix::pipe::pipe().expect("a pipe");
    (stopped, thread::spawn(move || carry(&taps, &stop, carriage)))
}

fn pattern(length: usize) -> Vec<u8> {
    // Repeats only after 251 bytes, a prime: a packet that is lost, doubled or swapped shows.
    (0..length).map(|i| u8::try_from(i % 251).expect("below 251")).collect()
}

/// Sends megabytes from one side to the other by TCP, and expects them to come whole.
fn transfer(listener: TcpListener, mut sender: TcpStream) {
    let sent = pattern(8_000_000);
    let expected = sent.clone();
    let receiving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("takes one");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("reads");
        received
    });
    sender.write_all(&sent).expect("writes");
    drop(sender);
    assert!(receiving.join().expect("ends") == expected, "what was sent came");
}

fn listen(address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address, 0)).expect("binds");
    let at = listener.local_addr().expect("bound");
    (listener, at)
}

/// Transfers both ways over IPv4 and IPv6, and gives what came through the TAP devices for sending and for receiving.
fn transfers(segments: bool, carriage: Carriage) -> [Seen; 2] {
    let mut pair = Pair::new();
    if carriage == Carriage::Cut {
        // Else the far end of a veth takes what is not summed up yet for right.
        pair.netlink.set_offload("eth0", Offload::TxChecksum, false).expect("a veth can");
    }
    let (stop, carrier) = start(pair.by_taps(segments), carriage);
    for (near, far) in [(NEAR, FAR), (NEAR_6, FAR_6)] {
        let (listener, at) = pair.far(|| listen(address(far)));
        transfer(listener, pair.near(|| TcpStream::connect(at)).expect("connects"));
        let (listener, at) = pair.near(|| listen(address(near)));
        transfer(listener, pair.far(|| TcpStream::connect(at)).expect("connects"));
    }
    drop(stop);
    carrier.join().expect("carries to the end")
}

#[test]
fn large_segments_pass_whole_where_they_may() {
    for seen in transfers(true, Carriage::Whole) {
        assert!(seen.largest > 10 * MTU, "{seen:?}");
        assert!(seen.largest_packet <= MTU + ETHERNET, "{seen:?}");
        assert!(seen.packets > 2 * 8_000_000 / MTU, "{seen:?}");
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
    let mut pair = Pair::new();
    let frame = u32::try_from(MTU + ETHERNET).expect("fits");
    let qdisc = Qdisc::Tbf(Tbf { rate: 100_000_000_000, burst: frame, limit: 1 << 30 });
    let child = Qdisc::Tbf(Tbf { rate: 100_000_000_000, burst: 1 << 20, limit: 1 << 30 });
    let below = Handle { major: 1, minor: 1 };
    pair.netlink
        .run(&[
            Request::ReplaceQdisc(ReplaceQdisc { index: ETH0, parent: Handle::ROOT, handle: 1, qdisc }),
            Request::ReplaceQdisc(ReplaceQdisc { index: ETH0, parent: below, handle: 2, qdisc: child }),
        ])
        .expect("the kernel takes them");
    let (listener, at) = pair.far(|| listen(address(FAR)));
    transfer(listener, pair.near(|| TcpStream::connect(at)).expect("connects"));
    let found = pair.netlink.qdiscs(ETH0).expect("lists");
    let child = found.iter().find(|qdisc| qdisc.handle.major == 2).expect("it is there");
    assert_eq!(child.drops, 0);
    assert!(child.bytes > 8_000_000, "{child:?}");
    let passed = pair.netlink.link("eth0").expect("there").counters;
    assert!(passed.tx_bytes / passed.tx_packets <= u64::from(frame), "{passed:?}");
}

#[test]
fn a_packet_passes_once_and_unmarked() {
    let mut pair = Pair::new();
    let (stop, carrier) = start(pair.by_taps(true), Carriage::Whole);
    let near = pair.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let far = pair.far(|| UdpSocket::bind((address(FAR), 0))).expect("binds");
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
    let mut pair = Pair::new();
    let [out, _in] = pair.by_taps(false);
    let near = pair.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let far = pair.far(|| UdpSocket::bind((address(FAR), 0))).expect("binds");
    // Only sending goes by the TAP device here; nothing is asked of receiving.
    pair.netlink.run(&[Request::DeleteClsact(ETH0)]).expect("takes both gates away");
    let index = pair.netlink.link("eth0-out").expect("there").index;
    let gate = gate(index);
    let gated = BpfFilter { index: ETH0, direction: Direction::Egress, program: gate.as_fd(), name: "gate" };
    pair.netlink.run(&[Request::AddClsact(ETH0), Request::AddBpfFilter(gated)]).expect("one gate");

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
    let mut pair = Pair::new();
    drop(pair.by_taps(true));
    let near = pair.near(|| UdpSocket::bind((address(NEAR), 0))).expect("binds");
    let before = pair.netlink.link("eth0").expect("there").counters.tx_packets;
    for _ in 0..10 {
        // The kernel may tell the sender that it dropped the packet, or not.
        let _ = near.send_to(b"lost", (address(FAR), 9));
    }
    assert_eq!(pair.netlink.link("eth0").expect("there").counters.tx_packets, before);
}

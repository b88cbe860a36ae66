//! Two network namespaces joined by a wire, and devices put in its way as a lab's links have them. Shared by the tests of
//! what carries frames. Needs root and /dev/net/tun.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use slipway_sys::bpf::{Object, Program};
use slipway_sys::netlink::{AddrGenMode, BpfFilter, Direction, Mac, Netlink, NewLink, Peer, Request, SetLink, Veth};
use slipway_sys::ns::{create_net, with_net};
use slipway_sys::tap::Tap;

pub(crate) const ETH0: u32 = 10;
pub(crate) const NEAR: &str = "10.64.0.1";
pub(crate) const FAR: &str = "10.64.0.2";
const NEAR_6: &str = "fd53::1";
const FAR_6: &str = "fd53::2";
const NEAR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const FAR_MAC: Mac = [2, 0, 0, 0, 0, 2];
/// After which a transfer that stands still fails instead of hanging.
const PATIENCE: Duration = Duration::from_mins(2);

static OBJECT: Object = Object::new("test", include_bytes!("../../bpf/test.bpf.o"));

/// One of the programs that send packets to a device.
fn program(function: &str, device: u32, receives: bool) -> Program {
    let constants = [("device", &device.to_ne_bytes()[..]), ("receives", &[u8::from(receives)])];
    OBJECT.with(&constants, &[]).and_then(|ready| ready.load(function)).expect("the verifier takes it")
}

/// Lets packets with the mark pass, and takes the mark from them; sends the others to the TAP device.
pub(crate) fn gate(tap: u32) -> Program {
    program("gate", tap, false)
}

/// Marks packets, and gives them back to the device.
fn back(receives: bool) -> Program {
    program("back", ETH0, receives)
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two namespaces joined by a wire; `eth0` is in the near one.
pub(crate) struct Path {
    near: OwnedFd,
    far: OwnedFd,
    /// In the near one.
    pub(crate) netlink: Netlink,
}

impl Path {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn by_taps(&mut self, segments: bool) -> [Tap; 2] {
        self.netlink.run(&[Request::AddClsact(ETH0)]).expect("places for programs");
        [(Direction::Egress, "eth0-out", false), (Direction::Ingress, "eth0-in", true)].map(
            |(direction, name, receives)| {
                let tap =
                    with_net(self.near.as_fd(), || Tap::create(name)).expect("enters").expect("root may make one");
                tap.set_offload(segments).expect("this kernel can");
                let index = self.netlink.link(name).expect("it is there").index;
                let (gate, back) = (gate(index), back(receives));
                // An address of its own would have the kernel send messages through it.
                let quiet = SetLink { index, addr_gen_mode: Some(AddrGenMode::None), ..SetLink::default() };
                let up = SetLink { index, up: Some(true), tx_queue_len: Some(4096), ..SetLink::default() };
                let returned =
                    BpfFilter { index, direction: Direction::Ingress, order: 1, program: back.as_fd(), name: "back" };
                let gated = BpfFilter { index: ETH0, direction, order: 1, program: gate.as_fd(), name: "gate" };
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

    pub(crate) fn near<T>(&self, action: impl FnOnce() -> T) -> T {
        with_net(self.near.as_fd(), action).expect("enters")
    }

    pub(crate) fn far<T>(&self, action: impl FnOnce() -> T) -> T {
        with_net(self.far.as_fd(), action).expect("enters")
    }

    /// Sends so many bytes by TCP, both ways over IPv4 and IPv6, and expects them to come whole.
    pub(crate) fn transfer(&self, bytes: usize) {
        let listen = |own: &str| TcpListener::bind((address(own), 0)).expect("binds");
        for (near, far) in [(NEAR, FAR), (NEAR_6, FAR_6)] {
            let listener = self.far(|| listen(far));
            let to = listener.local_addr().expect("bound");
            transfer(&listener, self.near(|| TcpStream::connect(to)).expect("connects"), bytes);
            let listener = self.near(|| listen(near));
            let to = listener.local_addr().expect("bound");
            transfer(&listener, self.far(|| TcpStream::connect(to)).expect("connects"), bytes);
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    // Repeats only after 251 bytes, a prime: a packet that is lost, doubled or swapped shows.
    (0..length).map(|i| u8::try_from(i % 251).expect("below 251")).collect()
}

fn transfer(listener: &TcpListener, mut sender: TcpStream, bytes: usize) {
    let sent = pattern(bytes);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accepts");
            stream.set_read_timeout(Some(PATIENCE)).expect("takes one");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("reads");
            received
        });
        sender.write_all(&sent).expect("writes");
        drop(sender);
        assert!(receiving.join().expect("ends") == sent, "what was sent came");
    });
}

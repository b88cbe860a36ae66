//! Nodes that leave connections waiting, in a process of its own: its limit of descriptors is what the router goes by.

#[allow(dead_code, reason = "each test file uses its own part")]
mod nodes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use nodes::{CLIENT, Lab, SERVER};
use rustix::process::{Resource, Rlimit, setrlimit};
use slipway_lab::id::NodeId;

/// An eighth may wait to be accepted.
const DESCRIPTORS: u64 = 2400;
const FLOOD: usize = 400;

fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip), port)
}

/// One node has a listener with a long queue and never accepts. The other node opens more connections to it than a
/// router may have waiting in all. Connections to the other node are fast all the same, and there is a reason why some
/// of those are not.
#[test]
fn nodes_that_leave_connections_waiting_leave_room_for_others() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) }).expect("lowered");
    let lab = Lab::new();
    lab.add_wakeup_sockets(NodeId(1), FLOOD);
    let full = lab.server(move || {
        let listener = TcpListener::bind(at(SERVER, 80)).expect("bound");
        rustix::net::listen(&listener, 4096).expect("a longer queue");
        listener
    });
    let other = lab.client(move || TcpListener::bind(at(CLIENT, 81)).expect("bound"));
    let flood: Vec<TcpStream> = lab.client(move || {
        (0..FLOOD).map(|_| TcpStream::connect(at(SERVER, 80)).expect("connected, one way or the other")).collect()
    });
    let before = lab.router.counts.tally();
    let left: u64 = before.native.values().sum();
    assert!(left > 0 && before.pair > 50, "{before:?}");
    assert_eq!(before.pair + left, FLOOD as u64);
    let others: Vec<TcpStream> =
        lab.server(move || (0..20).map(|_| TcpStream::connect(at(CLIENT, 81)).expect("connected")).collect());
    let after = lab.router.counts.tally();
    assert_eq!((after.pair - before.pair, after.native), (20, before.native), "they are fast");
    drop((full, other, flood, others));
}

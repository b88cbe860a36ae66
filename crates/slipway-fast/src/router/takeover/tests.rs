use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use slipway_lab::id::NodeId;

use crate::journal::Unaccepted;
use crate::metadata::Path;
use crate::nodes::{CLIENT, Lab, SERVER};

/// Longer than anything takes that comes at all.
const LONG: Duration = Duration::from_mins(1);

fn bound(at: SocketAddr) -> TcpListener {
    TcpListener::bind(at).expect("bound")
}

/// The router takes over a connection to a server of the second node that no wake-up socket announces. Gives the client's end.
fn take_up(lab: &Lab, client: SocketAddr, server: SocketAddr) -> UnixStream {
    let (ours, end) = UnixStream::pair().expect("a pair");
    let (path, flow) = (Some(Path::Pair), lab.router.parts.numbers.next_flow());
    let unaccepted = Unaccepted { node: NodeId(1), path, flow, client, server, handoff: None };
    lab.router.take_up(unaccepted, OwnedFd::from(end), None).expect("it is taken up");
    ours
}

/// So many wake-ups wait in queues of listeners.
fn await_wakeups(lab: &Lab, count: usize) {
    while lab.router.status().waiting != count {
        thread::yield_now();
    }
}

/// The anchor gives more wake-up sockets only once the router has obeyed.
#[test]
fn more_connections_than_wakeup_sockets_are_taken_over() {
    let lab = Lab::new();
    let [client, at] = [(CLIENT, 1000), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip), port));
    let clients = (0..100).map(|more| SocketAddr::new(client.ip(), client.port() + more));
    let listener = lab.server(move || bound(at));
    let ends: Vec<UnixStream> = clients.clone().map(|client| take_up(&lab, client, at)).collect();
    await_wakeups(&lab, 64);
    for mut end in &ends {
        end.set_nonblocking(true).expect("set");
        assert_eq!(end.read(&mut [0]).expect_err("nothing was said").kind(), std::io::ErrorKind::WouldBlock);
    }
    lab.add_wakeup_sockets(NodeId(1), 64);
    let accepted = lab.server(move || (0..100).map(|_| listener.accept().expect("accepted").1).collect());
    assert_eq!(clients.collect::<BTreeSet<_>>(), accepted);
}

/// No program of the node runs under a filter yet.
#[test]
fn the_end_of_a_listener_is_noticed_before_its_programs_are_served() {
    let lab = Lab::new();
    let [client, at] = [(CLIENT, 1000), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip), port));
    let listener = lab.runs(NodeId(1), false, move || bound(at)).join().expect("it ran");
    let mut end = take_up(&lab, client, at);
    await_wakeups(&lab, 1);
    drop(listener);
    end.set_read_timeout(Some(LONG)).expect("set");
    assert_eq!(end.read(&mut [0]).expect("it has ended"), 0);
}

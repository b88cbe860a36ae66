use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use slipway_lab::id::NodeId;

use super::*;
use crate::channel::{Acceptor, ChannelError, Hello, Key, Limits, Open, OpenProgress, Pool, Refusal};
use crate::metadata::Path;
use crate::nodes::{CLIENT, Lab, SERVER};
use crate::pending::{Connection, Pending, ServerEnd};

/// So many calls of the node's wait; nothing else tells of it than that.
fn await_calls(router: &Router, node: NodeId, count: usize) {
    let blocked_accepts = router.nodes.blocked_accepts(node).expect("it has programs");
    while blocked_accepts.count() < count {
        thread::yield_now();
    }
}

fn bound(at: SocketAddr) -> TcpListener {
    TcpListener::bind(at).expect("bound")
}

fn accept(listener: &TcpListener) -> SocketAddr {
    listener.accept().expect("accepted").1
}

/// Has a listener of the second node hear of a connection whose end is not there yet: who accepts it waits for that. Gives what ends
/// the waiting, and who is accepted then.
fn hold_up(lab: &Lab, at: SocketAddr) -> (impl FnOnce() + '_, SocketAddr) {
    let (flow, client) = (lab.router.parts.numbers.next_flow(), SocketAddr::new(CLIENT.into(), 1000));
    let (entry, path, number) = (None, Some(Path::Pair), None);
    let connection = Connection { share: None, entry, end: ServerEnd::Awaited, path, flow, client, server: at, number };
    let until = Instant::now() + Duration::from_mins(1);
    let wakeup = lab.router.parts.delivery.wake_by(NodeId(1), connection, Some(until)).expect("it is knocked for");
    let end_it = move || {
        let (end, _) = UnixStream::pair().expect("a pair");
        let came = |pending: &mut Pending| pending.connection.end = ServerEnd::There(end.into());
        lab.router.parts.delivery.pending.with(wakeup, came);
    };
    (end_it, client)
}

/// The connection that a node accepts is not there yet, and holds up who accepts it; the other node's programs accept others.
#[test]
fn a_node_holds_up_itself_alone() {
    let lab = Lab::new();
    let [near, far] = [(CLIENT, 81), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(ip.into(), port));
    let [one, other] = [lab.client(move || bound(near)), lab.server(move || bound(far))];
    let held_up = lab.server_runs(move || accept(&other));
    await_calls(&lab.router, NodeId(1), 1);
    let (end_it, client) = hold_up(&lab, far);
    let accepting = lab.client_runs(move || accept(&one));
    await_calls(&lab.router, NodeId(0), 1);
    let native = lab.runs(NodeId(1), false, move || TcpStream::connect(near).expect("connected"));
    assert_eq!(accepting.join().expect("it ran").ip(), SERVER);
    drop(native);
    end_it();
    assert_eq!(held_up.join().expect("it ran"), client);
}

/// A node's thread is held up. Another host asks for two of its servers, one that waits in `accept` and one whose queue is full, and
/// then for a server of the other node. The clients of the first and the last go on, and the servers wait for their node alone.
#[test]
fn another_host_is_not_held_up_by_a_node() {
    const LONG: Duration = Duration::from_mins(1);
    let lab = Lab::new();
    let at = |ip: Ipv4Addr, port| SocketAddr::new(ip.into(), port);
    let [near, far, slow, full_at] = [at(CLIENT, 81), at(SERVER, 80), at(SERVER, 82), at(SERVER, 83)];
    let own = lab.client(move || bound(near));
    let [other, held_up] = [far, slow].map(|at| lab.server(move || bound(at)));

    let key = || Key::take(&mut [1; 32]);
    let [us, them] = [0, 1].map(|host| Hello::new(7, host));
    let (listener, router) = (bound("127.0.0.1:0".parse().expect("an address")), Arc::clone(&lab.router));
    let peers = [(0, listener.local_addr().expect("bound"))];
    let _acceptor = Acceptor::start(listener, key(), us, Limits::default(), move |asked| router.asked(asked));
    let pool = Pool::start(key(), them, peers, 4).expect("started");
    let open = |flow, client, server| Open { flow, server, client: at(client, 1000) };

    let (tell, told) = channel();
    let twice = lab.server_runs(move || {
        for _ in 0..2 {
            assert_eq!(accept(&other), at(CLIENT, 1000));
            tell.send(()).expect("it is heard");
        }
    });
    await_calls(&lab.router, NodeId(1), 1);
    let _knocked_for = pool.open(0, &open(1, CLIENT, far), LONG).expect("accepted");
    told.recv().expect("accepted");
    let held_up = lab.server_runs(move || accept(&held_up));
    await_calls(&lab.router, NodeId(1), 2);
    let (end_it, _) = hold_up(&lab, slow);

    // Nobody accepts there, and one connection is all that its queue holds.
    let full = lab.server(move || bound(full_at));
    rustix::net::listen(&full, 0).expect("it listens");
    let _queued =
        lab.runs(NodeId(1), false, move || TcpStream::connect(full_at).expect("connected")).join().expect("it ran");
    let asking = pool.ask(0, &open(4, CLIENT, full_at), LONG).expect("asked");

    let _connected = pool.open(0, &open(2, CLIENT, far), LONG).expect("accepted");
    let accepting = lab.client_runs(move || accept(&own));
    await_calls(&lab.router, NodeId(0), 1);
    let _served = pool.open(0, &open(3, SERVER, near), LONG).expect("accepted");
    assert_eq!(accepting.join().expect("it ran"), at(SERVER, 1000));
    told.try_recv().expect_err("its node's thread is held up");
    let OpenProgress::Pending(asking) = asking.poll().expect("not refused") else { panic!("nobody accepts") };
    end_it();
    let refused = asking.wait(Instant::now() + LONG).expect_err("its queue is full");
    assert!(matches!(refused, ChannelError::Refused(Refusal::Backlog)), "{refused}");
    held_up.join().expect("it ran");
    twice.join().expect("it ran");
}

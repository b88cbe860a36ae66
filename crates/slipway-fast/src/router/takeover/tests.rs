use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use slipway_lab::id::NodeId;
use slipway_sys::bpf::{Interruptions, ThreadCounts};
use slipway_sys::notify::{Call, Caller, Listener};

use crate::filter;
use crate::journal::{HandoffCall, Unaccepted};
use crate::metadata::Path;
use crate::nodes::{CLIENT, Lab, SERVER};

/// Longer than anything takes that comes at all.
const LONG: Duration = Duration::from_mins(1);

/// Accepts so many, and tells each its address.
const TELL: &str = "
import signal, socket, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, False)
kept = []
with socket.create_server(('10.64.0.2', 80)) as listener:
    for _ in range(int(sys.argv[1])):
        connection, (ip, port) = listener.accept()
        assert connection.fileno() not in [other.fileno() for other in kept], 'given twice'
        kept.append(connection)
        connection.sendall(f'{ip}:{port}'.encode())
";

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

/// A server in the second node, which tells clients their addresses. The router before plays out in the test.
struct Server {
    listener: Listener,
    running: JoinHandle<()>,
    counts: ThreadCounts,
    _program: Interruptions,
}

impl Server {
    /// The server, which accepts so many, and a lab whose router counts interruptions.
    fn start(connections: usize) -> (Lab, Self) {
        let (counts, program) = filter::count_interruptions().expect("the kernel counts");
        let copy = counts.as_fd().try_clone_to_owned().expect("a copy");
        let lab = Lab::counting(Some(ThreadCounts::try_from(copy).expect("counts")));
        let (listener, running) = lab.trapped(NodeId(1), move || {
            let python = Command::new("python3").args(["-c", TELL, &connections.to_string()]).status();
            assert!(python.expect("it runs").success());
        });
        (lab, Self { listener, running, counts, _program: program })
    }

    /// The next call to accept; others go on.
    fn accepts(&self) -> Call {
        loop {
            let call = self.listener.receive().expect("heard").expect("it runs");
            if call.number == libc::SYS_accept4 {
                return call;
            }
            self.listener.go_on(call.id).expect("it waits");
        }
    }

    /// The earlier router puts a connection into the program and is about to answer. Gives that, and the client's end.
    fn is_handed(&self, call: Call) -> (HandoffCall, OwnedFd, i32, UnixStream) {
        let (ours, end) = UnixStream::pair().expect("a pair");
        let end = OwnedFd::from(end);
        let caller = Caller::open(call.tid).expect("it waits");
        let interrupted = Some(self.counts.of(caller.as_fd()).expect("counted"));
        let number = self.listener.install(call.id, end.as_fd(), None, true).expect("it takes it");
        let listener = i32::try_from(call.args[0]).expect("a descriptor");
        let handoff = HandoffCall { tree: 0, call: call.id, tid: call.tid, listener, reported: true, interrupted };
        (handoff, end, number, ours)
    }

    /// A signal comes while the program waits, and it calls again.
    fn is_interrupted(&self, call: Call) {
        let pid = Pid::from_raw(call.tid).expect("a process");
        kill_process(pid, Signal::USR1).expect("it lives");
        while self.listener.is_waiting(call.id) || !self.listener.is_called() {
            thread::yield_now();
        }
    }

    /// The next router takes the connection over, and serves the program.
    fn taken_over(self, lab: &Lab, handoff: HandoffCall, end: OwnedFd) -> JoinHandle<()> {
        let [client, server] = [(CLIENT, 1000), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip), port));
        let (path, flow, handoff) = (Some(Path::Pair), lab.router.parts.numbers.next_flow(), Some(handoff));
        let unaccepted = Unaccepted { node: NodeId(1), path, flow, client, server, handoff };
        lab.router.take_up(unaccepted, end, None).expect("it is taken up");
        lab.router.introduce(NodeId(1), 0, self.listener).expect("introduced");
        lab.router.serve().expect("a thread");
        self.running
    }
}

/// The answer that a client hears.
fn hears(mut end: UnixStream) -> String {
    let mut said = [0; 14];
    end.set_read_timeout(Some(LONG)).expect("set");
    end.read_exact(&mut said).expect("it says something");
    String::from_utf8_lossy(&said).into_owned()
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

/// The earlier router had put the connection into its program, and had not answered when it ended. The program's handler ran.
#[test]
fn a_program_that_a_signal_interrupts_before_the_answer_is_told_by_the_next_router() {
    let (lab, server) = Server::start(1);
    let call = server.accepts();
    let (handoff, end, _, client) = server.is_handed(call);
    server.is_interrupted(call);
    let running = server.taken_over(&lab, handoff, end);
    assert_eq!(hears(client), "10.64.0.1:1000");
    running.join().expect("it accepts one");
}

/// The earlier router had answered. The signal came in the program's next call.
#[test]
fn a_program_that_a_signal_interrupts_after_the_answer_is_not_told_twice() {
    let (lab, server) = Server::start(2);
    let call = server.accepts();
    let (handoff, end, number, client) = server.is_handed(call);
    server.listener.answer(call.id, Ok(number.into())).expect("it waits");
    let next = server.accepts();
    server.is_interrupted(next);
    let running = server.taken_over(&lab, handoff, end);
    let [other, at] = [(CLIENT, 1001), (SERVER, 80)].map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip), port));
    assert_eq!(hears(take_up(&lab, other, at)), "10.64.0.1:1001");
    drop(client);
    running.join().expect("it accepts two");
}

//! The router as programs meet it: threads of this process stand for programs, each in its node's namespace and under the
//! filter, and use sockets of the standard library.

#[allow(dead_code, reason = "each test file uses its own part")]
mod nodes;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

use nodes::{Lab, SERVER};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipway_fast::reason::Reason;
use slipway_lab::id::NodeId;

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER.into(), port)
}

#[test]
fn a_connection_slips_past_and_shows_virtual_addresses() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(80)).expect("bound"));
    let accepting = lab.server_runs(move || {
        let (mut stream, peer) = listener.accept().expect("accepted");
        assert_eq!(stream.peer_addr().expect("it has one"), peer);
        assert_eq!(stream.local_addr().expect("it has one"), server(80));
        let mut word = [0; 5];
        stream.read_exact(&mut word).expect("read");
        stream.write_all(&word).expect("written");
        peer
    });
    let local = lab.client(move || {
        let mut stream = TcpStream::connect(server(80)).expect("connected");
        stream.set_nodelay(true).expect("set");
        assert!(stream.nodelay().expect("read"));
        assert_eq!(stream.peer_addr().expect("it has one"), server(80));
        stream.write_all(b"hello").expect("written");
        let mut word = [0; 5];
        stream.read_exact(&mut word).expect("read");
        assert_eq!(&word, b"hello");
        stream.local_addr().expect("it has one")
    });
    assert_eq!(accepting.join().expect("it ran"), local);
    let tally = lab.router.counts.tally();
    assert_eq!((tally.pair, tally.native.len()), (1, 0), "{tally:?}");
}

#[test]
fn nobody_listens() {
    let lab = Lab::new();
    let error = lab.client(|| TcpStream::connect(server(81)).expect_err("nobody listens"));
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(lab.router.counts.tally().refused, 1);
}

#[test]
fn the_container_network_carries_the_rest() {
    let lab = Lab::new();
    lab.router.condition([NodeId(0)].into());
    let listener = lab.server(move || TcpListener::bind(server(82)).expect("bound"));
    let accepting = lab.server_runs(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.write_all(b"by the veth").expect("written");
    });
    let text = lab.client(|| {
        let mut text = String::new();
        TcpStream::connect(server(82)).expect("connected").read_to_string(&mut text).expect("read");
        text
    });
    assert_eq!(text, "by the veth");
    accepting.join().expect("it ran");
    assert_eq!(lab.router.counts.tally().native[&Reason::Conditions], 1);
}

/// Its filter would see none of its packets.
#[test]
fn a_socket_with_a_filter_stays_on_the_container_network() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(85)).expect("bound"));
    lab.client(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        // `ret #0xffffffff`: all pass.
        let mut code = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
        let mut filter = [0; 16];
        filter[..2].copy_from_slice(&1_u16.to_ne_bytes());
        filter[8..].copy_from_slice(&(&raw mut code).addr().to_ne_bytes());
        let attach = slipway_sys::sockopt::Name { level: libc::SOL_SOCKET, name: libc::SO_ATTACH_FILTER };
        slipway_sys::sockopt::set(&socket, attach, &filter).expect("attached");
        rustix::net::connect(&socket, &server(85)).expect("connected");
    });
    drop(listener);
    assert_eq!(lab.router.counts.tally().native[&Reason::Filtered], 1);
}

#[test]
fn an_epoll_entry_made_before_connecting_holds() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(83)).expect("bound"));
    let accepting = lab.server_runs(move || listener.accept().expect("accepted").0.write_all(b"x").expect("written"));
    lab.client(|| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
        let instance = epoll::create(CreateFlags::CLOEXEC).expect("an instance");
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&instance, &socket, EventData::new_u64(77), events).expect("added");
        let error = rustix::net::connect(&socket, &server(83)).expect_err("it is not blocking");
        assert_eq!(error, rustix::io::Errno::INPROGRESS);
        let mut found = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
        let mut seen = EventFlags::empty();
        while !seen.contains(EventFlags::IN | EventFlags::OUT) {
            let count = epoll::wait(&instance, &mut found, None).expect("waited");
            for event in &found[..count] {
                assert_eq!(event.data.u64(), 77);
                seen |= event.flags;
            }
        }
        assert_eq!(sockopt::socket_error(&socket).expect("read"), Ok(()));
        assert_eq!(rustix::net::connect(&socket, &server(83)), Ok(()), "it was not told yet");
        assert_eq!(rustix::net::connect(&socket, &server(83)), Err(rustix::io::Errno::ISCONN));
        epoll::modify(&instance, &socket, EventData::new_u64(78), EventFlags::IN).expect("its number is the program's");
    });
    accepting.join().expect("it ran");
    assert_eq!(lab.router.counts.tally().pair, 1);
}

#[test]
fn a_listener_that_closes_ends_who_waits() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(84)).expect("bound"));
    let mut stream = lab.client(|| TcpStream::connect(server(84)).expect("connected"));
    drop(listener);
    let mut text = Vec::new();
    assert_eq!(stream.read_to_end(&mut text).expect("it ends"), 0);
}

#[test]
fn a_socket_that_was_handed_out_has_no_power() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(86)).expect("bound"));
    lab.client(move || {
        let stream = TcpStream::connect(server(86)).expect("connected");
        let socket = stream.as_fd();
        let elsewhere: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(rustix::net::connect(socket, &elsewhere), Err(rustix::io::Errno::ISCONN));
        assert_eq!(rustix::net::listen(socket, 1), Err(rustix::io::Errno::INVAL));
        assert!(rustix::net::bind(socket, &elsewhere).is_err());
        let pass = slipway_sys::sockopt::Name { level: libc::SOL_SOCKET, name: 83 };
        let error = slipway_sys::sockopt::set(socket, pass, &1_i32.to_ne_bytes()).expect_err("descriptors stay");
        // As of a socket of TCP, which has no such option.
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    });
    drop(listener);
}

#[test]
fn threads_connect_at_once() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(87)).expect("bound"));
    let accepting = lab.server_runs(move || {
        let streams: Vec<TcpStream> = (0..32).map(|_| listener.accept().expect("accepted").0).collect();
        for mut stream in streams {
            stream.write_all(b"x").expect("written");
        }
    });
    lab.client(|| {
        let connect = || {
            let mut byte = [0];
            TcpStream::connect(server(87)).expect("connected").read_exact(&mut byte).expect("read");
        };
        let all: Vec<_> = (0..32).map(|_| thread::spawn(connect)).collect();
        for one in all {
            one.join().expect("it ran");
        }
    });
    accepting.join().expect("it ran");
}

/// The router expects a thread that has waited in `accept` to call it again. A thread that polls instead hears of a connection too.
/// Their calls may be served by two threads of the router's.
#[test]
fn what_threads_set_on_a_socket_at_once_stays() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(90)).expect("bound"));
    let stream = lab.client(move || TcpStream::connect(server(90)).expect("connected"));
    let _other = lab.server(move || listener.accept().expect("accepted"));
    lab.client(move || {
        thread::scope(|scope| {
            scope.spawn(|| {
                for hops in (1..=255).cycle().take(1000) {
                    sockopt::set_ip_ttl(&stream, hops).expect("set");
                    assert_eq!(sockopt::ip_ttl(&stream).expect("read"), hops);
                }
            });
            scope.spawn(|| {
                for probes in (1..=127).cycle().take(1000) {
                    sockopt::set_tcp_keepcnt(&stream, probes).expect("set");
                    assert_eq!(sockopt::tcp_keepcnt(&stream).expect("read"), probes);
                }
            });
        });
    });
}

#[test]
fn a_server_that_polls_after_it_waited_hears_of_connections() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(88)).expect("bound"));
    let other = listener.try_clone().expect("a copy");
    let accepting = lab.server_runs(move || drop(other.accept().expect("accepted")));
    let connect = || {
        let mut text = Vec::new();
        TcpStream::connect(server(88)).expect("connected").read_to_end(&mut text).expect("it ends");
    };
    lab.client(connect);
    accepting.join().expect("it ran");
    let polling = lab.server_runs(move || {
        for _ in 0..3 {
            let mut ready = [PollFd::new(&listener, PollFlags::IN)];
            rustix::event::poll(&mut ready, None).expect("polled");
            drop(listener.accept().expect("accepted"));
        }
    });
    let clients: Vec<_> = (0..3).map(|_| lab.client_runs(connect)).collect();
    polling.join().expect("it ran");
    for client in clients {
        client.join().expect("it ran");
    }
    assert_eq!(lab.router.counts.tally().pair, 4);
}

/// Where a program listens no more, or its queue is full, nothing is kept for it.
#[test]
fn a_listener_that_has_just_closed_refuses() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(89)).expect("bound"));
    let accepting = lab.server_runs(move || drop(listener.accept().expect("accepted")));
    lab.client(|| drop(TcpStream::connect(server(89)).expect("connected")));
    accepting.join().expect("it ran");
    let error = lab.client(|| TcpStream::connect(server(89)).expect_err("nobody listens"));
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// More come than there are sockets to knock with, and all are accepted.
#[test]
fn those_who_are_kept_are_not_lost() {
    const CLIENTS: usize = 68;
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server(91)).expect("bound"));
    let other = listener.try_clone().expect("a copy");
    let accepting = lab.server_runs(move || drop(other.accept().expect("accepted")));
    lab.client(|| drop(TcpStream::connect(server(91)).expect("connected")));
    accepting.join().expect("it ran");
    let streams: Vec<_> =
        lab.client(|| (0..CLIENTS).map(|_| TcpStream::connect(server(91)).expect("connected")).collect());
    let accepting = lab.server_runs(move || {
        for _ in 0..CLIENTS {
            listener.accept().expect("accepted").0.write_all(b"x").expect("written");
        }
    });
    for mut stream in streams {
        stream.read_exact(&mut [0]).expect("read");
    }
    accepting.join().expect("it ran");
}

//! Routers over loopback TCP: what is opened, what is refused, and what becomes of those who are no routers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use slipway_fast::channel::{
    Acceptor, ChannelError, Handshake, Hello, Key, Limits, Next, Nonce, Open, OpenProgress, OpenRequest, Pool,
    RecordLayer, Refusal, Session,
};

/// Longer than anything takes that comes at all.
const LONG: Duration = Duration::from_mins(2);
const CALLER: u32 = 0;
const ANSWERER: u32 = 1;

fn key() -> Key {
    Key::take(&mut [1; 32])
}

fn hello(host: u32) -> Hello {
    Hello::new(7, host)
}

fn question(flow: u64) -> Open {
    Open { flow, server: "10.64.0.2:80".parse().unwrap(), client: "10.64.0.1:4000".parse().unwrap() }
}

/// An answerer, and what it is asked.
fn answerer(limits: Limits) -> (Acceptor, SocketAddr, Receiver<OpenRequest>) {
    answerer_at(TcpListener::bind("127.0.0.1:0").unwrap(), limits)
}

fn answerer_at(listener: TcpListener, limits: Limits) -> (Acceptor, SocketAddr, Receiver<OpenRequest>) {
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    let acceptor = Acceptor::start(listener, key(), hello(ANSWERER), limits, move |asked| drop(tell.send(asked)));
    (acceptor.unwrap(), address, asked)
}

fn pool(address: SocketAddr) -> Pool {
    Pool::start(key(), hello(CALLER), [(ANSWERER, address)], 4).unwrap()
}

/// Does a handshake by hand, to its end.
fn shake(mut stream: &TcpStream, mut handshake: Handshake) -> Session {
    loop {
        let mut message = vec![0; handshake.wants()];
        stream.read_exact(&mut message).unwrap();
        match handshake.take(&message).unwrap() {
            Next::More(next, say) => {
                stream.write_all(&say).unwrap();
                handshake = next;
            }
            Next::Done(session, _, say) => {
                stream.write_all(&say.map(|say| say.to_vec()).unwrap_or_default()).unwrap();
                return session;
            }
        }
    }
}

/// A session of a host that was begun by hand, and the connection that it lasts as long as.
fn by_hand(host: u32, address: SocketAddr) -> (Session, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    let (handshake, greeting) = Handshake::call(key(), hello(host), ANSWERER, Nonce::draw().unwrap());
    stream.write_all(&greeting).unwrap();
    (shake(&stream, handshake), stream)
}

/// Says something on a new connection.
fn say(address: SocketAddr, message: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(message).unwrap();
    stream
}

/// A further connection of a session.
fn joined(session: &mut Session, address: SocketAddr) -> (RecordLayer, TcpStream) {
    let (records, join) = session.join();
    (records, say(address, &join))
}

/// Waits until the other side has closed `stream`, by FIN or RST.
fn closed(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(LONG)).unwrap();
    match stream.read(&mut [0; 256]) {
        Ok(0) => {}
        Ok(read) => panic!("{read} bytes"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_stream_is_handed_over_untouched() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (_acceptor, address, asked) = answerer_at(TcpListener::bind(address).unwrap(), Limits::default());
        let pool = pool(address);
        let asking = pool.ask(ANSWERER, &question(9), LONG).unwrap();
        let asked = asked.recv_timeout(LONG).unwrap();
        assert_eq!((asked.host, asked.open), (CALLER, question(9)));
        let mut server = asked.accept().unwrap();
        // The server speaks first: right behind the verdict, before that is read.
        server.write_all(b"220 ready").unwrap();
        let mut client = asking.wait(Instant::now() + LONG).unwrap();
        let mut heard = [0; 9];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"220 ready");
        client.write_all(b"HELO").unwrap();
        server.read_exact(&mut heard[..4]).unwrap();
        assert_eq!(&heard[..4], b"HELO");
        for stream in [&client, &server] {
            assert!(!stream.nodelay().unwrap());
            assert!(!rustix::fs::fcntl_getfl(stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
            assert_eq!((stream.read_timeout().unwrap(), stream.write_timeout().unwrap()), (None, None));
        }
        drop(server);
        assert_eq!(client.read(&mut heard).unwrap(), 0);
    }
}

#[test]
fn a_stream_outlives_both_routers() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    let mut server = asked.recv_timeout(LONG).unwrap().accept().unwrap();
    let mut client = asking.wait(Instant::now() + LONG).unwrap();
    drop((pool, acceptor));
    client.write_all(b"still").unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still");
}

#[test]
fn a_refusal_says_why() {
    let (_acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    for reason in Refusal::ALL {
        let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
        asked.recv_timeout(LONG).unwrap().refuse(reason).unwrap();
        match asking.wait(Instant::now() + LONG) {
            Err(ChannelError::Refused(said)) => assert_eq!(said, reason),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_question_can_wait_and_be_taken_back() {
    let (_acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    let waiting = asked.recv_timeout(LONG).unwrap();
    let OpenProgress::Pending(asking) = asking.poll().unwrap() else { panic!("an answer that nobody gave") };
    // Others are asked meanwhile.
    let other = pool.ask(ANSWERER, &question(2), LONG).unwrap();
    asked.recv_timeout(LONG).unwrap().accept().unwrap();
    other.wait(Instant::now() + LONG).unwrap();
    drop(asking);
    let mut fd = [PollFd::new(&waiting, PollFlags::IN | PollFlags::RDHUP)];
    let limit = rustix::event::Timespec { tv_sec: 120, tv_nsec: 0 };
    assert_eq!(poll(&mut fd, Some(&limit)), Ok(1));
    assert!(fd[0].revents().contains(PollFlags::RDHUP));
}

#[test]
fn no_answer_is_not_waited_for_longer_than_asked() {
    let (_acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    let kept = asked.recv_timeout(LONG).unwrap();
    assert!(matches!(asking.wait(Instant::now()), Err(ChannelError::TimedOut)));
    drop(kept);
    let asking = pool.ask(ANSWERER, &question(2), LONG).unwrap();
    drop(asked.recv_timeout(LONG).unwrap());
    assert!(matches!(asking.wait(Instant::now() + LONG), Err(ChannelError::Gone)));
}

#[test]
fn more_are_opened_than_were_ready() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let servers = std::thread::spawn(move || {
        for asked in asked {
            let flow = asked.open.flow;
            asked.accept().unwrap().write_all(&flow.to_be_bytes()).unwrap();
        }
    });
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pool = &pool;
            scope.spawn(move || {
                for flow in thread * 100..thread * 100 + 20 {
                    let mut stream = pool.open(ANSWERER, &question(flow), LONG).unwrap();
                    let mut said = [0; 8];
                    stream.read_exact(&mut said).unwrap();
                    assert_eq!(u64::from_be_bytes(said), flow);
                }
            });
        }
    });
    drop((pool, acceptor));
    servers.join().unwrap();
}

#[test]
fn dead_connections_are_not_used_and_a_router_that_is_back_is_found() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    drop(asked.recv_timeout(LONG).unwrap());
    drop((asking, acceptor));
    // All that were ready are dead; what fails must say that none is ready, and never that one was and did not work.
    match pool.ask(ANSWERER, &question(2), LONG) {
        // Reset in the queue of the socket that was closed, or refused afterwards.
        Err(ChannelError::NotReady { host: ANSWERER, trouble }) => {
            assert!(trouble.contains("refused") || trouble.contains("closed"), "{trouble}");
        }
        other => panic!("{other:?}"),
    }
    let standing = &pool.status()[0];
    assert_eq!((standing.host, standing.ready), (ANSWERER, 0));
    assert!(standing.trouble.is_some());
    let (_acceptor, _, asked) = answerer_at(TcpListener::bind(address).unwrap(), Limits::default());
    let started = Instant::now();
    let asking = loop {
        match pool.ask(ANSWERER, &question(3), LONG) {
            Err(ChannelError::NotReady { .. }) if started.elapsed() < LONG => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    asked.recv_timeout(LONG).unwrap().accept().unwrap();
    asking.wait(Instant::now() + LONG).unwrap();
    assert_eq!(pool.status()[0].trouble, None);
}

#[test]
fn who_is_no_router_of_the_lab_is_told_apart() {
    let (acceptor, address, _asked) = answerer(Limits::default());
    let trouble = |key, us, host| {
        let pool = Pool::start(key, us, [(host, address)], 1).unwrap();
        match pool.ask(host, &question(1), LONG) {
            Err(ChannelError::NotReady { trouble, .. }) => trouble,
            other => panic!("{other:?}"),
        }
    };
    let strange = trouble(Key::take(&mut [2; 32]), hello(CALLER), ANSWERER);
    assert!(strange.contains("not made with this session's key"), "{strange}");
    let other_host = trouble(key(), hello(CALLER), 5);
    assert!(other_host.contains("not the router that was to be there"), "{other_host}");
    // A router that reaches itself, and one of another lab with the same key: the answerer hangs up.
    for us in [hello(ANSWERER), Hello::new(8, CALLER)] {
        let refused = trouble(key(), us, ANSWERER);
        assert!(refused.contains("closed the connection"), "{refused}");
    }
    assert_eq!(acceptor.protocol_errors(), 2);
    let pool = Pool::start(key(), hello(CALLER), [], 1).unwrap();
    assert!(matches!(pool.ask(3, &question(1), LONG), Err(ChannelError::NotReady { host: 3, .. })));
}

#[test]
fn a_peer_that_is_no_router_gives_no_connection() {
    // Says at once what no router says, and more than any would.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(&vec![0x41; 64 * 1024]);
        }
    });
    match pool(address).ask(ANSWERER, &question(1), LONG) {
        Err(ChannelError::NotReady { trouble, .. }) => assert!(trouble.contains("key"), "{trouble}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn strangers_are_sent_away() {
    let limits = Limits { unauthenticated: 2, ..Limits::default() };
    let (acceptor, address, asked) = answerer(limits);
    // One that record_layers nonsense.
    let mut nonsense = TcpStream::connect(address).unwrap();
    nonsense.write_all(&[0x41; 4096]).unwrap();
    closed(&nonsense);
    assert_eq!(acceptor.protocol_errors(), 1);
    // Those that are too many: the oldest goes. Four routers' calls at once, more than there is room for, wait for that.
    let silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    closed(&silent[0]);
    // Routers are let in all the same.
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    asked.recv_timeout(LONG).unwrap().accept().unwrap();
    asking.wait(Instant::now() + LONG).unwrap();
}

#[test]
fn strangers_who_say_nothing_or_too_slowly_are_sent_away() {
    let limits = Limits { handshake: Duration::from_millis(20), ..Limits::default() };
    let (acceptor, address, _asked) = answerer(limits);
    let silent = TcpStream::connect(address).unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"slip").unwrap();
    closed(&silent);
    closed(&slow);
    assert_eq!(acceptor.protocol_errors(), 0);
}

#[test]
fn who_waits_too_many_times_loses_the_oldest() {
    let limits = Limits { waiting: 2, ..Limits::default() };
    let (_acceptor, address, _asked) = answerer(limits);
    let (mut session, _standing) = by_hand(CALLER, address);
    let waiting: Vec<TcpStream> = (0..3).map(|_| joined(&mut session, address).1).collect();
    closed(&waiting[0]);
}

#[test]
fn a_question_that_is_none_ends_the_connection() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let (mut session, mut standing) = by_hand(CALLER, address);
    let (_, mut stream) = joined(&mut session, address);
    stream.write_all(&[0; 512]).unwrap();
    closed(&stream);
    assert_eq!(acceptor.protocol_errors(), 1);
    // Nothing is said where the session was begun.
    standing.write_all(&[0; 512]).unwrap();
    closed(&standing);
    assert_eq!(acceptor.protocol_errors(), 2);
    assert!(asked.try_recv().is_err());
}

#[test]
fn a_connection_that_joined_may_ask_at_once_and_one_that_joins_again_is_closed() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let (mut session, _standing) = by_hand(CALLER, address);
    let (mut records, join) = session.join();
    let question = question(1);
    let _first = say(address, &[&join[..], &records.seal(&question)[..]].concat());
    let asked = asked.recv_timeout(LONG).unwrap();
    assert_eq!((asked.host, asked.open), (CALLER, question));
    closed(&say(address, &join));
    assert_eq!(acceptor.protocol_errors(), 1);
    // The process that replayed the message is not the router that sent it.
    asked.accept().unwrap();
}

#[test]
fn a_connection_of_another_session_is_closed() {
    let (acceptor, address, _asked) = answerer(Limits::default());
    let (other, elsewhere, _others) = answerer(Limits::default());
    let (mut session, standing) = by_hand(CALLER, address);
    let (_, stream) = joined(&mut session, address);
    // Passed on to another router, which has a session with the same host.
    let _session = by_hand(CALLER, elsewhere);
    closed(&say(elsewhere, &session.join().1));
    assert_eq!(other.protocol_errors(), 1);
    // Of a session in the place of which there is another: its host's router was begun anew, and this was not heard.
    let _anew = by_hand(CALLER, address);
    closed(&standing);
    closed(&stream);
    closed(&say(address, &session.join().1));
    assert_eq!(acceptor.protocol_errors(), 1);
}

#[test]
fn what_waits_ends_with_its_session_at_the_answerer() {
    let (acceptor, address, asked) = answerer(Limits::default());
    let ((mut one, standing), (mut two, _other)) = (by_hand(CALLER, address), by_hand(2, address));
    let ask = |session: &mut Session, flow| {
        let (mut records, mut stream) = joined(session, address);
        stream.write_all(&records.seal(&question(flow))).unwrap();
        (asked.recv_timeout(LONG).unwrap(), stream)
    };
    let (_, waiting) = joined(&mut one, address);
    let (kept, _asking) = ask(&mut one, 1);
    drop(standing);
    closed(&waiting);
    closed(&say(address, &one.join().1));
    assert_eq!(acceptor.protocol_errors(), 1);
    // The request goes on, and so does another host's session.
    kept.accept().unwrap();
    let (asked, _asking) = ask(&mut two, 2);
    assert_eq!((asked.host, asked.open), (2, question(2)));
}

#[test]
fn what_waits_ends_with_its_session_at_the_caller() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = pool(listener.local_addr().unwrap());
    let begun = || {
        let standing = listener.accept().unwrap().0;
        let session = shake(&standing, Handshake::answer(key(), hello(ANSWERER), Nonce::draw().unwrap()));
        (session, standing)
    };
    let (_, standing) = begun();
    let waiting: Vec<TcpStream> = (0..4).map(|_| listener.accept().unwrap().0).collect();
    drop(standing);
    for mut stream in waiting {
        // After what it said at first.
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    assert_eq!(pool.status()[0].ready, 0);
    // It begins anew, by itself, and its numbers too.
    let (mut session, _standing) = begun();
    let mut stream = listener.accept().unwrap().0;
    let mut join = vec![0; session.join().1.len()];
    stream.read_exact(&mut join).unwrap();
    session.admit(&join).unwrap();
}

#[test]
fn a_flood_of_strangers_does_not_push_out_who_joined() {
    let limits = Limits { unauthenticated: 2, ..Limits::default() };
    let (_acceptor, address, asked) = answerer(limits);
    let (mut session, standing) = by_hand(CALLER, address);
    let (mut records, mut stream) = joined(&mut session, address);
    let (_, other) = joined(&mut session, address);
    let strangers: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    strangers[..4].iter().for_each(closed);
    stream.write_all(&records.seal(&question(1))).unwrap();
    asked.recv_timeout(LONG).unwrap().accept().unwrap();
    for stream in [&standing, &other] {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[test]
fn what_waits_ends_with_the_pool() {
    let (_acceptor, address, asked) = answerer(Limits::default());
    let pool = pool(address);
    let asking = pool.ask(ANSWERER, &question(1), LONG).unwrap();
    let kept = asked.recv_timeout(LONG).unwrap();
    drop(pool);
    // A question that was asked is its asker's.
    kept.accept().unwrap();
    asking.wait(Instant::now() + LONG).unwrap();
}

//! Sessions that are silent, many, or end early.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use super::super::{begin, encoded, entry, open, request, stream};
use super::{Peer, Served};
use crate::frame::{Key, Reader, Writer};
use crate::link::{Dialer, Session};
use crate::message::{self, Answer, Kind, Order};
use crate::send::send;

#[test]
fn silence_ends_a_session() {
    let served = Served::new(Duration::from_millis(100));
    let dialer = Dialer::new(served.address, &served.token).expect("a dialer");
    let without_answers = open(&dialer).expect("opened");
    let why = served.ended.recv().expect("told").expect_err("it waits no longer");
    assert!(why.contains("no stream of answers"), "{why}");
    drop(without_answers);
    // Time enough to join on a busy machine.
    let served = Served::new(Duration::from_secs(2));
    let mut peer = served.peer();
    peer.order(&encoded(&[begin(false), entry(1, "file", Kind::File(10))]));
    let why = served.ended.recv().expect("told").expect_err("it waits no longer");
    assert!(why.contains("timed out"), "{why}");
}

#[test]
fn too_many_connections_keep_nobody_out() {
    let served = Served::honest();
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(served.address).expect("connected")).collect();
    served.is_well();
    drop(silent);
    assert!(served.ended.recv().expect("told").is_ok());

    let dialer = Dialer::new(served.address, &served.token).expect("a dialer");
    let sessions: Vec<_> = (0..64).map(|_| open(&dialer).expect("opened")).collect();
    let refused = open(&dialer).err().expect("one too many").to_string();
    assert!(refused.contains("too many sessions"), "{refused}");
    drop(sessions);
}

/// More sessions than a server has places for, one after the other, none of which comes to its regular end.
#[test]
fn sessions_that_end_early_give_their_places_back() {
    let served = Served::honest();
    for _ in 0..65 {
        let mut peer = served.peer();
        peer.order(&encoded(&[Order::Finish]));
        assert!(peer.refused().contains("where to"));
        drop(peer);
        assert!(served.ended.recv().expect("told").is_err());
    }
    let verified = send(&request(served.folder.path().join("from"), true), served.address, &served.token, |_| {});
    assert!(verified.expect_err("nothing is there").to_string().contains("open the destination"));
    served.is_well();
}

/// It asks for a bit per second, and goes away while the server waits to send.
#[test]
fn a_fetch_at_a_crawl_ends_with_its_client() {
    let served = Served::honest();
    fs::write(served.folder.path().join("root/file"), vec![7; 100_000]).expect("written");
    let mut peer = served.peer();
    peer.order(&encoded(&[Order::Fetch { sources: vec![b"file".to_vec()], verify: false, limit: Some(1) }]));
    let data = peer.stream(2);
    let Peer { orders, answers, session, .. } = peer;
    let mut orders = Reader::new(orders.into_inner(), Key::of_server(&session.secret));
    let mut answers = Writer::new(answers.into_inner(), Key::new(&session.secret, 1));
    let mut announced = false;
    while !announced {
        let mut body = orders.frame().expect("a frame").expect("orders");
        while !body.is_empty() {
            announced |= matches!(message::take(&mut body).expect("an order"), Order::Entry(entry) if entry.id == 1);
        }
    }
    answers.body().extend(encoded(&[Answer::Fresh(vec![1])]));
    answers.send().expect("sent");
    drop((data, orders, answers));
    assert!(served.ended.recv().expect("told").is_err());
    fs::remove_file(served.folder.path().join("root/file")).expect("removed");
    served.is_well();
}

#[test]
fn a_stream_has_one_number_and_one_session() {
    let served = Served::honest();
    let peer = served.peer();
    let second = peer.stream(2);
    let joins = |session: &Session, number| {
        let joined = stream(&peer.dialer, session, number);
        // The server ends a connection that it does not take.
        joined.is_ok_and(|mut link| !matches!(std::io::Read::read(&mut link, &mut [0]), Ok(0) | Err(_)))
    };
    for number in [0, 1, 2] {
        assert!(!joins(&peer.session, number), "{number}");
    }
    assert!(!joins(&Session { secret: [0; 32], ..peer.session }, 3), "another secret");
    assert!(!joins(&Session { id: [0; 16], ..peer.session }, 3), "another session");
    drop(second);
}

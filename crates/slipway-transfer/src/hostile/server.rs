//! Against the client.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::{anywhere, encoded, entry, forged, relative, request};
use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::link::{self, Dialer, Joined, Link, PATIENCE, Session};
use crate::message::{Answer, Basis, Block, Item, Kind, Order, take, take_item};
use crate::pull::{Pull, pull_by};
use crate::report::{List, Named};
use crate::send::{Report, send_by};
use crate::tls;
use crate::token::Token;

/// The server's side of a session that it welcomed.
struct Peer {
    orders: Reader<Link>,
    answers: Writer<Link>,
    /// Items of all streams, and how much data came with each.
    items: Receiver<(Item, usize)>,
}

impl Peer {
    fn answer(&mut self, answers: &[Answer]) {
        self.answers.body().extend(encoded(answers));
        // The client may have ended the session.
        drop(self.answers.send());
    }

    /// Waits until the client has announced file 1.
    fn await_file(&mut self) {
        self.await_order(|order| matches!(order, Order::Entry(entry) if entry.id == 1));
    }

    fn await_order(&mut self, is_it: impl Fn(&Order) -> bool) {
        while let Ok(Some(mut body)) = self.orders.frame() {
            while !body.is_empty() {
                if is_it(&take(&mut body).expect("an order")) {
                    return;
                }
            }
        }
    }

    fn await_end(&mut self) {
        while self.orders.frame().is_ok_and(|body| body.is_some()) {}
    }
}

fn session() -> Session {
    Session { id: [1; 16], secret: [2; 32] }
}

/// Accepts one connection, and gives it on. A stream of data is read to its end.
fn shake(stream: TcpStream, token: &Token, joined: &Sender<(u32, Link)>, items: &Sender<(Item, usize)>) {
    let config = tls::server(token).expect("a configuration");
    // The client may have ended the session.
    let Ok(accepted) = link::accept(stream, token, &config, false) else { return };
    let (number, mut link) = match accepted {
        Joined::Session(link) => (0, link::welcome(link, &session()).expect("welcomed")),
        Joined::Stream { link, number, .. } => (number, link),
    };
    link.calm().expect("calmed");
    if number < 2 {
        drop(joined.send((number, link)));
        return;
    }
    let mut reader = Reader::new(link, Key::new(&session().secret, number));
    while let Ok(Some(mut body)) = reader.frame() {
        while !body.is_empty() {
            let (item, data) = take_item(&mut body).expect("an item");
            drop(items.send((item, data.len())));
        }
    }
}

/// Sends a file of 100,000 bytes to a server that does as `act` does.
fn sent_to(verify: bool, patience: Duration, act: impl FnOnce(&mut Peer) + Send) -> Result<Report, TransferError> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, vec![7; 100_000]).expect("written");
    let send = |dialer: &Dialer| send_by(dialer, &request(file, verify), |_| {});
    against(patience, send, |orders, answers, items| {
        let orders = Reader::new(orders, Key::new(&session().secret, 0));
        act(&mut Peer { orders, answers: Writer::new(answers, Key::new(&session().secret, 1)), items });
    })
}

/// Fetches into `folder` from a server that sends `orders`, and then `last` for as long as somebody reads.
fn fetched_from(folder: &Path, orders: &[u8], last: &[u8]) -> Result<Report, TransferError> {
    let request = Pull {
        sources: vec![b"file".to_vec()],
        destination: folder.join("here"),
        verify: false,
        clear: false,
        limit: None,
        sync: false,
    };
    let fetch = |dialer: &Dialer| pull_by(dialer, &request, |_| {});
    against(PATIENCE, fetch, |link, answers, _items| {
        let mut writer = Writer::new(link, Key::of_server(&session().secret));
        writer.body().extend_from_slice(orders);
        drop(writer.send());
        while !last.is_empty() {
            writer.body().extend_from_slice(last);
            if writer.send().is_err() {
                break;
            }
        }
        writer.get_mut().close();
        let mut answers = Reader::new(answers, Key::new(&session().secret, 1));
        while answers.frame().is_ok_and(|body| body.is_some()) {}
    })
}

/// Runs a client against a server that does as `act` does, with the connections of orders and answers, and all items.
fn against(
    patience: Duration,
    client: impl FnOnce(&Dialer) -> Result<Report, TransferError>,
    act: impl FnOnce(Link, Link, Receiver<(Item, usize)>) + Send,
) -> Result<Report, TransferError> {
    let token = Token::random().expect("random");
    let listener = TcpListener::bind(anywhere()).expect("bound");
    let address = listener.local_addr().expect("bound");
    let mut dialer = Dialer::new(address, &token).expect("a dialer");
    dialer.patience = patience;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (joined, to_join) = channel();
        let (found, items) = channel();
        // Handshakes go side by side: streams of data await the session.
        let (over, token) = (&over, &token);
        scope.spawn(move || {
            for stream in listener.incoming().take_while(|_| !over.load(Ordering::Acquire)) {
                let (stream, joined, found) = (stream.expect("accepted"), joined.clone(), found.clone());
                scope.spawn(move || shake(stream, token, &joined, &found));
            }
        });
        scope.spawn(move || {
            let mut links: Vec<(u32, Link)> = to_join.iter().take(2).collect();
            links.sort_by_key(|(number, _)| *number);
            let mut links = links.into_iter().map(|(_, link)| link);
            let (orders, answers) = (links.next().expect("opened"), links.next().expect("opened"));
            act(orders, answers, items);
        });
        let report = client(&dialer);
        over.store(true, Ordering::Release);
        // It awaits one more.
        drop(TcpStream::connect(address));
        report
    })
}

#[track_caller]
fn refused(verify: bool, act: impl FnOnce(&mut Peer) + Send) -> String {
    sent_to(verify, PATIENCE, act).expect_err("the client notices").to_string()
}

#[test]
fn answers_that_break_the_protocol_end_the_transfer() {
    let cases: Vec<(&str, Vec<Answer>, &str)> = vec![
        ("a file that nobody announced", vec![Answer::Fresh(vec![99])], "nobody announced"),
        ("a file that is fresh twice", vec![Answer::Fresh(vec![1]), Answer::Fresh(vec![1])], "says twice"),
        ("a file that is fresh twice at once", vec![Answer::Fresh(vec![1, 1])], "says twice"),
        (
            "a list after its end",
            vec![Answer::Listed(1, None), Answer::Blocks(1, Basis::Old, Vec::new())],
            // It may have been compared meanwhile, and be known no longer.
            "of file 1",
        ),
        ("an end before everything is there", vec![Answer::Over], "before it has everything"),
        ("a refusal", vec![Answer::Refused("because".to_owned())], "because"),
    ];
    for (name, answers, reason) in cases {
        for verify in [false, true] {
            let why = refused(verify, |peer| {
                peer.await_file();
                peer.answer(&answers);
                // Until the client ends the session.
                peer.await_end();
            });
            assert!(why.contains(reason), "{name}: {why}");
        }
    }
}

#[test]
fn bytes_that_are_no_answers_end_the_transfer() {
    for bytes in [vec![0xff; 50], [&[2, 1, 0][..], &[0xff; 8], &[0x0f]].concat()] {
        let why = refused(false, |peer| {
            peer.answers.body().extend_from_slice(&bytes);
            drop(peer.answers.send());
            peer.await_end();
        });
        assert!(why.contains("understand the other end"), "{why}");
    }
}

#[test]
fn silence_and_a_cut_end_the_transfer() {
    let why = sent_to(false, Duration::from_millis(300), Peer::await_end).expect_err("nobody speaks").to_string();
    assert!(why.contains("timed out"), "{why}");
    let why = refused(false, |_| {});
    assert!(why.contains("reach the other end"), "{why}");
}

/// Blocks that lie anywhere and everywhere: the client reads its own file alone, and sends it.
#[test]
fn blocks_that_lie_lead_nowhere() {
    let lies = vec![
        Block { offset: u64::MAX, length: u32::MAX, hash: [0; 32] },
        Block { offset: 0, length: 0, hash: *blake3::hash(&[]).as_bytes() },
        Block { offset: 0, length: 5, hash: *blake3::hash(b"something else").as_bytes() },
    ];
    let mut sent = 0;
    let report = sent_to(false, PATIENCE, |peer| {
        peer.await_file();
        let blocks = |basis| Answer::Blocks(1, basis, lies.clone());
        peer.answer(&[blocks(Basis::Old), blocks(Basis::Part), Answer::Listed(1, Some(u64::MAX))]);
        for (item, length) in &peer.items {
            sent += length;
            if item == Item::End(1) {
                break;
            }
        }
        peer.answer(&[Answer::Settled(vec![1])]);
        peer.await_order(|order| *order == Order::Finish);
        peer.answer(&[Answer::Over]);
    });
    assert!(report.expect("transferred").is_complete());
    assert_eq!(sent, 100_000);
}

/// A server names entries without end: the client keeps so many, and no more.
#[test]
fn endless_names_end_the_transfer() {
    let why = refused(true, |peer| {
        let name = encoded(&[Answer::Differs(1, relative("file"), "different".repeat(100_000))]);
        loop {
            peer.answers.body().extend_from_slice(&name);
            if peer.answers.send().is_err() {
                return;
            }
        }
    });
    assert!(why.contains("too many entries"), "{why}");
}

/// A server that sends: what it says of places counts for nothing, and it cannot name entries without end.
#[test]
fn orders_that_break_the_protocol_end_a_fetch() {
    let begin = || Order::Begin { destination: b"elsewhere".to_vec(), verify: true, sync: false };
    let file = || entry(1, "aa/bbb", Kind::File(10));
    let told = encoded(&[Order::Told(List::Failed, Named { why: "why".repeat(100_000), ..named() })]);
    let cases: Vec<(&str, Vec<u8>, &[u8], &str)> = vec![
        ("no beginning", encoded(&[file()]), &[], "no beginning"),
        ("two beginnings", encoded(&[begin(), begin()]), &[], "second beginning"),
        ("a path upwards", forged(encoded(&[begin(), file()]), "aa/bbb", b"../bbb"), &[], "understand the other end"),
        ("an end with a file missing", encoded(&[begin(), file(), Order::Finish]), &[], "before all files"),
        ("a report too early", encoded(&[begin(), Order::Told(List::Failed, named())]), &[], "out of place"),
        ("no report", encoded(&[begin(), entry(1, "sub", Kind::Directory), Order::Finish]), &[], "without a report"),
        ("names without end", encoded(&[begin(), Order::Finish]), &told, "too many entries"),
        ("a refusal", encoded(&[Order::Refused("because".to_owned())]), &[], "because"),
        ("no message", vec![0xff; 100], &[], "understand the other end"),
    ];
    for (name, orders, last, reason) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let why = fetched_from(folder.path(), &orders, last).expect_err("the client notices").to_string();
        assert!(why.contains(reason), "{name}: {why}");
        let inside: Vec<_> =
            fs::read_dir(folder.path()).expect("listed").map(|found| found.expect("one").file_name()).collect();
        assert!(inside.iter().all(|found| found == "here"), "{name}: {inside:?}");
    }
}

fn named() -> Named {
    Named { path: "file".to_owned(), why: "why".to_owned() }
}

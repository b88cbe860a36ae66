//! The channel's core: whatever happens to messages between two routers, only what was said is heard, once, in order.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use slipway_fast::channel::{
    Body, Handshake, Hello, Join, Key, LONGEST, Message, Next, Nonce, Open, OpenAnswer, OpenReply, ProtocolError,
    RecordLayer, Refusal, Session,
};

const CALLER: Hello = Hello { lab: 7, host: 0, version: slipway_fast::channel::VERSION };
const ANSWERER: Hello = Hello { lab: 7, host: 1, ..CALLER };

fn key(byte: u8) -> Key {
    Key::take(&mut [byte; 32])
}

fn nonce(byte: u8) -> Nonce {
    Nonce::fixed([byte; 32])
}

fn more(next: Next) -> (Handshake, Message) {
    match next {
        Next::More(handshake, message) => (handshake, message),
        Next::Done(..) => panic!("done too early"),
    }
}

fn done(next: Next) -> (Session, Hello, Option<Message>) {
    match next {
        Next::Done(session, hello, message) => (session, hello, message),
        Next::More(..) => panic!("not done"),
    }
}

/// The messages of a handshake, and the sessions that come of it: the caller's and the answerer's.
fn shake(nonces: (u8, u8)) -> (Vec<Message>, Session, Session) {
    let (caller, greeting) = Handshake::call(key(1), CALLER, 1, nonce(nonces.0));
    let (answerer, answer) = more(Handshake::answer(key(1), ANSWERER, nonce(nonces.1)).take(&greeting).unwrap());
    let (caller, hello) = more(caller.take(&answer).unwrap());
    let (theirs, who, last) = done(answerer.take(&hello).unwrap());
    let last = last.unwrap();
    assert_eq!(who, CALLER);
    let (ours, who, nothing) = done(caller.take(&last).unwrap());
    assert_eq!(who, ANSWERER);
    assert!(nothing.is_none());
    (vec![greeting, answer, hello, last], ours, theirs)
}

/// The further connections of a session, as many: the caller's and the answerer's side of each.
fn record_layers(nonces: (u8, u8), count: usize) -> Vec<(RecordLayer, RecordLayer)> {
    let (_, mut caller, mut answerer) = shake(nonces);
    let record_layers = (0..count).map(|_| {
        let (ours, join) = caller.join();
        (ours, answerer.admit(&join).unwrap())
    });
    record_layers.collect()
}

/// Both sides of one.
fn records() -> (RecordLayer, RecordLayer) {
    record_layers((1, 2), 1).remove(0)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn open() -> impl Strategy<Value = Open> {
    (any::<u64>(), address(), address()).prop_map(|(flow, server, client)| Open { flow, server, client })
}

fn verdict() -> impl Strategy<Value = OpenReply> {
    let answer =
        prop_oneof![Just(OpenAnswer::Accepted), proptest::sample::select(&Refusal::ALL).prop_map(OpenAnswer::Refused)];
    (any::<u64>(), answer).prop_map(|(flow, answer)| OpenReply { flow, answer })
}

#[test]
fn two_routers_of_a_lab_understand_each_other() {
    let (messages, mut caller, mut answerer) = shake((1, 2));
    assert_eq!(caller.name(), answerer.name());
    let (mut caller, join) = caller.join();
    let mut answerer = answerer.admit(&join).unwrap();
    assert!(messages.iter().chain([&join]).all(|message| message.len() <= LONGEST));
    // Read before it is known which of the two it is.
    assert_eq!(join.len(), messages[0].len());
    let asked = Open { flow: 9, server: "10.64.0.2:80".parse().unwrap(), client: "10.64.0.1:4000".parse().unwrap() };
    let message = caller.seal(&asked);
    assert_eq!(message.len(), LONGEST);
    assert_eq!(answerer.open::<Open>(&message), Ok(asked));
    let said = OpenReply { flow: 9, answer: OpenAnswer::Refused(Refusal::Backlog) };
    assert_eq!(caller.open::<OpenReply>(&answerer.seal(&said)), Ok(said));
}

#[test]
fn another_key_is_refused_by_both_sides() {
    let (caller, greeting) = Handshake::call(key(1), CALLER, 1, nonce(1));
    let (answerer, answer) = more(Handshake::answer(key(2), ANSWERER, nonce(2)).take(&greeting).unwrap());
    assert_eq!(caller.take(&answer).unwrap_err(), ProtocolError::BadMac);
    // A caller that goes on regardless, with the key that it has.
    let (other, _) = Handshake::call(key(1), CALLER, 1, nonce(1));
    let (_, answer) = more(Handshake::answer(key(1), ANSWERER, nonce(2)).take(&greeting).unwrap());
    let (_, hello) = more(other.take(&answer).unwrap());
    assert_eq!(answerer.take(&hello).unwrap_err(), ProtocolError::BadMac);
}

#[test]
fn who_it_is_must_be_right() {
    let cases = [
        (Hello { lab: 8, ..ANSWERER }, "another lab"),
        (Hello { version: CALLER.version + 1, ..ANSWERER }, "another version"),
        (Hello { host: 2, ..ANSWERER }, "another host than was called"),
        (Hello { host: CALLER.host, ..ANSWERER }, "the caller itself, to whom its handshake was passed back"),
    ];
    for (answerer, who) in cases {
        let (caller, greeting) = Handshake::call(key(1), CALLER, 1, nonce(1));
        let (second, answer) = more(Handshake::answer(key(1), answerer, nonce(2)).take(&greeting).unwrap());
        let (caller, hello) = more(caller.take(&answer).unwrap());
        match second.take(&hello) {
            Err(error) => assert_eq!(error, ProtocolError::WrongPeer, "{who}"),
            Ok(next) => {
                let (_, _, last) = done(next);
                assert_eq!(caller.take(&last.unwrap()).unwrap_err(), ProtocolError::WrongPeer, "{who}");
            }
        }
    }
}

#[test]
fn a_handshake_replayed_is_refused() {
    let (old, ..) = shake((1, 2));
    // Everything the caller said once, said again: the answerer has drawn another nonce.
    let (answerer, _) = more(Handshake::answer(key(1), ANSWERER, nonce(3)).take(&old[0]).unwrap());
    assert_eq!(answerer.take(&old[2]).unwrap_err(), ProtocolError::BadMac);
    // And what the answerer said: so has the caller.
    let (caller, _) = Handshake::call(key(1), CALLER, 1, nonce(4));
    assert_eq!(caller.take(&old[1]).unwrap_err(), ProtocolError::BadMac);
}

#[test]
fn connections_join_in_any_order_each_once() {
    let (_, mut caller, mut answerer) = shake((1, 2));
    let mut calls: Vec<(RecordLayer, Message)> = (0..3).map(|_| caller.join()).collect();
    calls.reverse();
    let mut answers: Vec<RecordLayer> = calls.iter().map(|(_, join)| answerer.admit(join).unwrap()).collect();
    for (_, join) in &calls {
        assert_eq!(answerer.admit(join).unwrap_err(), ProtocolError::OutOfOrder);
    }
    // Each goes on by itself.
    for (flow, ((call, _), answer)) in (0..).zip(calls.iter_mut().zip(&mut answers)) {
        let verdict = OpenReply { flow, answer: OpenAnswer::Accepted };
        assert_eq!(call.open::<OpenReply>(&answer.seal(&verdict)), Ok(verdict));
    }
}

#[test]
fn one_that_is_late_by_thousands_is_refused() {
    let (_, mut caller, mut answerer) = shake((1, 2));
    let (_, late) = caller.join();
    for _ in 0..10_000 {
        answerer.admit(&caller.join().1).unwrap();
    }
    assert_eq!(answerer.admit(&late).unwrap_err(), ProtocolError::OutOfOrder);
}

#[test]
fn a_join_is_of_no_use_elsewhere() {
    let (_, mut caller, _) = shake((1, 2));
    let (_, join) = caller.join();
    // Another session of the same two, whatever it is called; another direction; another host.
    assert_eq!(shake((3, 2)).2.admit(&join).unwrap_err(), ProtocolError::BadMac);
    assert_eq!(shake((1, 3)).2.admit(&join).unwrap_err(), ProtocolError::BadMac);
    assert_eq!(caller.admit(&join).unwrap_err(), ProtocolError::BadMac);
    let third = Hello { host: 2, ..ANSWERER };
    let (caller, greeting) = Handshake::call(key(1), CALLER, 2, nonce(1));
    let (answerer, answer) = more(Handshake::answer(key(1), third, nonce(4)).take(&greeting).unwrap());
    let (_, hello) = more(caller.take(&answer).unwrap());
    let (mut session, ..) = done(answerer.take(&hello).unwrap());
    assert_eq!(session.admit(&join).unwrap_err(), ProtocolError::BadMac);
    // As the first message of a handshake, and what a handshake says as a join.
    assert_eq!(Handshake::answer(key(1), ANSWERER, nonce(5)).take(&join).unwrap_err(), ProtocolError::UnknownProtocol);
    assert!(session.admit(&greeting).is_err() && session.admit(&hello).is_err());
}

#[test]
fn somebody_who_speaks_something_else_is_a_stranger() {
    let get = b"GET / HTTP/1.1\r\nHost: slipway-router1\r\nUser-Agent: curl/8.14.1\r\n\r\n";
    let answerer = Handshake::answer(key(1), ANSWERER, nonce(2));
    let due = answerer.wants();
    assert_eq!(answerer.take(&get[..due]).unwrap_err(), ProtocolError::UnknownProtocol);
}

#[test]
fn keys_are_not_printed_and_are_wiped_where_they_came_from() {
    let mut bytes = [0xab; 32];
    let key = Key::take(&mut bytes);
    assert_eq!(bytes, [0; 32]);
    assert_eq!(key.bytes(), &[0xab; 32]);
    let (handshake, _) = Handshake::call(key.clone(), CALLER, 1, nonce(0xab));
    let (_, caller, _) = shake((1, 2));
    for shown in [format!("{key:?}"), format!("{handshake:?}"), format!("{caller:?}"), format!("{:?}", records().0)] {
        let shown = shown.to_lowercase();
        assert!(!shown.contains("171") && !shown.contains("0xab") && !shown.contains("abab"), "{shown}");
    }
}

#[test]
fn keys_and_nonces_that_are_drawn_differ() {
    assert_ne!(Key::draw().unwrap().bytes(), Key::draw().unwrap().bytes());
    assert!(Nonce::draw().unwrap() != Nonce::draw().unwrap());
}

/// A fault that messages may meet on their way.
#[derive(Debug, Clone)]
enum Mishap {
    Flip(prop::sample::Index, prop::sample::Index),
    Drop(prop::sample::Index),
    Double(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index, prop::sample::Index),
    Lengthen(prop::sample::Index, u8),
    /// The sender's own messages come back to it.
    Reflect,
    /// Messages of another session of the same two.
    Elsewhere,
    /// Messages of another connection of the session.
    Beside,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    use prop::sample::Index;
    prop_oneof![
        any::<(Index, Index)>().prop_map(|(which, bit)| Mishap::Flip(which, bit)),
        any::<Index>().prop_map(Mishap::Drop),
        any::<Index>().prop_map(Mishap::Double),
        any::<(Index, Index)>().prop_map(|(a, b)| Mishap::Swap(a, b)),
        any::<(Index, Index)>().prop_map(|(which, at)| Mishap::Cut(which, at)),
        any::<(Index, u8)>().prop_map(|(which, byte)| Mishap::Lengthen(which, byte)),
        Just(Mishap::Reflect),
        Just(Mishap::Elsewhere),
        Just(Mishap::Beside),
    ]
}

proptest! {
    #[test]
    fn only_what_was_said_is_heard(said in prop::collection::vec(open(), 1..8), mishap in mishap()) {
        let [(mut caller, mut answerer), (_, beside)] = <[_; 2]>::try_from(record_layers((1, 2), 2)).unwrap();
        let mut messages: Vec<Vec<u8>> = said.iter().map(|open| caller.seal(open).to_vec()).collect();
        let before = messages.clone();
        match &mishap {
            Mishap::Flip(which, bit) => {
                let message = which.get(&before);
                let bit = bit.index(message.len() * 8);
                messages[which.index(before.len())][bit / 8] ^= 1 << (bit % 8);
            }
            Mishap::Drop(which) => { messages.remove(which.index(before.len())); }
            Mishap::Double(which) => messages.insert(which.index(before.len()), which.get(&before).clone()),
            Mishap::Swap(a, b) => messages.swap(a.index(before.len()), b.index(before.len())),
            Mishap::Cut(which, at) => messages[which.index(before.len())].truncate(at.index(LONGEST)),
            Mishap::Lengthen(which, byte) => messages[which.index(before.len())].push(*byte),
            Mishap::Reflect => answerer = caller,
            Mishap::Elsewhere => answerer = record_layers((1, 3), 1).remove(0).1,
            Mishap::Beside => answerer = beside,
        }
        // As a router does: it hears no more after a error.
        let mut heard = Vec::new();
        let mut error = None;
        for message in &messages {
            match answerer.open::<Open>(message) {
                Ok(open) => heard.push(open),
                Err(reason) => { error = Some(reason); break; }
            }
        }
        prop_assert_eq!(&heard[..], &said[..heard.len()]);
        match mishap {
            Mishap::Reflect | Mishap::Elsewhere => prop_assert!(heard.is_empty() && error == Some(ProtocolError::BadMac)),
            Mishap::Beside => prop_assert!(heard.is_empty() && error == Some(ProtocolError::OutOfOrder)),
            // The last message missing is seen only by what is then missing: the connection's end in its place.
            Mishap::Drop(which) if which.index(before.len()) + 1 == before.len() => prop_assert!(error.is_none()),
            Mishap::Swap(a, b) if a.index(before.len()) == b.index(before.len()) => prop_assert!(error.is_none()),
            Mishap::Drop(_) | Mishap::Double(_) | Mishap::Swap(..) => prop_assert_eq!(error, Some(ProtocolError::OutOfOrder)),
            Mishap::Flip(..) | Mishap::Cut(..) | Mishap::Lengthen(..) => {
                prop_assert!(matches!(error, Some(ProtocolError::BadMac | ProtocolError::Length)));
            }
        }
    }

    #[test]
    fn a_handshake_with_any_bit_changed_is_refused(which in 0..4_usize, bit in any::<prop::sample::Index>()) {
        let spoil = |number: usize, message: Message| {
            let mut bytes = message.to_vec();
            if number == which {
                let bit = bit.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            bytes
        };
        let (caller, greeting) = Handshake::call(key(1), CALLER, 1, nonce(1));
        let refused = (|| {
            let (answerer, answer) =
                more(Handshake::answer(key(1), ANSWERER, nonce(2)).take(&spoil(0, greeting))?);
            let (caller, hello) = more(caller.take(&spoil(1, answer))?);
            let (_, _, last) = done(answerer.take(&spoil(2, hello))?);
            caller.take(&spoil(3, last.expect("a last message")))
        })();
        prop_assert!(refused.is_err());
    }

    /// And changes nothing: what was refused does not use a number up, nor make others old.
    #[test]
    fn a_join_with_any_bit_changed_is_refused(bit in any::<prop::sample::Index>()) {
        let (_, mut caller, mut answerer) = shake((1, 2));
        let (_, join) = caller.join();
        let mut changed = join.to_vec();
        let bit = bit.index(changed.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(matches!(answerer.admit(&changed), Err(ProtocolError::BadMac | ProtocolError::Length)));
        prop_assert!(answerer.admit(&join).is_ok());
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..2 * LONGEST)) {
        prop_assert!(shake((1, 2)).2.admit(&noise).is_err());
        let (mut caller, mut answerer) = records();
        prop_assert!(answerer.open::<Open>(&noise).is_err());
        prop_assert!(caller.open::<OpenReply>(&noise).is_err());
        prop_assert!(Handshake::answer(key(1), ANSWERER, nonce(1)).take(&noise).is_err());
        prop_assert!(Handshake::call(key(1), CALLER, 1, nonce(1)).0.take(&noise).is_err());
    }

    /// One spelling for each meaning, so that nothing unsaid hides in a body.
    #[test]
    fn what_is_read_is_written_the_same(noise in prop::collection::vec(any::<u8>(), 0..LONGEST), kind in 1..5_u8) {
        fn again<B: Body>(bytes: &[u8]) -> bool {
            B::read(bytes).is_none_or(|body| {
                let mut written = vec![0; B::LENGTH];
                body.write(&mut written);
                written == bytes
            })
        }
        let mut noise = noise;
        if let Some(first) = noise.first_mut() { *first = kind; }
        let lengths = [Hello::LENGTH, Open::LENGTH, OpenReply::LENGTH, Join::LENGTH];
        noise.resize(lengths[usize::from(kind) - 1], 0);
        prop_assert!(again::<Hello>(&noise) && again::<Open>(&noise));
        prop_assert!(again::<OpenReply>(&noise) && again::<Join>(&noise));
    }

    #[test]
    fn a_message_of_another_kind_is_refused(open in open(), verdict in verdict()) {
        let (mut caller, mut answerer) = records();
        prop_assert_eq!(answerer.open::<OpenReply>(&caller.seal(&open)), Err(ProtocolError::Length));
        prop_assert_eq!(caller.open::<OpenReply>(&answerer.seal(&verdict)), Ok(verdict));
    }
}

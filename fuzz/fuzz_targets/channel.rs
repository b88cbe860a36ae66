//! Whatever comes from where another router should be, only what that router said is heard, and nothing panics.

#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeSet;

use slipway_fast::channel::{
    Body, Handshake, Hello, Join, Key, LONGEST, Message, Next, Nonce, Open, OpenReply, ProtocolError, RecordLayer,
    Session,
};

slipway_fuzz::target!(|bytes: &[u8]| {
    body::<Hello>(bytes);
    body::<Open>(bytes);
    body::<OpenReply>(bytes);
    body::<Join>(bytes);
    let Some((first, mut rest)) = bytes.split_first() else { return };
    match first % 3 {
        0 => handshake(&mut rest),
        1 => joins(&mut rest),
        _ => records(&mut rest),
    }
});

/// What is done to a message on its way.
enum Step<'a> {
    Pass,
    Drop,
    Double,
    /// Exclusive-or from an offset on.
    Spoil(u8, &'a [u8]),
    Cut(u8),
    /// Something else instead of it.
    Say(&'a [u8]),
    Reflect,
}

impl<'a> Step<'a> {
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let some = |input: &mut &'a [u8]| {
            let length = byte(input)?;
            let (here, rest) = input.split_at_checked(length.into())?;
            *input = rest;
            Some(here)
        };
        Some(match byte(input)? % 7 {
            0 => Self::Pass,
            1 => Self::Drop,
            2 => Self::Double,
            3 => Self::Spoil(byte(input)?, some(input)?),
            4 => Self::Cut(byte(input)?),
            5 => Self::Say(some(input)?),
            _ => Self::Reflect,
        })
    }
}

fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

/// What is read is what is written: one spelling for each meaning.
fn body<B: Body>(bytes: &[u8]) {
    let Some(bytes) = bytes.get(..B::LENGTH) else {
        return assert!(B::read(bytes).is_none());
    };
    if let Some(body) = B::read(bytes) {
        let mut written = vec![0; B::LENGTH];
        body.write(&mut written);
        assert_eq!(written, bytes);
    }
}

/// Both sides of a handshake, with noise in place of the message that is due, or of a piece of it.
fn handshake(input: &mut &[u8]) {
    let Some(spoiled) = byte(input) else { return };
    let mut tamper = |number: u8, message: &[u8]| {
        let mut message = message.to_vec();
        if number == spoiled % 4
            && let Some(step) = Step::take(input)
        {
            message = apply(&step, &message);
        }
        message
    };
    let (caller, greeting) = Handshake::call(key(), hello(0), 1, nonce(1));
    let said = tamper(0, &greeting);
    let Ok(Next::More(answerer, answer)) = Handshake::answer(key(), hello(1), nonce(2)).take(&said) else { return };
    let heard = tamper(1, &answer);
    let Ok(Next::More(caller, second)) = caller.take(&heard) else { return };
    let said_too = tamper(2, &second);
    let Ok(Next::Done(_, them, Some(last))) = answerer.take(&said_too) else { return };
    assert!(them == hello(0) && said == *greeting && heard == *answer && said_too == *second);
    let last_heard = tamper(3, &last);
    let Ok(Next::Done(_, them, None)) = caller.take(&last_heard) else { return };
    assert!(them == hello(1) && last_heard == *last);
}

/// A session whose connections come in another order, again, not at all, or as something else.
fn joins(input: &mut &[u8]) {
    let (mut caller, mut answerer) = sessions();
    let mut said: Vec<Message> = Vec::new();
    let mut admitted = BTreeSet::new();
    while let Some(which) = byte(input) {
        // A new one, or one of the last.
        let back = usize::from(which) % 16;
        if back == 0 || back > said.len() {
            said.push(caller.join().1);
        }
        let number = said.len() - back.clamp(1, said.len());
        let Some(step) = Step::take(input) else { return };
        let message = match step {
            Step::Drop => continue,
            Step::Reflect => {
                assert_eq!(caller.admit(&said[number]).err(), Some(ProtocolError::BadMac));
                continue;
            }
            step => apply(&step, &said[number]),
        };
        match answerer.admit(&message) {
            Ok(_) => assert!(message == *said[number] && admitted.insert(number)),
            Err(_) => assert!(message != *said[number] || admitted.contains(&number)),
        }
    }
}

/// A connection whose messages are tampered with.
fn records(input: &mut &[u8]) {
    let (mut caller, mut answerer) = record_layers();
    let mut said = Vec::new();
    let mut heard = Vec::new();
    for flow in 0..16 {
        let Some(step) = Step::take(input) else { return };
        let open = Open {
            flow,
            server: ([10, 64, 0, 2], 80).into(),
            client: ([10, 64, 0, 1], 4000).into(),
        };
        let message = caller.seal(&open);
        said.push(open);
        let result = match step {
            Step::Drop => continue,
            Step::Reflect => return assert_eq!(caller.open::<Open>(&message), Err(ProtocolError::BadMac)),
            Step::Double => answerer.open::<Open>(&message).and_then(|open| {
                heard.push(open);
                answerer.open::<Open>(&message)
            }),
            step => answerer.open::<Open>(&apply(&step, &message)),
        };
        match result {
            Ok(open) => heard.push(open),
            Err(_) => break,
        }
    }
    assert_eq!(heard[..], said[..heard.len()]);
}

fn apply(step: &Step<'_>, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    match step {
        Step::Spoil(from, mask) => {
            for (byte, mask) in message.iter_mut().skip(usize::from(*from)).zip(*mask) {
                *byte ^= mask;
            }
        }
        Step::Cut(at) => message.truncate(usize::from(*at)),
        Step::Say(instead) => message = instead[..instead.len().min(2 * LONGEST)].to_vec(),
        Step::Double => message.extend_from_within(..),
        Step::Drop => message.clear(),
        Step::Pass | Step::Reflect => {}
    }
    message
}

fn record_layers() -> (RecordLayer, RecordLayer) {
    let (mut caller, mut answerer) = sessions();
    let (ours, join) = caller.join();
    let Ok(theirs) = answerer.admit(&join) else { panic!("a join") };
    (ours, theirs)
}

fn sessions() -> (Session, Session) {
    let (caller, greeting) = Handshake::call(key(), hello(0), 1, nonce(1));
    let answerer = Handshake::answer(key(), hello(1), nonce(2));
    let Ok(Next::More(answerer, answer)) = answerer.take(&greeting) else { panic!("a greeting") };
    let Ok(Next::More(caller, second)) = caller.take(&answer) else { panic!("an answer") };
    let Ok(Next::Done(theirs, _, Some(last))) = answerer.take(&second) else { panic!("a hello") };
    let Ok(Next::Done(ours, _, None)) = caller.take(&last) else { panic!("the last hello") };
    (ours, theirs)
}

fn key() -> Key {
    Key::take(&mut [1; 32])
}

fn nonce(byte: u8) -> Nonce {
    Nonce::fixed([byte; 32])
}

fn hello(host: u32) -> Hello {
    Hello::new(7, host)
}

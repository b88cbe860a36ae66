//! Whatever bytes come on the way between two machines of a lab: they are messages and frames, or are refused. A message that
//! is taken says the same when it is sent on.
#![cfg_attr(fuzzing, no_main)]

use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_engine::job::frame::{self, Frame, LONGEST};
use slipway_engine::protocol::Frames;
use slipway_machines::message::{Answer, Order, receive, send};

slipway_fuzz::target!(|bytes: &[u8]| {
    lines::<Order>(bytes);
    lines::<Answer>(bytes);
    link(bytes);
});

/// The messages of a channel.
fn lines<T: Serialize + DeserializeOwned>(mut from: &[u8]) {
    while let Ok(Some(message)) = receive::<T>(&mut from) {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        send(&mut once, &message).expect("it fits");
        let again = receive::<T>(&mut once.as_slice()).expect("it is a message").expect("it is whole");
        send(&mut twice, &again).expect("it fits");
        assert_eq!(once, twice);
    }
}

/// The frames of a job's link.
fn link(bytes: &[u8]) {
    if let Ok(read) = frame::read(bytes) {
        same(&read);
    }
    let mut frames = Frames::default();
    frames.push(bytes);
    while let Ok(Some(one)) = frames.take(LONGEST) {
        let _ = frame::read(&one).map(|read| same(&read));
    }
}

fn same(frame: &Frame<'_>) {
    let (mut wire, mut frames) = (Vec::new(), Frames::default());
    frame.write(&mut wire);
    frames.push(&wire);
    let whole = frames.take(LONGEST).expect("it is short").expect("it is whole");
    assert_eq!(&frame::read(&whole).expect("it is a frame"), frame);
}

//! Whatever bytes come on a stream of a transfer: they are frames of messages or are refused, and no range leads beyond a file's end.
#![cfg_attr(fuzzing, no_main)]

use slipway_transfer::agent::{Hearing, Word};
use slipway_transfer::frame::{Key, Reader, Writer};
use slipway_transfer::message::{self, Answer, Hello, Item, Order, Welcome};

slipway_fuzz::target!(|bytes: &[u8]| {
    let key = Key::new(&[0; 32], 2);
    let mut raw = Reader::new(bytes, key.clone());
    while let Ok(Some(body)) = raw.frame() {
        assert!(body.len() <= bytes.len());
    }
    // With a right tag, as a hostile peer that has the token would send them.
    let mut writer = Writer::new(Vec::new(), key.clone());
    writer.body().extend_from_slice(bytes);
    writer.send().expect("short enough");
    let frame = writer.into_inner();
    let mut reader = Reader::new(frame.as_slice(), key);
    let mut body = reader.frame().expect("whole").expect("one");
    assert_eq!(body, bytes);
    while let Ok((item, data)) = message::take_item(&mut body) {
        if let Item::Data(_, offset, length) = item {
            assert!(offset.checked_add(length.into()).is_some() && data.len() == length as usize);
        }
    }
    // As a program of a node would say it in the agent's place.
    let _ = Hearing::new(bytes).report(|_| {});
    each::<Word>(bytes);
    each::<Order>(bytes);
    each::<Answer>(bytes);
    each::<Hello>(bytes);
    each::<Welcome>(bytes);
});

fn each<T: serde::de::DeserializeOwned>(mut bytes: &[u8]) {
    let mut before = bytes.len();
    while message::take::<T>(&mut bytes).is_ok() && bytes.len() < before {
        before = bytes.len();
    }
}

//! Whatever comes over an agent's connection is a bounded frame or refused, and so is a file of machines.
#![cfg_attr(fuzzing, no_main)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use slipway_agent::{frame, keys};

/// Memory never has to be waited for.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("memory has to be waited for"),
    }
}

slipway_fuzz::target!(|bytes: &[u8]| {
    let (mut rest, mut again) = (bytes, Vec::new());
    while let Ok(Some((kind, content))) = ready(frame::read(&mut rest)) {
        assert!(content.len() <= frame::MOST);
        ready(frame::write(&mut again, kind, &content)).expect("memory takes all");
    }
    assert!(bytes.starts_with(&again), "a frame is written as it was read");
    let text = String::from_utf8_lossy(bytes);
    if let Ok(machines) = keys::parse(&text) {
        let lines = machines.iter().map(|one| format!("{} {} {}\n", one.name, one.address, one.key));
        assert_eq!(keys::parse(&lines.collect::<String>()), Ok(machines));
    }
});

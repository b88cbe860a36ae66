//! Whatever stands in a message between an anchor and a router, it is an order or a report, or refused; nothing panics.

#![cfg_attr(fuzzing, no_main)]

use slipway_fast::control::{Order, Report};

slipway_fuzz::target!(|bytes: &[u8]| {
    // The first byte says how many descriptors come along.
    let (count, bytes) = bytes.split_first().map_or((0, bytes), |(count, rest)| (usize::from(count % 4), rest));
    let null = || std::fs::File::open("/dev/null").expect("there").into();
    match Order::read(bytes, (0..count).map(|_| null()).collect()) {
        Ok(Order::Listener { .. }) => assert_eq!(count, 1),
        Ok(Order::WakeupSockets { sockets, .. }) => assert_eq!(sockets.len(), count),
        Ok(_) => assert_eq!(count, 0),
        Err(_) => {}
    }
    let _ = Report::read(bytes);
});

//! Whatever stands in a packet between a plug-in and its broker, it is one of ours, or refused; nothing panics.

#![cfg_attr(fuzzing, no_main)]

use slipway_verbs::wire::{Answer, Request, parse};

slipway_fuzz::target!(|bytes: &[u8]| {
    let _ = parse::<Request>(bytes);
    let _ = parse::<Answer>(bytes);
});

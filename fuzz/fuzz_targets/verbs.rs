//! Whatever stands in a packet between a plug-in and its broker, or comes from a peer of another host, it is one of ours, or refused;
//! nothing panics.

#![cfg_attr(fuzzing, no_main)]

use slipway_verbs::wire::{Answer, Request, parse};

slipway_fuzz::target!(|bytes: &[u8]| {
    let _ = parse::<Request>(bytes);
    let _ = parse::<Answer>(bytes);
    let _ = parse::<slipway_verbs::carrier::Order>(bytes);
    let _ = parse::<slipway_verbs::gateway::Order>(bytes);
    let _ = parse::<slipway_verbs::gateway::Ask>(bytes);
    let _ = parse::<slipway_verbs::gateway::Told>(bytes);
    let _ = slipway_verbs::management::Message::read(bytes);
    let _ = slipway_verbs::plugin::keeps_peer(bytes);
});

//! Whatever the first line of a connection to a campaign's coordinator holds, it is a worker's hello, or refused.

#![cfg_attr(fuzzing, no_main)]

use slipway_coordinator::far::hello::parse;

slipway_fuzz::target!(|bytes: &[u8]| {
    if let Ok(hello) = parse(bytes) {
        let again = serde_json::to_vec(&hello).expect("it can be written");
        assert_eq!(parse(&again).expect("it can be read"), hello);
    }
});

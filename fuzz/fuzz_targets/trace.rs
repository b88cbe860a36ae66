//! Any bytes given as a trace are points in time, or the line that is wrong.

#![cfg_attr(fuzzing, no_main)]

use slipway_lab::scenario::{TraceError, csv, distem, mahimahi};
use slipway_document::units::Seconds;

slipway_fuzz::target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // As an editor counts them: what ends too early is wrong on the empty line after the last.
    let lines = text.split('\n').count();
    let check = |error: TraceError| assert!((1..=lines).contains(&error.line), "{error}");
    for key in ["state", "rate", "delay", "cpu"] {
        distem(text, key).err().into_iter().chain(csv(text, key).err()).for_each(check);
    }
    match mahimahi(text, Seconds(0.1)) {
        Ok((points, period)) => {
            assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
            assert!(points.last().is_some_and(|last| last.at < period));
        }
        Err(error) => check(error),
    }
});

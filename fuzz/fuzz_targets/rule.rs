//! Whatever the file of a rule holds, the answer is a rule that can be held against a machine, or errors that can be shown.
#![cfg_attr(fuzzing, no_main)]

use slipway_host::check::{Target, check};
use slipway_host::facts::{Facts, Recording, Source};
use slipway_host::rules::{Profile, Rules, parse};

slipway_fuzz::target!(|text: &str| {
    match parse("fuzz.yaml", text) {
        Ok((rule, _)) => {
            let facts = Facts::gather(&Source::recorded(Recording::default()));
            let target = Target { profile: Profile::Dtn, rtt: 0.05, rate: 1e10 };
            assert!(check(&facts, &Rules(vec![rule]), &target).advices.len() <= 1);
        }
        Err(errors) => assert!(!errors.plain().is_empty()),
    }
});

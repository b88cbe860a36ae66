//! Any bytes given as a scenario are refused with reasons, or have a schedule, which is in order and the same again.

#![cfg_attr(fuzzing, no_main)]

use std::path::Path;
use std::sync::LazyLock;

use slipway_lab::model::Lab;
use slipway_lab::parse_scenario;
use slipway_lab::scenario::Traces;

static LAB: LazyLock<Lab> = LazyLock::new(|| {
    let text = "networks: {net: bridge, own: host}\nnodes: {n: {count: 4}, lonely: {networks: [own]}}";
    slipway_lab::parse("lab.yaml", text, Path::new("/")).expect("a lab")
});

slipway_fuzz::target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_scenario("fuzz.yaml", text, Path::new("/"), &LAB) {
        Err(errors) => assert!((1..=50).contains(&errors.errors().len())),
        Ok(scenario) => {
            let plan = || scenario.plan(&LAB, Some(1), &Traces::new());
            if let Ok(schedule) = plan() {
                assert!(schedule.events.windows(2).all(|pair| pair[0].due <= pair[1].due));
                assert!(schedule.events.last().is_none_or(|last| last.due <= schedule.length));
                assert_eq!(plan().as_ref(), Ok(&schedule));
            }
        }
    }
});

//! Whatever the files of a machine hold, its facts are gathered, recorded and checked; the recording has the same facts.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use slipway_host::check::{Target, check};
use slipway_host::facts::{Facts, Recording, Source};
use slipway_host::rules::{Profile, Rules};

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::built_in().expect("they are right"));

slipway_fuzz::target!(|bytes: &[u8]| {
    let Some(recording) = Recording::read(bytes) else { return };
    let source = Source::recorded(recording);
    let facts = Facts::gather(&source);
    let again = Recording::read(&source.recording().text()).unwrap_or_default();
    assert_eq!(Facts::gather(&Source::recorded(again)), facts);
    for profile in [Profile::Dtn, Profile::Hpc, Profile::Server] {
        let checked = check(&facts, &RULES, &Target { profile, rtt: 0.05, rate: 1e10 });
        assert!(serde_json::to_string(&checked).is_ok());
    }
});

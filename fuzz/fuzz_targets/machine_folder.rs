//! Whatever the folder of a recorded machine holds, its facts are gathered and checked.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use slipway_host::check::{Target, check};
use slipway_host::facts::{Facts, Recording, Source};
use slipway_host::rules::{Profile, Rules};
use tempfile::TempDir;

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::built_in().expect("they are right"));
static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

slipway_fuzz::target!(|bytes: &[u8]| {
    let Some(recording) = Recording::read(bytes) else { return };
    let folder = ROOM.path().join("machine");
    let _ = std::fs::remove_dir_all(&folder);
    // A file and a folder of one name cannot both be written: the folder then holds what came before.
    let _ = recording.write(&folder);
    let Ok(source) = Source::open(&folder) else { return };
    let facts = Facts::gather(&source);
    for profile in [Profile::Dtn, Profile::Hpc, Profile::Server] {
        let checked = check(&facts, &RULES, &Target { profile, rtt: 0.05, rate: 1e10 });
        assert!(serde_json::to_string(&checked).is_ok());
    }
});

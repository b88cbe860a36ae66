//! Whatever the journal of settings holds, it is refused as it stands, or a rollback ends it, and only Slipway's own files change.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use slipway_host::setting::{Journal, Kernel, Key, Life, SettingError, State, drift, is_journal, rollback, unpersist};
use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

/// A kernel that has every setting, and takes every value.
#[derive(Default)]
struct Anything(BTreeMap<Key, String>);

impl Kernel for Anything {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        Ok(self.0.get(key).cloned().unwrap_or_else(|| "1".to_owned()))
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        self.0.insert(key.clone(), value.to_owned());
        Ok(())
    }
}

slipway_fuzz::target!(|bytes: &[u8]| {
    let (state, root) = (ROOM.path().join("state"), ROOM.path().join("root"));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).expect("made");
    let opened = State::open(&state).expect("nobody else has it");
    std::fs::write(state.join("journal.json"), bytes).expect("written");
    let now = Life { boot: "one".to_owned(), net: 1 };
    let journal = Journal::open(opened, now);
    if !is_journal(bytes) {
        assert!(!journal.expect_err("it is none").to_string().is_empty());
        assert_eq!(std::fs::read(state.join("journal.json")).expect("it stays"), bytes);
        return;
    }
    // One of another network namespace is left alone.
    let Ok(mut journal) = journal else { return };
    let mut kernel = Anything::default();
    assert_eq!(drift(&kernel, &journal).len(), journal.entries().len());
    let outcomes = rollback(&mut kernel, &mut journal, true, |_| true).expect("the disk works");
    assert!(outcomes.iter().all(|outcome| outcome.is_done()));
    unpersist(&mut journal, &root, true).expect("the disk works");
    assert!(journal.entries().is_empty() && journal.files().is_empty() && !state.join("journal.json").exists());
    let etc = std::fs::read_dir(&root).expect("a folder").map(|entry| entry.expect("listed").file_name());
    assert!(etc.into_iter().all(|name| name == "etc"), "files stand below etc");
});

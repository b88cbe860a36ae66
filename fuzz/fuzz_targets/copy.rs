//! Any bytes that a node sends for a copy make what was asked for or are refused; nothing beside it changes.

#![cfg_attr(fuzzing, no_main)]

use std::ffi::OsStr;
use std::sync::LazyLock;

use slipway_engine::copy::receive;
use slipway_document::units::Bytes;
use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

slipway_fuzz::target!(|bytes: &[u8]| {
    let path = |name: &str| ROOM.path().join(name);
    std::fs::create_dir_all(path("to")).expect("made");
    std::fs::write(path("sentinel"), "untouched").expect("written");
    std::fs::write(path("to/sentinel"), "untouched").expect("written");
    // Twice: what the first brings, links above all, must not lead the second astray.
    for _ in 0..2 {
        let _ = receive(bytes, OsStr::new("asked"), &path("to"), Some(Bytes(1 << 20)));
        let _ = receive(bytes, OsStr::new("asked"), &path("to/asked"), Some(Bytes(1 << 20)));
    }
    for sentinel in ["sentinel", "to/sentinel"] {
        assert_eq!(std::fs::read(path(sentinel)).expect("there"), b"untouched");
    }
    let beside = |folder: &str, known: [&str; 2]| {
        let entries = std::fs::read_dir(path(folder)).expect("listed").flatten();
        assert!(entries.map(|entry| entry.file_name()).all(|name| known.iter().any(|known| name == *known)), "{folder}");
    };
    beside("", ["sentinel", "to"]);
    beside("to", ["sentinel", "asked"]);
    std::fs::remove_dir_all(path("to")).expect("removed");
});

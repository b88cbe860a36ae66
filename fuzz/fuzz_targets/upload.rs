//! Any bytes given as an archive of a campaign (tar, gzip, ZIP) are unpacked below the room or refused; nothing beside it changes.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

slipway_fuzz::target!(|bytes: &[u8]| {
    let path = |name: &str| ROOM.path().join(name);
    std::fs::write(path("sentinel"), "untouched").expect("written");
    std::fs::write(path("archive"), bytes).expect("written");
    std::fs::create_dir_all(path("rooms")).expect("made");
    if let Err(error) = slipway_api::try_archive(&path("rooms"), &path("archive")) {
        assert!(!error.is_empty() && !error.contains("code: \"internal\""), "{error}");
    }
    let names = |folder: &str| std::fs::read_dir(path(folder)).expect("listed").count();
    assert_eq!((names(""), names("rooms")), (3, 0), "something new beside the room, or the room itself");
    assert_eq!(std::fs::read(path("sentinel")).expect("there"), b"untouched");
    assert_eq!(std::fs::read(path("archive")).expect("there"), bytes);
});

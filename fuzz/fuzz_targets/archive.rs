//! Any bytes given as an image are unpacked below the store or refused; nothing beside it changes.
//!
//! Needs root: a layer's whiteouts are device nodes. Works below the temporary folder; put it on a tmpfs for speed.

#![cfg_attr(fuzzing, no_main)]

use std::path::Path;
use std::sync::LazyLock;

use slipway_image::{Limits, Store};
use slipway_lab::model::{Image, ImageSource, Lab};
use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

const LIMITS: Limits = Limits { bytes: 1 << 20, entries: 1000, ratio: None };

slipway_fuzz::target!(|bytes: &[u8]| {
    let path = |name: &str| ROOM.path().join(name);
    std::fs::write(path("image"), bytes).expect("written");
    std::fs::write(path("sentinel"), "untouched").expect("written");
    let store = Store::at(path("store"), LIMITS).expect("a store");
    let refused = store.resolve(&lab(&path("image")), &mut |_, _| {}).is_err();
    let names = |folder: &str| std::fs::read_dir(path(folder)).expect("listed").count();
    assert_eq!(names(""), 3, "something new beside the store");
    assert_eq!(std::fs::read(path("sentinel")).expect("there"), b"untouched");
    assert_eq!(names("store/new"), 0, "something half-made");
    if refused {
        assert_eq!(names("store/layers"), 0, "a layer of a refused archive");
    }
    std::fs::remove_dir_all(path("store")).expect("removed");
});

fn lab(path: &Path) -> Lab {
    let source = ImageSource::Path { path: path.to_owned(), reference: None };
    let lab = slipway_lab::parse("fuzz.yaml", "nodes: {n: }", Path::new("/")).expect("a lab");
    Lab { images: vec![Image { name: "image".into(), source, base: None }], ..lab }
}

//! Archives that want more than to be unpacked.

use std::fs;
use std::io::Write as _;

use proptest::prelude::*;
use slipway_image::Limits;

use super::support::{Room, Tar};

fn refused(tar: Tar, fragments: &[&str]) {
    let room = Room::new();
    let path = room.write("image.tar", &tar.end());
    let error = room.resolve_one(&path).expect_err("refused").to_string();
    for fragment in fragments {
        assert!(error.contains(fragment), "`{error}` does not say `{fragment}`");
    }
    assert!(room.layers().is_empty());
}

#[test]
fn names_that_leave_are_refused() {
    refused(Tar::default().file("../sentinel", "x"), &["entry `../sentinel`", "`..`"]);
    refused(Tar::default().folder("a").file("a/../../sentinel", "x"), &["entry `a/../../sentinel`"]);
    refused(Tar::default().pax("path", b"../sentinel").file("a", "x"), &["entry `../sentinel`"]);
    refused(Tar::default().entry(b'L', "long", "", b"../sentinel\0").file("a", "x"), &["entry `../sentinel`"]);
    refused(Tar::default().pax("path", b"a\0b").file("a", "x"), &["NUL"]);
    refused(Tar::default().file("./", "").file(".", "x"), &["entry `.`"]);
}

#[test]
fn an_absolute_name_is_one_beneath_the_root() {
    let room = Room::new();
    let tar = Tar::default().folder("/").file("//etc/./x", "x").end();
    let layer = room.resolve_one(&room.write("image.tar", &tar)).expect("resolved").lowers.remove(0);
    assert_eq!(fs::read_to_string(layer.join("etc/x")).expect("read"), "x");
}

#[test]
fn nothing_is_written_through_a_link() {
    let absolute = Tar::default().symlink("out", "/tmp").file("out/x", "x");
    refused(absolute, &["entry `out/x`", "symbolic link"]);
    let relative = Tar::default().symlink("up", "../..").file("up/sentinel", "x");
    refused(relative, &["entry `up/sentinel`", "symbolic link"]);
    let inside = Tar::default().folder("a").symlink("b", "a").file("b/x", "x");
    refused(inside, &["entry `b/x`"]);
    let whiteout = Tar::default().symlink("up", "../..").file("up/.wh.sentinel", "");
    refused(whiteout, &["entry `up/.wh.sentinel`"]);
    let below_file = Tar::default().file("a", "x").file("a/b", "x");
    refused(below_file, &["entry `a/b`", "not a directory"]);
}

#[test]
fn hard_links_stay_in_the_archive() {
    refused(Tar::default().link("shadow", "/etc/shadow"), &["entry `shadow`", "hard link"]);
    refused(Tar::default().link("s", "../../sentinel"), &["entry `s`", "hard link"]);
    refused(Tar::default().symlink("up", "../..").link("s", "up/sentinel"), &["entry `s`", "symbolic link"]);
    refused(Tar::default().link("a", "b"), &["entry `a`", "did not come before"]);
    refused(Tar::default().entry(b'1', "a", "b", b"content"), &["entry `a`", "content"]);
    refused(Tar::default().folder("d").link("l", "."), &["entry `l`", "hard link"]);
}

#[test]
fn a_later_entry_never_writes_into_an_earlier_one() {
    let room = Room::new();
    let tar = Tar::default()
        .file("one", "first")
        .link("two", "one")
        .file("two", "second")
        .symlink("three", "one")
        .file("three", "third")
        .link("one", "one")
        .end();
    let layer = room.resolve_one(&room.write("image.tar", &tar)).expect("resolved").lowers.remove(0);
    let read = |name: &str| fs::read_to_string(layer.join(name)).expect("read");
    assert_eq!([read("one"), read("two"), read("three")], ["first", "second", "third"]);
    refused(Tar::default().folder("d").file("d/x", "").symlink("d", "/"), &["entry `d`", "replace a directory"]);
}

#[test]
fn devices_and_unknown_kinds_are_refused() {
    refused(Tar::default().entry(b'3', "dev/mem", "", b""), &["entry `dev/mem`", "device"]);
    refused(Tar::default().entry(b'4', "dev/vda", "", b""), &["entry `dev/vda`", "device"]);
    refused(Tar::default().entry(b'Q', "odd", "", b""), &["entry `odd`", "unknown kind"]);
    refused(Tar::default().entry(b'S', "hole", "", b""), &["entry `hole`", "sparse"]);
    refused(Tar::default().pax("GNU.sparse.major", b"1").file("hole", ""), &["sparse"]);
    refused(Tar::default().file(".wh...", ""), &["entry `.wh...`"]);
}

#[test]
fn terminals_are_not_written_to() {
    refused(Tar::default().file("\x1b[2J/../x", ""), &["entry `\\u{1b}[2J/../x`"]);
}

#[test]
fn damage_is_told_from_another_kind_of_file() {
    let room = Room::new();
    let whole = Tar::default().file("a", &"x".repeat(2000)).end();
    for (bytes, fragment) in [
        (&b""[..], "neither"),
        (b"hello", "neither"),
        (&[7; 4096][..], "neither"),
        (&whole[..1000], "middle of a file"),
        (&whole[..whole.len() - 1024], "end mark"),
    ] {
        let error = room.resolve_one(&room.write("image", bytes)).expect_err("refused").to_string();
        assert!(error.contains(fragment), "{error}");
    }
    let mut wrong = whole;
    wrong.splice(512..512, [b'x'; 512]);
    let error = room.resolve_one(&room.write("image", &wrong)).expect_err("refused").to_string();
    assert!(error.contains("checksum"), "{error}");
    assert!(room.layers().is_empty());
}

#[test]
fn bombs_are_measured_not_believed() {
    let mut room = Room::new();
    room.limits = Limits { bytes: 1 << 20, entries: 100, ratio: None };
    let big = Tar::default().entry(b'0', "big", "", &vec![0; 2 << 20]).end();
    for (name, bytes) in
        [("tar", big.clone()), ("gz", gzip(&big)), ("zst", zstd::encode_all(&big[..], 3).expect("zstd"))]
    {
        let error = room.resolve_one(&room.write(name, &bytes)).expect_err("refused").to_string();
        assert!(error.contains("more than 1MiB") && error.contains("SLIPWAY_IMAGE_MAX"), "{error}");
    }
    let many = (0..200).fold(Tar::default(), |tar, i| tar.file(&format!("f{i}"), ""));
    let error = room.resolve_one(&room.write("many", &many.end())).expect_err("refused").to_string();
    assert!(error.contains("entry `f100` is one too many"), "{error}");
    let implied = "d/".repeat(200);
    let deep = Tar::default().pax("path", format!("{implied}f").as_bytes()).file("f", "");
    let error = room.resolve_one(&room.write("deep", &deep.end())).expect_err("refused").to_string();
    assert!(error.contains("one too many"), "{error}");
    // 200 MiB of zeros in 200 KiB.
    room.limits = Limits::default();
    let zeros = Tar::default().entry(b'0', "zeros", "", &vec![0; 200 << 20]).end();
    let error = room.resolve_one(&room.write("zeros", &gzip(&zeros))).expect_err("refused").to_string();
    assert!(error.contains("200 times"), "{error}");
    // A header that promises what does not come.
    let liar = Tar::default().pax("size", b"9000000000000000000").file("liar", "");
    let error = room.resolve_one(&room.write("liar", &liar.end())).expect_err("refused").to_string();
    assert!(error.contains("middle of a file"), "{error}");
    assert!(room.layers().is_empty());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // The best level makes a bomb with each of flate2's backends; another crate of the workspace may choose one.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

fn entry() -> impl Strategy<Value = (u8, String, String, Vec<u8>)> {
    let name =
        prop::collection::vec(prop_oneof!["[ab]", "\\.\\.", "\\.", "", "\\.wh\\.[ab]", "\\.wh\\.\\.wh\\.\\.opq"], 1..4)
            .prop_map(|parts| parts.join("/"));
    let target = prop_oneof![name.clone(), Just("/etc".to_owned()), Just("../..".to_owned())];
    let kind = prop::sample::select(b"001255xLKg36S7".to_vec());
    (kind, name, target, prop::collection::vec(any::<u8>(), 0..40))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_an_archive_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let room = Room::new();
        let _ = room.resolve_one(&room.write("image", &bytes));
        room.layers();
    }

    #[test]
    fn any_entries_stay_within(entries in prop::collection::vec(entry(), 0..12), bend in any::<Option<(u16, u8)>>()) {
        let room = Room::new();
        let mut tar = Tar::default();
        for (kind, name, target, content) in &entries {
            tar = tar.entry(*kind, name, target, if b"0xLKgS7".contains(kind) { content } else { b"" });
        }
        let mut bytes = tar.end();
        if let Some((place, byte)) = bend {
            let place = usize::from(place) % bytes.len();
            bytes[place] = byte;
        }
        let _ = room.resolve_one(&room.write("image", &bytes));
        room.layers();
        // The store, the archive, the sentinel: nothing new beside them.
        prop_assert_eq!(fs::read_dir(room.path("")).expect("listed").count(), 3);
    }
}

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::pack::pack;
use super::{Bytes, Copied, CopyError, OsStr, receive};

/// As out of a node: the stream's first name is what was asked for, unless a test is about just that.
fn unpack(stream: &[u8], to: &Path) -> Result<Copied, CopyError> {
    let end = stream.iter().take(100).position(|byte| matches!(byte, 0 | b'/')).unwrap_or(0);
    receive(stream, OsStr::from_bytes(&stream[..end]), to, None)
}

fn stream(from: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(from, &mut bytes).expect("packed");
    bytes
}

/// A stream as a liar in the node would write it.
fn forged(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o4755);
        let size = if *kind == EntryType::Regular { content.len() } else { 0 };
        if size == 0 && !content.is_empty() {
            header.set_link_name(content).expect("short");
        }
        header.set_size(size as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        tar.append(&header, &content.as_bytes()[..size]).expect("in memory");
    }
    tar.into_inner().expect("in memory")
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let dir = tempfile::tempdir().expect("a folder");
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("deep/er")).expect("made");
    fs::write(from.join("deep/er/file"), "text").expect("written");
    fs::set_permissions(from.join("deep/er/file"), fs::Permissions::from_mode(0o750)).expect("set");
    symlink("/etc/passwd", from.join("link")).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");

    let copied = unpack(&stream(&from), &dir.path().join("to")).expect("unpacked");
    assert_eq!(copied, Copied { entries: 5, bytes: 4, skipped: 1, outward: 1 });
    let to = dir.path().join("to");
    assert_eq!(fs::read_to_string(to.join("deep/er/file")).expect("there"), "text");
    let mode = fs::metadata(to.join("deep/er/file")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(fs::read_link(to.join("link")).expect("there"), Path::new("/etc/passwd"));
    assert!(!to.join("pipe").exists());

    // Into a folder that is there it goes by its own name, and over what it wrote before.
    for _ in 0..2 {
        unpack(&stream(&from), &to).expect("unpacked");
    }
    assert!(to.join("from/deep/er/file").exists());
}

#[test]
fn a_file_replaces_a_file_and_never_what_a_link_means() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("new"), "new").expect("written");
    fs::write(at("precious"), "precious").expect("written");
    symlink("precious", at("link")).expect("linked");
    unpack(&stream(&at("new")), &at("link")).expect("unpacked");
    assert_eq!(fs::read_to_string(at("precious")).expect("there"), "precious");
    assert_eq!(fs::read_to_string(at("link")).expect("there"), "new");
    assert!(matches!(unpack(&stream(&at("new")), &at("nowhere/")), Err(CopyError::Refused { .. })));
}

#[test]
fn a_liar_reaches_nothing_but_the_destination() {
    let folder = EntryType::Directory;
    let (file, symbolic) = (EntryType::Regular, EntryType::Symlink);
    for lie in [
        &[("../escaped", file, "x")][..],
        &[("/escaped", file, "x")],
        &[("a", folder, ""), ("a/../../escaped", file, "x")],
        &[("a", folder, ""), ("b", file, "x")],
        &[("a", folder, ""), ("a/out", symbolic, ".."), ("a/out/escaped", file, "x")],
        &[("a", folder, ""), ("a/out", symbolic, "/"), ("a/out/escaped", folder, "")],
        &[("a", EntryType::Link, "/etc/passwd")],
        &[("a", EntryType::Char, "")],
        &[],
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let to = dir.path().join("to");
        fs::create_dir(&to).expect("made");
        assert!(unpack(&forged(lie), &to).is_err(), "{lie:?}");
        let beside: Vec<_> = fs::read_dir(dir.path()).expect("listed").collect();
        assert_eq!(beside.len(), 1, "{lie:?} reached out");
        assert!(!Path::new("/escaped").exists(), "{lie:?} reached out");
    }
}

#[test]
fn no_privilege_crosses() {
    let dir = tempfile::tempdir().expect("a folder");
    unpack(&forged(&[("a", EntryType::Regular, "x")]), dir.path()).expect("unpacked");
    let mode = fs::metadata(dir.path().join("a")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_stream_cut_short_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("a"), "x".repeat(2000)).expect("written");
    let whole = stream(&dir.path().join("a"));
    for length in [0, 100, 700, 1600] {
        assert!(unpack(&whole[..length], &dir.path().join("b")).is_err(), "{length}");
    }
}

#[test]
fn only_what_was_asked_for_is_made() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join(".bashrc"), "mine").expect("written");
    fs::create_dir(dir.path().join("taken")).expect("made");
    let lie = forged(&[(".bashrc", EntryType::Regular, "theirs")]);
    for to in [dir.path().to_owned(), dir.path().join("taken"), dir.path().join("new")] {
        let error = receive(&lie[..], OsStr::new("results"), &to, None).expect_err("another name");
        assert!(error.to_string().contains("outside of what was asked for"), "{error}");
    }
    assert_eq!(fs::read_to_string(dir.path().join(".bashrc")).expect("there"), "mine");
    assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 2);
}

#[test]
fn a_link_that_one_copy_brings_the_next_does_not_follow() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("home/.ssh")).expect("made");
    fs::create_dir(at("got")).expect("made");
    let plant = forged(&[("out", EntryType::Symlink, "../home")]);
    unpack(&plant, &at("got")).expect("a link comes out as a link");
    let then = forged(&[("authorized_keys", EntryType::Regular, "theirs")]);
    for to in ["got/out", "got/out/", "got/out/.ssh", "got/out/.ssh/authorized_keys"] {
        let error = unpack(&then, &at(to)).expect_err(to);
        assert!(matches!(error, CopyError::Linked { .. }), "{to}: {error}");
        assert!(error.to_string().contains("home"), "it names where the link leads: {error}");
    }
    assert_eq!(fs::read_dir(at("home/.ssh")).expect("listed").count(), 0);
}

#[test]
fn more_than_may_come_is_refused_before_it_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let most = Some(Bytes(64 << 10));
    let bounded = |stream: &[u8], name| receive(stream, OsStr::new(name), dir.path(), most);
    let large = forged(&[("a", EntryType::Regular, &"x".repeat(100 << 10))]);
    assert!(matches!(bounded(&large, "a"), Err(CopyError::TooMuch { .. })));
    assert!(!dir.path().join("a").exists());
    // An entry that makes no file counts as well, or a stream could go on for ever.
    let endless = forged(&[("p", EntryType::Fifo, "")]);
    let header = &endless[..512];
    assert!(matches!(bounded(&header.repeat(100), "p"), Err(CopyError::TooMuch { .. })));
}

#[test]
fn holes_stay_holes() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let file = fs::File::create(at("sparse")).expect("made");
    file.set_len(1 << 30).expect("set");
    file.write_all_at(b"middle", 500 << 20).expect("written");
    let passed = stream(&at("sparse"));
    assert!(passed.len() < 1 << 20, "{} bytes passed", passed.len());
    receive(&passed[..], OsStr::new("sparse"), &at("back"), None).expect("unpacked");
    let back = fs::metadata(at("back")).expect("there");
    assert_eq!(back.len(), 1 << 30);
    assert!(back.blocks() * 512 < 1 << 20, "{} blocks", back.blocks());
    let mut read = [0; 8];
    fs::File::open(at("back")).expect("opened").read_exact_at(&mut read, (500 << 20) - 1).expect("read");
    assert_eq!(&read, b"\0middle\0");
}

#[test]
fn half_a_file_does_not_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("a"), "x".repeat(2000)).expect("written");
    let whole = stream(&dir.path().join("a"));
    assert!(unpack(&whole[..1600], &dir.path().join("b")).is_err());
    assert!(!dir.path().join("b").exists());
}

/// A file of a tree: where it is, and runs of data with the holes before them.
type Sparse = (String, Vec<(u32, Vec<u8>)>);

fn files() -> impl Strategy<Value = Vec<Sparse>> {
    let name = "[a-c]{1,2}(/[a-c]{1,2}){0,2}";
    let runs = proptest::collection::vec((0..100_000_u32, proptest::collection::vec(any::<u8>(), 0..9000)), 0..4);
    proptest::collection::vec((name, runs), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tree_comes_out_as_it_went_in(files in files()) {
        let dir = tempfile::tempdir().expect("a folder");
        let from = dir.path().join("from");
        fs::create_dir(&from).expect("made");
        for (name, runs) in &files {
            let path = from.join(name);
            // A name may be taken, by a file or by a folder.
            if fs::create_dir_all(path.parent().expect("below")).is_err() || path.exists() {
                continue;
            }
            let file = fs::File::create(&path).expect("made");
            let mut at = 0;
            for (hole, data) in runs {
                at += u64::from(*hole);
                file.write_all_at(data, at).expect("written");
                at += data.len() as u64;
            }
            file.set_len(at + 10_000).expect("set");
        }
        unpack(&stream(&from), &dir.path().join("to")).expect("unpacked");
        prop_assert_eq!(list(&from), list(&dir.path().join("to")));
    }

    #[test]
    fn any_bytes_make_nothing_beside_the_destination(start in 0..3_usize, noise in proptest::collection::vec((0..2048_usize, any::<u8>()), 0..20)) {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join("from/a")).expect("made");
        fs::write(dir.path().join("from/a/f"), "text").expect("written");
        symlink("..", dir.path().join("from/l")).expect("linked");
        let mut bytes = stream(&dir.path().join("from"));
        for (at, byte) in noise {
            let at = at.wrapping_add(start * 512) % bytes.len();
            bytes[at] = byte;
        }
        fs::create_dir(dir.path().join("to")).expect("made");
        let _ = receive(&bytes[..], OsStr::new("from"), &dir.path().join("to"), Some(Bytes(1 << 20)));
        let beside: Vec<_> = fs::read_dir(dir.path().join("to")).expect("listed").flatten().map(|entry| entry.file_name()).collect();
        prop_assert!(beside.iter().all(|name| name == "from"), "{:?}", beside);
    }
}

fn list(folder: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut names: Vec<_> = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed").path()).collect();
    names.sort();
    for path in names {
        let name = path.file_name().expect("named").to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(list(&path).into_iter().map(|(below, content)| (format!("{name}/{below}"), content)));
            found.push((name, None));
        } else {
            found.push((name, Some(fs::read(&path).expect("read"))));
        }
    }
    found
}

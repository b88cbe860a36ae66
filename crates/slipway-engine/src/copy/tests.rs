use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::pack::pack;
use super::unpack::unpack;
use super::{Copied, CopyError};

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

    let copied = unpack(&stream(&from)[..], &dir.path().join("to")).expect("unpacked");
    assert_eq!(copied, Copied { entries: 5, bytes: 4, skipped: 1 });
    let to = dir.path().join("to");
    assert_eq!(fs::read_to_string(to.join("deep/er/file")).expect("there"), "text");
    let mode = fs::metadata(to.join("deep/er/file")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(fs::read_link(to.join("link")).expect("there"), Path::new("/etc/passwd"));
    assert!(!to.join("pipe").exists());

    // Into a folder that is there it goes by its own name, and over what it wrote before.
    for _ in 0..2 {
        unpack(&stream(&from)[..], &to).expect("unpacked");
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
    unpack(&stream(&at("new"))[..], &at("link")).expect("unpacked");
    assert_eq!(fs::read_to_string(at("precious")).expect("there"), "precious");
    assert_eq!(fs::read_to_string(at("link")).expect("there"), "new");
    assert!(matches!(unpack(&stream(&at("new"))[..], &at("nowhere/")), Err(CopyError::Refused { .. })));
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
        assert!(unpack(&forged(lie)[..], &to).is_err(), "{lie:?}");
        let beside: Vec<_> = fs::read_dir(dir.path()).expect("listed").collect();
        assert_eq!(beside.len(), 1, "{lie:?} reached out");
        assert!(!Path::new("/escaped").exists(), "{lie:?} reached out");
    }
}

#[test]
fn no_privilege_crosses() {
    let dir = tempfile::tempdir().expect("a folder");
    unpack(&forged(&[("a", EntryType::Regular, "x")])[..], dir.path()).expect("unpacked");
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

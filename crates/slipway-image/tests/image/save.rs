//! A node's changes, saved and put back on its image.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd as _;

use slipway_image::{SaveError, save};

use super::support::{Room, Tar, image, listing, mounted, open, run};

fn base(room: &Room) -> slipway_lab::model::Image {
    let tar = Tar::default()
        .file("deleted", "x")
        .file("changed", "old")
        .file("dir/a", "a")
        .file("remade/old", "old")
        .file("moved/inner/file", "x")
        .end();
    image(&room.write("base.tar", &tar))
}

const CHANGES: &str = "rm deleted; echo new > changed; echo b > dir/b; chown 1000:1000 dir/b; chmod 4711 dir/b
    ln dir/b dir/hard; ln -s /etc/passwd absolute; ln -s ../../.. up; mkfifo pipe
    rm -r remade; mkdir remade; echo new > remade/new; mv moved renamed; setfattr -n user.note -v $'a\\nb' changed
    long=$(printf 'n%.0s' {1..200}); mkdir $long; echo x > $long/$long
    find . -exec touch -h -d @1000000000 {} +";

#[test]
fn a_saved_node_is_the_node() {
    for name in ["saved.tar.zst", "saved.tar.gz", "saved.tar"] {
        let room = Room::new();
        let base = base(&room);
        let lowers = room.resolve(std::slice::from_ref(&base)).expect("resolved").remove(0).lowers;
        let out = room.path(name);
        let before = mounted(&lowers, |root, upper| {
            run(root, CHANGES);
            // A socket is left out.
            let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).expect("bound");
            save(open(upper).as_fd(), &BTreeSet::new(), &out, None).expect("saved");
            listing(root).into_iter().filter(|line| !line.starts_with("socket ")).collect::<Vec<_>>()
        });
        let mut saved = image(&out);
        saved.base = Some(0);
        let lowers = room.resolve(&[base, saved]).expect("resolved").remove(1).lowers;
        mounted(&lowers, |root, _| {
            assert_eq!(listing(root), before, "{name}");
            let mut value = [0; 10];
            let length = rustix::fs::fgetxattr(open(&root.join("changed")), "user.note", &mut value[..]).expect("kept");
            assert_eq!(&value[..length], b"a\nb");
        });
    }
}

#[test]
fn what_a_layer_cannot_hold_is_named_and_the_old_archive_stays() {
    let room = Room::new();
    let lowers = room.resolve(&[base(&room)]).expect("resolved").remove(0).lowers;
    let out = room.write("saved.tar.zst", b"the last one");
    for (change, fragment) in [
        ("mkdir d; mknod d/mem c 1 1", "`d/mem` is a device"),
        ("touch .wh.passwd", "`.wh.passwd` has a name that marks deleted files"),
        ("touch dir/.wh..wh..opq", "`dir/.wh..wh..opq` has a name"),
        ("d=.; for i in {1..520}; do mkdir x; cd x; done", "nested more than 500"),
    ] {
        mounted(&lowers, |root, upper| {
            run(root, change);
            let error = save(open(upper).as_fd(), &BTreeSet::new(), &out, None).expect_err("refused").to_string();
            assert!(error.contains(fragment), "{error}");
        });
        assert_eq!(fs::read(&out).expect("read"), b"the last one");
    }
    let error =
        save(open(&room.path("")).as_fd(), &BTreeSet::new(), &room.path("saved.zip"), None).expect_err("unknown");
    assert!(matches!(error, SaveError::Kind(_)));
    // Nothing half-written lies about: the base, the saved one, the sentinel, the store.
    assert_eq!(fs::read_dir(room.path("")).expect("listed").count(), 4);
}

#[test]
fn links_are_saved_not_followed() {
    let room = Room::new();
    fs::create_dir(room.path("upper")).expect("made");
    room.run("ln -s $PWD/sentinel upper/link; ln -s $PWD upper/dir");
    let out = room.path("saved.tar");
    let saved = save(open(&room.path("upper")).as_fd(), &BTreeSet::new(), &out, None).expect("saved");
    assert_eq!((saved.entries, saved.bytes), (2, 0));
    assert!(!fs::read(&out).expect("read").windows(9).any(|bytes| bytes == b"untouched"));
}

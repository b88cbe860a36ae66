//! The store: shared, interrupted, full.

use std::fs;

use slipway_image::{Limits, Store};

use super::support::{Room, Tar, image, lab, open, privately};

#[test]
fn an_archive_is_read_once_while_it_stays_the_same() {
    let room = Room::new();
    let path = room.write("image.tar", &Tar::default().file("a", "one").end());
    let read = || {
        let mut last = (0, 0);
        let found = room.store().resolve(&lab(&[image(&path)]), &mut |done, total| last = (done, total));
        (found.expect("resolved").remove(0).lowers, last)
    };
    let size = fs::metadata(&path).expect("there").len();
    let (first, progress) = read();
    assert_eq!(progress, (size, size));
    assert_eq!(read(), (first.clone(), (0, 0)), "known by its fingerprint");
    // As many bytes in the same file, and the old time of modification put back.
    let time = fs::metadata(&path).expect("there").modified().expect("a time");
    fs::write(&path, Tar::default().file("a", "two").end()).expect("written");
    open(&path).set_modified(time).expect("put back");
    let (second, _) = read();
    assert_ne!(first, second);
    assert_eq!(fs::read_to_string(second[0].join("a")).expect("read"), "two");
    // A layer that went missing is made again.
    fs::remove_dir_all(&second[0]).expect("removed");
    assert_eq!(read().0, second);
    assert!(second[0].join("a").exists());
}

#[test]
fn half_made_layers_go_when_their_maker_is_dead() {
    let room = Room::new();
    let store = room.store();
    let half = room.path("store/new/half");
    let make = || {
        fs::create_dir_all(half.join("etc")).expect("made");
        fs::write(half.join("etc/file"), "x").expect("written");
    };
    make();
    let lock = open(&room.path("store/lock"));
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    drop(room.store());
    assert!(half.exists(), "its maker lives");
    drop(lock);
    drop(room.store());
    assert!(!half.exists());
    // A store that was open all along looks again before it makes something itself.
    make();
    let path = room.write("image.tar", &Tar::default().file("a", "x").end());
    store.resolve(&lab(&[image(&path)]), &mut |_, _| {}).expect("resolved");
    assert!(!half.exists());
    assert_eq!(room.layers().len(), 1);
}

#[test]
fn two_at_once_make_one_layer() {
    let room = Room::new();
    let many = (0..500).fold(Tar::default(), |tar, i| tar.file(&format!("d{}/f{i}", i % 7), "content"));
    let path = room.write("image.tar", &many.end());
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| room.resolve_one(&path).expect("resolved").lowers)).collect();
        threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
    });
    assert!(found.windows(2).all(|two| two[0] == two[1]));
    assert_eq!(room.layers().len(), 1);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let room = Room::new();
    let big = Tar::default().file("small", "x").entry(b'0', "big", "", &vec![7; 4 << 20]).end();
    let path = room.write("image.tar", &big);
    let folder = room.path("small");
    fs::create_dir(&folder).expect("made");
    privately(|| {
        let flags = rustix::mount::MountFlags::empty();
        slipway_sys::mount::mount_fs("tmpfs", &folder, flags, "size=1m").expect("a tmpfs");
        let store = Store::at(folder.join("store"), Limits::default()).expect("a store");
        let error = store.resolve(&lab(&[image(&path)]), &mut |_, _| {}).expect_err("full").to_string();
        assert!(error.contains("entry `big`") && error.contains("SLIPWAY_IMAGES"), "{error}");
        for part in ["new", "layers", "known"] {
            assert_eq!(fs::read_dir(folder.join("store").join(part)).expect("listed").count(), 0, "{part}");
        }
    });
}

#[test]
fn other_users_cannot_enter_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let room = Room::new();
    drop(room.store());
    let mode = fs::metadata(room.path("store")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

//! Whole transfers over loopback: everything arrives as it was, only what is needed is sent, and nothing leaves the root.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use common::{Ends, noise, tree};
use slipway_transfer::TransferError;
use slipway_transfer::pull::{Pull, pull};
use slipway_transfer::token::Token;

/// One of everything.
fn furnish(ends: &Ends) {
    let from = ends.from();
    fs::create_dir_all(from.join("a/b/empty")).expect("made");
    fs::write(from.join("a/small"), "small").expect("written");
    fs::write(from.join("a/nothing"), "").expect("written");
    fs::write(from.join("a/b/large"), noise(1, 20 << 20)).expect("written");
    fs::write(from.join("name with \n and \u{e9}"), noise(2, 300 << 10)).expect("written");
    fs::set_permissions(from.join("a/small"), fs::Permissions::from_mode(0o4750)).expect("set");
    symlink("/etc/passwd", from.join("a/link")).expect("made");
    symlink("nowhere", from.join("dangling")).expect("made");
    fs::hard_link(from.join("a/b/large"), from.join("second name")).expect("made");
    let sparse = fs::File::create(from.join("sparse")).expect("made");
    sparse.set_len(64 << 20).expect("grown");
    sparse.write_all_at(b"data", 40 << 20).expect("written");
    fs::set_permissions(from.join("a/b/empty"), fs::Permissions::from_mode(0o500)).expect("set");
    rustix::fs::setxattr(from.join("a/small"), "user.note", b"kept", rustix::fs::XattrFlags::empty()).expect("set");
}

#[test]
fn everything_arrives_as_it_was() {
    let ends = Ends::new();
    furnish(&ends);
    let report = ends.complete();
    assert_eq!((report.files, report.directories, report.links), (5, 3, 3));
    assert!(report.sent < 22 << 20, "holes are not sent: {report:?}");
    let sparse = fs::metadata(ends.to().join("sparse")).expect("there");
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(ends.to().join("a/small"), "user.note", &mut value[..]).expect("there");
    assert_eq!(&value[..length], b"kept");
    assert!(!ends.to().join(".slipway-part").exists());

    let again = ends.complete();
    assert_eq!(again.unchanged, 4, "nobody compares the empty one: {again:?}");
    assert!(again.sent < 64 << 10, "nothing is sent twice: {again:?}");
}

#[test]
fn only_changed_blocks_are_sent() {
    let ends = Ends::new();
    let file = ends.from().join("file");
    let mut bytes = noise(3, 30 << 20);
    fs::write(&file, &bytes).expect("written");
    ends.complete();
    bytes.splice(5 << 20..5 << 20, *b"inserted");
    bytes[20 << 20] ^= 1;
    bytes.extend_from_slice(b"appended");
    fs::write(&file, &bytes).expect("written");
    let report = ends.complete();
    // An insertion moves the cut at each later segment's end.
    assert!(report.sent < 2 << 20, "{report:?}");
}

#[test]
fn a_byte_flipped_on_the_disk_is_found_and_mended() {
    let ends = Ends::new();
    fs::write(ends.from().join("file"), noise(4, 3 << 20)).expect("written");
    ends.complete();
    let there = ends.to().join("file");
    let before = fs::metadata(&there).expect("there");
    let opened = fs::OpenOptions::new().write(true).open(&there).expect("opened");
    opened.write_all_at(b"?", 1 << 20).expect("written");
    opened.set_modified(before.modified().expect("a time")).expect("set");
    let mut request = ends.request();
    request.verify = true;
    let verified = ends.send(&request).expect("compared");
    assert_eq!(verified.different.iter().map(|named| named.path.as_str()).collect::<Vec<_>>(), ["file"]);
    let report = ends.complete();
    assert!(report.sent < 1 << 20, "{report:?}");
    assert!(ends.send(&request).expect("compared").is_complete());
}

#[test]
fn a_comparison_names_every_difference_and_changes_nothing() {
    let ends = Ends::new();
    furnish(&ends);
    fs::create_dir(ends.from().join("c")).expect("made");
    fs::write(ends.from().join("c/x"), "x").expect("written");
    ends.complete();
    fs::remove_file(ends.to().join("a/nothing")).expect("removed");
    fs::write(ends.to().join("a/b/more"), "more").expect("written");
    fs::set_permissions(ends.to().join("c/x"), fs::Permissions::from_mode(0o600)).expect("set");
    fs::remove_file(ends.to().join("dangling")).expect("removed");
    symlink("elsewhere", ends.to().join("dangling")).expect("made");
    let before = tree(&ends.to());
    let mut request = ends.request();
    request.verify = true;
    let report = ends.send(&request).expect("compared");
    let different: Vec<&str> = report.different.iter().map(|named| named.path.as_str()).collect();
    assert_eq!(different, ["a", "a/b", "a/nothing", "c/x", "dangling"], "{report:?}");
    assert_eq!(report.extra, ["a/b/more"]);
    assert_eq!(tree(&ends.to()), before);
}

#[test]
fn data_in_clear_arrives_too() {
    let ends = Ends::new();
    furnish(&ends);
    let mut request = ends.request();
    request.clear = true;
    assert!(ends.send(&request).expect("transferred").is_complete());
    assert_eq!(tree(&ends.from()), tree(&ends.to()));
}

#[test]
fn another_token_is_refused() {
    let ends = Ends::new();
    let stranger =
        Ends { token: Token::random().expect("random"), folder: tempfile::tempdir().expect("a folder"), ..ends };
    fs::create_dir(stranger.from()).expect("made");
    let refused = stranger.send(&stranger.request()).expect_err("refused");
    assert!(matches!(refused, TransferError::Identity(_)), "{refused}");
}

#[test]
fn nothing_is_written_outside_the_root() {
    let ends = Ends::new();
    fs::write(ends.from().join("file"), "content").expect("written");
    let outside = ends.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    let root = ends.folder.path().join("root");
    symlink(&outside, root.join("link")).expect("made");
    for destination in ["..", "link", "link/x", "../outside", "a/../../outside", ".slipway-part"] {
        let mut request = ends.request();
        request.destination = destination.as_bytes().to_vec();
        assert!(matches!(ends.send(&request), Err(TransferError::Refused(_))), "{destination}");
    }
    // A link where a directory of the data set belongs gives way to it.
    fs::create_dir(ends.to()).expect("made");
    symlink(&outside, ends.to().join("sub")).expect("made");
    fs::create_dir(ends.from().join("sub")).expect("made");
    fs::write(ends.from().join("sub/inside"), "content").expect("written");
    ends.complete();
    assert_eq!(fs::read_dir(&outside).expect("listed").count(), 0);
}

#[test]
fn what_cannot_be_placed_is_named_and_the_rest_goes() {
    let ends = Ends::new();
    for name in ["one", "two"] {
        fs::write(ends.from().join(name), name).expect("written");
    }
    fs::create_dir_all(ends.to().join("one/full")).expect("made");
    let socket = std::os::unix::net::UnixListener::bind(ends.from().join("socket")).expect("bound");
    let report = ends.send(&ends.request()).expect("transferred");
    drop(socket);
    assert_eq!(report.failed.iter().map(|named| named.path.as_str()).collect::<Vec<_>>(), ["one"], "{report:?}");
    assert_eq!(report.skipped, ["socket"]);
    assert_eq!(fs::read(ends.to().join("two")).expect("there"), b"two");
}

#[test]
fn sources_keep_their_names() {
    let ends = Ends::new();
    fs::create_dir(ends.from().join("folder")).expect("made");
    fs::write(ends.from().join("folder/file"), "1").expect("written");
    fs::write(ends.from().join("single"), "2").expect("written");
    let mut request = ends.request();
    request.sources = vec![ends.from().join("folder"), ends.from().join("single")];
    request.destination = b"/deep/er".to_vec();
    assert!(ends.send(&request).expect("transferred").is_complete());
    let root = ends.folder.path().join("root/deep/er");
    let paths: Vec<PathBuf> = tree(&root).into_keys().collect();
    assert_eq!(paths, ["folder", "folder/file", "single"].map(PathBuf::from));
}

fn fetch(ends: &Ends, source: &str) -> Pull {
    Pull {
        sources: vec![source.as_bytes().to_vec()],
        destination: ends.folder.path().join("back"),
        verify: false,
        clear: false,
        limit: None,
        sync: false,
    }
}

#[test]
fn what_was_sent_can_be_fetched() {
    let ends = Ends::new();
    furnish(&ends);
    ends.complete();
    let mut request = fetch(&ends, "to/");
    let report = pull(&request, ends.address, &ends.token, |_| {}).expect("fetched");
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.files, report.directories, report.links), (5, 3, 3));
    assert_eq!(tree(&ends.from()), tree(&request.destination));
    let again = pull(&request, ends.address, &ends.token, |_| {}).expect("fetched");
    assert!(again.sent < 64 << 10, "nothing is sent twice: {again:?}");
    request.verify = true;
    assert!(pull(&request, ends.address, &ends.token, |_| {}).expect("compared").is_complete());
    fs::write(request.destination.join("a/small"), "other").expect("written");
    fs::write(request.destination.join("a/more"), "more").expect("written");
    let before = tree(&request.destination);
    let report = pull(&request, ends.address, &ends.token, |_| {}).expect("compared");
    let different: Vec<&str> = report.different.iter().map(|named| named.path.as_str()).collect();
    assert!(different.contains(&"a/small") && report.extra == ["a/more"], "{report:?}");
    assert_eq!(tree(&request.destination), before, "a comparison changes nothing");
}

#[test]
fn nothing_outside_the_root_is_fetched() {
    let ends = Ends::new();
    let outside = ends.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "secret").expect("written");
    symlink(&outside, ends.folder.path().join("root/link")).expect("made");
    for source in ["..", "../outside", "link/", "link/secret", "a/../../outside", "missing"] {
        let error = pull(&fetch(&ends, source), ends.address, &ends.token, |_| {}).expect_err("refused");
        assert!(matches!(error, TransferError::Refused(_)), "{source}: {error}");
    }
    let report = pull(&fetch(&ends, "link"), ends.address, &ends.token, |_| {}).expect("fetched");
    assert_eq!((report.files, report.links), (0, 1), "a link goes as a link");
}

#[test]
fn a_server_that_only_receives_sends_nothing() {
    let ends = Ends::new();
    furnish(&ends);
    ends.complete();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let server = slipway_transfer::serve::Server::bind(any, &ends.token, Some(ends.folder.path().join("root")), false);
    let server = server.expect("bound");
    let address = server.address().expect("bound");
    std::thread::spawn(move || server.run(true, |_| {}));
    let error = pull(&fetch(&ends, "to/"), address, &ends.token, |_| {}).expect_err("refused").to_string();
    assert!(error.contains("it only receives"), "{error}");
    assert!(!ends.folder.path().join("back").exists());
}

//! Whiteouts in every order.

use std::fs;

use super::support::{Room, Tar, image, mounted};

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    let room = Room::new();
    let lower = Tar::default()
        .file("file", "old")
        .file("kept", "kept")
        .file("dir/old", "old")
        .file("dir2/old", "old")
        .file("dir3/old", "old")
        .file("dir4/sub/old", "old")
        .file("link", "old");
    let upper = Tar::default()
        .file(".wh.file", "")
        .file(".wh.dir", "")
        .folder("dir")
        .file("dir/new", "new")
        .folder("dir2")
        .file("dir2/new", "new")
        .file(".wh.dir2", "")
        .file("dir3/new", "new")
        .file("dir3/.wh..wh..opq", "")
        .file("dir4/.wh.sub", "")
        .file("dir4/sub/new", "new")
        .file(".wh.link", "")
        .symlink("link", "kept")
        .file(".wh..wh.plnk", "");
    let mut images = [image(&room.write("lower", &lower.end())), image(&room.write("upper", &upper.end()))];
    images[1].base = Some(0);
    let lowers = room.resolve(&images).expect("resolved").remove(1).lowers;
    assert_eq!(lowers.len(), 2);
    mounted(&lowers, |root, _| {
        let names = |folder: &str| {
            let entries = fs::read_dir(root.join(folder)).expect("listed");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(""), ["dir", "dir2", "dir3", "dir4", "kept", "link"]);
        for folder in ["dir", "dir2", "dir3", "dir4/sub"] {
            assert_eq!(names(folder), ["new"], "{folder}");
        }
        assert_eq!(fs::read_to_string(root.join("link")).expect("read"), "kept");
    });
}

//! One tree in every kind that an image may come in.

use std::fs;
use std::path::PathBuf;

use slipway_image::ImageError;

use super::support::{Room, Tar, image, listing, mounted, named};

/// A small root with what is awkward in one, and an OCI image of it in two layers with a deletion, made by umoci.
fn room() -> Room {
    let room = Room::new();
    room.run(
        "mkdir -p root/etc/alternatives root/bin root/gone/deep
         echo one > root/etc/one; echo two > root/etc/two; ln root/etc/one root/etc/hard
         ln -s /bin/busybox root/etc/alternatives/sh; cp /bin/busybox root/bin/busybox; ln -s busybox root/bin/sh
         chmod 4755 root/bin/busybox; setcap cap_net_raw+ep root/etc/two
         setfattr -n user.note -v $'with\\nnewline' root/etc/one
         chown 1000:1000 root/etc/one; echo x > root/gone/deep/file; mkdir root/replaced; echo old > root/replaced/old
         long=root/$(printf 'd%.0s' {1..120})/$(printf 'f%.0s' {1..120}); mkdir -p $(dirname $long); echo long > $long
         find root -exec touch -h -d @1000000000 {} +",
    );
    room
}

fn oci(room: &Room) -> PathBuf {
    room.run(
        "mkdir new; echo new > new/new; mkdir empty
         umoci init --layout oci; umoci new --image oci:app
         umoci insert --rootless --image oci:app root /
         umoci insert --image oci:app --whiteout /gone
         umoci insert --image oci:app --opaque new /replaced
         umoci config --image oci:app --config.env GREETING=hello --config.entrypoint /bin/busybox \
            --config.cmd echo --config.cmd hi --config.workingdir /etc --config.user 1000:1000",
    );
    room.path("oci")
}

#[test]
fn archives_are_told_apart_by_their_bytes() {
    let room = room();
    room.run(
        "tar -C root --xattrs --xattrs-include='*' --format=pax -cf plain . ; gzip -k plain -c > gz.zip; zstd -q plain -o zst.gz
         tar -C root --format=gnu -cf gnu.oci .",
    );
    let expected = listing(&room.path("root"));
    for name in ["plain", "gz.zip", "zst.gz", "gnu.oci"] {
        let rootfs = room.resolve_one(&room.path(name)).expect("resolved");
        assert_eq!(rootfs.lowers.len(), 1, "{name}");
        assert_eq!(listing(&rootfs.lowers[0]), expected, "{name}");
        assert_eq!(rootfs.config, None);
    }
    // Compression is not content.
    assert_eq!(room.layers().len(), 2);
    let plain = room.resolve_one(&room.path("plain")).expect("resolved").lowers.remove(0);
    let one = fs::File::open(plain.join("etc/one")).expect("opened");
    let mut value = [0; 100];
    let length = rustix::fs::fgetxattr(&one, "user.note", &mut value[..]).expect("kept");
    assert_eq!(&value[..length], b"with\nnewline");
    let two = fs::File::open(plain.join("etc/two")).expect("opened");
    let length = rustix::fs::fgetxattr(&two, "security.capability", &mut value[..]).expect("kept");
    assert_eq!(length, 20);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(plain.join("etc/hard")).expect("there")), 2);
}

#[test]
fn a_directory_is_used_where_it_is() {
    let room = room();
    fs::write(room.path("root/manifest.json"), r#"{"name": "a web app"}"#).expect("written");
    fs::write(room.path("root/oci-layout"), "not one").expect("written");
    assert_eq!(room.resolve_one(&room.path("root")).expect("resolved").lowers, [room.path("root")]);
    assert!(room.layers().is_empty());
    let error = room.resolve(&[named(&room.path("root"), Some("app"))]).expect_err("no references there");
    assert!(matches!(error, ImageError::NoReferences(_)), "{error}");
}

#[test]
fn an_oci_image_is_the_same_in_every_wrapping() {
    let room = room();
    oci(&room);
    room.run(
        "skopeo --insecure-policy copy -q oci:oci:app oci-archive:app.ociar:app
         skopeo --insecure-policy copy -q oci:oci:app docker-archive:app.dockar:app:latest
         gzip -k app.dockar; mkdir docker; tar -C docker -xf app.dockar
         skopeo --insecure-policy copy -q --dest-compress-format zstd --dest-compress oci:oci:app oci:zst:app",
    );
    let mut stacks = Vec::new();
    for name in ["oci", "app.ociar", "app.dockar", "app.dockar.gz", "docker", "zst"] {
        let rootfs = room.resolve_one(&room.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = rootfs.config.clone().expect("an image has one");
        assert_eq!(config.env.last().map(String::as_str), Some("GREETING=hello"), "{name}");
        assert_eq!(config.entrypoint, ["/bin/busybox"], "{name}");
        assert_eq!(config.cmd, ["echo", "hi"], "{name}");
        assert_eq!(config.workdir.as_deref(), Some(std::path::Path::new("/etc")), "{name}");
        assert_eq!(config.user, "1000:1000", "{name}");
        stacks.push(rootfs.lowers);
    }
    // Layers are kept by content: whatever the wrapping, they are unpacked once.
    assert!(stacks.windows(2).all(|two| two[0] == two[1]), "{stacks:#?}");
    assert_eq!(room.layers().len(), stacks[0].len());
    mounted(&stacks[0], |root, _| {
        assert_eq!(fs::read_to_string(root.join("etc/one")).expect("read"), "one\n");
        assert!(!root.join("gone").exists());
        assert_eq!(fs::read_dir(root.join("replaced")).expect("listed").count(), 1);
        assert_eq!(fs::read_to_string(root.join("replaced/new")).expect("read"), "new\n");
        super::support::run(root, "test \"$(chroot . /etc/alternatives/sh -c 'echo $((6*7))')\" = 42");
    });
}

#[test]
fn images_of_one_layout_are_chosen_by_name() {
    let room = room();
    let oci = oci(&room);
    room.run("umoci tag --image oci:app second; umoci insert --image oci:second new /more");
    let error = room.resolve_one(&oci).expect_err("two").to_string();
    assert!(error.contains("it holds 2") && error.contains("app") && error.contains("second"), "{error}");
    let error = room.resolve(&[named(&oci, Some("third"))]).expect_err("not there").to_string();
    assert!(error.contains("`third`"), "{error}");
    let both = room.resolve(&[named(&oci, Some("app")), named(&oci, Some("second"))]).expect("resolved");
    assert_eq!(both[1].lowers[1..], both[0].lowers);
}

#[test]
fn what_buildah_makes_runs() {
    let room = room();
    room.run(
        "export STORAGE_DRIVER=vfs; b=\"buildah --root $PWD/storage --runroot $PWD/run\"
         c=$($b from scratch); $b copy -q $c root /; $b config --cmd /bin/sh $c
         $b commit -q $c oci:built:v1; $b commit -q $c docker-archive:built.tar:built:v1; $b rm $c",
    );
    for name in ["built", "built.tar"] {
        let rootfs = room.resolve_one(&room.path(name)).expect("resolved");
        assert_eq!(rootfs.config.expect("config").cmd, ["/bin/sh"]);
        mounted(&rootfs.lowers, |root, _| {
            super::support::run(root, "test \"$(chroot . /bin/sh -c 'echo $((6*7))')\" = 42");
        });
    }
}

#[test]
fn a_static_program_is_enough() {
    let room = Room::new();
    room.write("main.go", b"package main\nfunc main() { println(\"hello\") }\n");
    let cache = env!("CARGO_TARGET_TMPDIR");
    room.run(&format!("mkdir root; CGO_ENABLED=0 GOCACHE={cache}/go go build -o root/hello main.go"));
    room.run("umoci init --layout go; umoci new --image go:app; umoci insert --image go:app root /");
    let rootfs = room.resolve_one(&room.path("go")).expect("resolved");
    mounted(&rootfs.lowers, |root, _| {
        super::support::run(root, "test \"$(chroot . /hello 2>&1)\" = hello");
    });
}

#[test]
fn a_blob_that_is_not_what_it_says_is_refused() {
    let room = room();
    let oci = oci(&room);
    // The same content, packed otherwise.
    room.run("blob=$(ls -S oci/blobs/sha256/* | head -1); gzip -dc $blob | gzip -1n > other; mv other $blob");
    let error = room.resolve_one(&oci).expect_err("refused");
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
    room.run("rm $(ls -S oci/blobs/sha256/* | head -1)");
    let error = room.resolve_one(&oci).expect_err("refused").to_string();
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn an_image_folder_never_leads_out_of_itself() {
    let room = Room::new();
    let diff = "0".repeat(64);
    let secret = room.path("sentinel");
    let config = format!(r#"{{"rootfs":{{"diff_ids":["sha256:{diff}"]}}}}"#);
    let manifest = |layer: &str| format!(r#"[{{"Config":"config.json","Layers":["{layer}"]}}]"#);
    for (layer, link) in [
        ("../sentinel", None),
        ("/etc/passwd", None),
        ("link", Some(secret.to_str().expect("utf-8"))),
        ("link", Some("../../../sentinel")),
        ("pipe", None),
    ] {
        let mut tar = Tar::default().file("config.json", &config).file("manifest.json", &manifest(layer));
        tar = tar.symlink("link", link.unwrap_or("nowhere")).entry(b'6', "pipe", "", b"");
        let error = room.resolve_one(&room.write("image.tar", &tar.end())).expect_err("refused");
        assert!(matches!(error, ImageError::Layout { .. }), "{layer}: {error}");
        assert!(room.layers().is_empty());
    }
    let upwards = config.replace(&diff, "../../../sentinel");
    let tar = Tar::default().file("config.json", &upwards).file("manifest.json", &manifest("layer"));
    let error = room.resolve_one(&room.write("image.tar", &tar.end())).expect_err("refused").to_string();
    assert!(error.contains("64 digits"), "{error}");
}

#[test]
fn the_same_layer_twice_is_stacked_once() {
    let room = Room::new();
    let one = room.write("one.tar", &Tar::default().file("a", "1").end());
    let mut images = [image(&one), image(&one)];
    images[1].base = Some(0);
    let resolved = room.resolve(&images).expect("resolved");
    assert_eq!(resolved[1].lowers.len(), 1);
    mounted(&resolved[1].lowers, |root, _| assert!(root.join("a").exists()));
}

//! Images against real tools and hostile archives. Needs root, and umoci, skopeo, buildah, zstd, busybox-static.

use std::path::Path;

#[path = "image/hostile.rs"]
mod hostile;
#[path = "image/kinds.rs"]
mod kinds;
#[path = "image/overlay.rs"]
mod overlay;
#[path = "image/save.rs"]
mod save;
#[path = "image/store.rs"]
mod store;
#[path = "image/support.rs"]
mod support;

#[test]
fn the_host_is_its_own_root() {
    let room = support::Room::new();
    let [rootfs] = &room.resolve(&[support::host()]).expect("resolved")[..] else { panic!("one image") };
    assert_eq!(rootfs.lowers, [Path::new("/")]);
    assert_eq!(rootfs.config, None);
    assert!(rootfs.extra_binds.iter().all(|bind| bind.is_dir() && !bind.starts_with("/proc")));
}

//! A loop device is there as long as it is open. In a process of its own: a child that another test forks would keep it open.

use std::fs::{self, File};

use slipway_sys::block::{LoopDevice, attached};

#[test]
fn a_device_is_there_as_long_as_it_is_open() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = fs::canonicalize(folder.path()).expect("it is there").join("disk");
    let file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
    file.set_len(1 << 20).expect("a sparse file");
    let device = LoopDevice::attach(&file).expect("this takes root and loop devices");
    let found = attached(path.parent().expect("it has one")).expect("listed");
    assert_eq!(found, [(device.device, path.clone())]);
    assert!(device.device.statistics().is_some());
    fs::remove_file(&path).expect("removed");
    assert_eq!(attached(path.parent().expect("it has one")).expect("listed").len(), 1, "also without a name");
    drop(device);
    assert_eq!(attached(path.parent().expect("it has one")).expect("listed").len(), 0);
}

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Paths that facts read, and some that they list.
const PATHS: [&str; 22] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/cmdline",
    "/proc/self/mountinfo",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/services",
    "/ethtool.json",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
    "/sys/devices/system/node/node1/cpulist",
    "/sys/class/net/eth0/device/uevent",
    "/sys/class/net/eth0/operstate",
    "/sys/class/net/eth0/speed",
    "/sys/class/net/eth0/device/current_link_speed",
    "/sys/class/net/eth0/device/msi_irqs/7/",
    "/sys/class/net/eth0/queues/rx-0/rps_cpus",
    "/sys/block/sda/size",
    "/sys/block/sda/queue/scheduler",
    "/sys/block/sda/sda1/dev",
    "/sys/block/md0/md/chunk_size",
];

const CONTENTS: [&str; 16] = [
    "",
    "0",
    "1",
    "18446744073709551615",
    "-1",
    "0-3,8",
    "0-4294967295",
    "up\n",
    "DRIVER=mlx5_core\n",
    "16.0 GT/s PCIe",
    "8:1",
    "[none] mq-deadline",
    "=== /a\n\\x",
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw,data=journal",
    "{\"eth0\": {\"ring_rx\": [1, 2], \"pause\": {\"unknown\": \"?\"}}}",
    "physical id : 0\nflags : hypervisor\n\u{0}",
];

fn recordings() -> impl Strategy<Value = Recording> {
    let path = proptest::sample::select(PATHS.to_vec());
    let content = prop_oneof![
        proptest::sample::select(CONTENTS.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..80),
    ];
    proptest::collection::btree_map(path, content, 0..PATHS.len()).prop_map(|files| {
        let file = |(path, content): (&str, Vec<u8>)| {
            (path.to_owned(), if path.ends_with('/') { Vec::new() } else { content })
        };
        Recording(files.into_iter().map(file).collect::<BTreeMap<_, _>>())
    })
}

fn gathered(source: &Source) -> Facts {
    Facts::gather(source)
}

proptest! {
    #[test]
    fn a_recording_gives_the_same_facts(recording in recordings()) {
        let source = Source::recorded(recording);
        let facts = gathered(&source);
        // The recording of what was read is enough: as it is, as one text, and as a folder.
        let recording = source.recording();
        prop_assert_eq!(&gathered(&Source::recorded(recording.clone())), &facts);
        let text = Recording::read(&recording.text()).unwrap_or_default();
        prop_assert_eq!(&gathered(&Source::recorded(text)), &facts);
        let room = tempfile::tempdir().expect("a folder");
        let folder = room.path().join("machine");
        recording.write(&folder).expect("written");
        prop_assert_eq!(&gathered(&Source::open(&folder).expect("a folder")), &facts);
    }
}

#[test]
fn this_machine_and_its_recording_have_the_same_facts() {
    let source = Source::machine().expect("it is there");
    let facts = gathered(&source);
    assert!(facts.system.version.known().is_some());
    assert_eq!(gathered(&Source::recorded(source.recording())), facts);
}

#[test]
fn a_folder_leads_nowhere_else() {
    let room = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(room.path().join("proc/sys/kernel")).expect("made");
    std::os::unix::fs::symlink("/proc/sys/kernel/osrelease", room.path().join("proc/cmdline")).expect("linked");
    let source = Source::open(room.path()).expect("a folder");
    assert!(gathered(&source).system.cmdline.known().is_none(), "the link is resolved within the folder");
    std::fs::write(room.path().join("proc/sys/kernel/osrelease"), "6.1.0\n").expect("written");
    assert_eq!(gathered(&source).system.cmdline, Fact::Known("6.1.0".to_owned()));
}

#[test]
fn a_recording_is_only_what_looks_like_one() {
    assert!(Recording::read(b"no recording").is_none());
    assert!(Recording::read(b"").is_none());
    assert!(Recording::read(b"=== relative\nx\n").is_none());
    assert!(Recording::read(b"=== /a/../b\nx\n").is_none());
    let recording = Recording::read(b"# comment\n=== /a\n\\=== x\n\\\\y\n=== /b/\n").expect("one");
    assert_eq!(recording.0.get("/a").map(Vec::as_slice), Some(b"=== x\n\\y\n".as_slice()));
    assert!(recording.0.contains_key("/b/"));
}

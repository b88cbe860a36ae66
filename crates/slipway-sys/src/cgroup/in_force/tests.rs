use super::*;

const DISK: Device = Device { major: 8, minor: 16 };

/// A folder that looks like a group's.
fn group(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let part = match version {
        Version::V1 => super::super::group::Part::legacy(super::super::Controller::Cpu),
        Version::V2 => super::super::group::Part::unified(super::super::Controller::ALL.into()),
    };
    let group = Group::new(vec![part.at(Folder::open(folder.path()).expect("opened").expect("there"))]);
    (folder, group)
}

#[test]
fn version_2_is_read_back() {
    let (_folder, group) = group(
        Version::V2,
        &[
            ("cpu.max", "25000 50000\n"),
            ("cpu.stat", "usage_usec 9\nnr_periods 4\nnr_throttled 2\nthrottled_usec 30\n"),
            ("cpuset.cpus", "\n"),
            ("memory.max", "max\n"),
            ("memory.high", "4096\n"),
            ("memory.events", "low 0\noom 2\noom_kill 1\n"),
            ("pids.max", "7\n"),
            ("io.max", "8:0 rbps=1 wbps=1 riops=1 wiops=1\n8:16 rbps=max wbps=1048576 riops=max wiops=120\n"),
            ("io.stat", "8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n"),
        ],
    );
    let disk = DiskLimits { write: Some(1 << 20), write_iops: Some(120), ..DiskLimits::none(DISK) };
    let expected = InForce {
        cpu: Some(0.5),
        cpu_period_us: Some(50_000),
        memory_soft: Some(4096),
        pids: Some(7),
        disk: Some(disk),
        ..InForce::default()
    };
    assert_eq!(group.in_force(Some(DISK)), expected);
    assert_eq!(group.throttled(), Some(Throttled { periods: 4, throttled: 2, time_ns: 30_000 }));
    assert_eq!(group.disk_use(DISK), Some(Statistics { reads: 3, read: 1, writes: 4, written: 2 }));
    assert_eq!(group.memory_kills(), Some(1));
}

#[test]
fn version_1_is_read_back() {
    let (_folder, group) = group(
        Version::V1,
        &[
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 30\n"),
            ("memory.limit_in_bytes", "4096\n"),
            ("memory.memsw.limit_in_bytes", "12288\n"),
            ("memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("blkio.throttle.read_bps_device", "8:1 5\n8:16 2048\n"),
            ("blkio.throttle.io_service_bytes", "8:16 Read 512\n8:16 Write 1024\nTotal 1536\n"),
            ("blkio.throttle.io_serviced", "8:16 Read 1\n8:16 Write 2\nTotal 3\n"),
        ],
    );
    let expected = InForce {
        memory: Some(4096),
        swap: Some(8192),
        disk: Some(DiskLimits { read: Some(2048), ..DiskLimits::none(DISK) }),
        ..InForce::default()
    };
    assert_eq!(group.in_force(Some(DISK)), expected);
    assert_eq!(group.throttled(), Some(Throttled { periods: 4, throttled: 2, time_ns: 30 }));
    assert_eq!(group.disk_use(DISK), Some(Statistics { reads: 1, read: 512, writes: 2, written: 1024 }));
}

#[test]
fn nothing_is_made_of_nothing() {
    for version in [Version::V1, Version::V2] {
        let (_folder, group) = group(version, &[]);
        assert_eq!(group.in_force(Some(DISK)), InForce::default());
        assert_eq!((group.throttled(), group.disk_use(DISK), group.memory_kills()), (None, None, None));
    }
}

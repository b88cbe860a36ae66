use super::*;

const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
";
const V2: &str = "\
35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";
const CONTAINER: &str = "\
1209 1200 0:30 /../.. /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw
";

fn set<const N: usize>(controllers: [Controller; N]) -> BTreeSet<Controller> {
    controllers.into()
}

fn paths(hierarchy: &Hierarchy, needed: &BTreeSet<Controller>) -> Vec<String> {
    hierarchy.parts(needed).into_iter().map(|(path, _)| path.display().to_string()).collect()
}

#[test]
fn version_1_records_membership_in_the_freezer() {
    let v1 = Hierarchy::parse(V1, "").expect("usable");
    assert_eq!(v1.mode(), Mode::V1);
    assert_eq!(v1.controllers(), set([Controller::Cpu, Controller::Cpuset]));
    assert_eq!(paths(&v1, &set([])), ["/sys/fs/cgroup/freezer"]);
    assert_eq!(paths(&v1, &set([Controller::Cpu])), ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/cpu,cpuacct"]);
}

#[test]
fn version_2_is_one_folder() {
    let v2 = Hierarchy::parse(V2, "cpuset cpu io memory hugetlb pids rdma misc\n").expect("usable");
    assert_eq!(v2.mode(), Mode::V2);
    let all = set([Controller::Cpu, Controller::Cpuset, Controller::Io, Controller::Memory, Controller::Pids]);
    assert_eq!(v2.controllers(), all);
    assert_eq!(paths(&v2, &all), ["/sys/fs/cgroup"]);
}

#[test]
fn disk_limits_of_version_2_count_memory_too() {
    let v2 = Hierarchy::parse(V2, "cpu io memory pids\n").expect("usable");
    let (_, part) = v2.parts(&set([Controller::Io])).remove(0);
    assert_eq!(part.controllers, set([Controller::Io, Controller::Memory]));
    assert!(!v2.limits_devices());
    let v1 = Hierarchy::parse(&V1.replace("rw,freezer", "rw,freezer,blkio"), "").expect("usable");
    assert_eq!(v1.controllers(), set([Controller::Cpu, Controller::Cpuset, Controller::Io]));
    assert!(v1.limits_devices());
}

#[test]
fn a_hybrid_records_membership_in_version_2() {
    let mounts = format!("{V1}41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    let hybrid = Hierarchy::parse(&mounts, "hugetlb").expect("usable");
    assert_eq!(hybrid.mode(), Mode::Hybrid);
    assert_eq!(paths(&hybrid, &set([])), ["/sys/fs/cgroup/unified"]);
    assert_eq!(paths(&hybrid, &set([Controller::Cpuset])), ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuset"]);
}

#[test]
fn a_container_sees_part_of_version_2() {
    let inside = Hierarchy::parse(CONTAINER, "cpu memory pids").expect("usable");
    assert_eq!(paths(&inside, &set([Controller::Pids])), ["/sys/fs/cgroup"]);
    assert!(!inside.controllers().contains(&Controller::Cpuset));
}

#[test]
fn nothing_mounted_and_no_freezer_are_told_apart() {
    assert!(matches!(Hierarchy::parse("", ""), Err(CgroupError::NoHierarchy)));
    let no_freezer = V1.replace("rw,freezer", "rw,net_cls");
    assert!(matches!(Hierarchy::parse(&no_freezer, ""), Err(CgroupError::NoFreezer)));
}

#[test]
fn a_mount_point_with_a_space_is_unescaped() {
    assert_eq!(unescape(r"/mnt/a\040b\134c"), Path::new(r"/mnt/a b\c"));
    assert_eq!(unescape(r"/mnt/odd\9"), Path::new(r"/mnt/odd\9"));
}

#[test]
fn a_limit_without_its_controller_is_refused_before_anything_is_made() {
    let v1 = Hierarchy::parse(V1, "").expect("usable");
    let limits = Limits { memory: Some(1 << 20), ..Limits::default() };
    let error = v1.create_lab("x", [&limits]).expect_err("no memory controller in the fixture");
    assert!(matches!(error, CgroupError::NoController { limit: "memory", .. }), "{error}");
}

#[test]
fn names_cannot_lead_out_of_the_folder() {
    let v1 = Hierarchy::parse(V1, "").expect("usable");
    for name in ["", "..", ".", "a/b", "../x", "a\0b"] {
        assert!(matches!(v1.open_lab(name), Err(CgroupError::BadName(_))), "{name:?}");
        assert!(matches!(v1.open_node("lab", name), Err(CgroupError::BadName(_))), "{name:?}");
    }
}

#[test]
fn groups_of_a_job_lie_below_the_jobs() {
    let own = "7:freezer:/slurm/uid_0/job_12/step_batch\n3:cpuset:/slurm/uid_0/job_123\n1:cpu,cpuacct:/slurm/uid_0/job_12/step_0/task_0\n0::/\n";
    let needed = set([Controller::Cpu, Controller::Cpuset]);
    let v1 = Hierarchy::parse(V1, "").expect("usable").below_in("job_12", own);
    let all = [
        "/sys/fs/cgroup/freezer/slurm/uid_0/job_12/step_batch",
        "/sys/fs/cgroup/cpu,cpuacct/slurm/uid_0/job_12/step_0/task_0",
        "/sys/fs/cgroup/cpuset",
    ];
    assert_eq!(paths(&v1, &needed), all);
    let v2 = Hierarchy::parse(V2, "cpu\n").expect("usable");
    let own = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    let below = v2.clone().below_in("job_12", own);
    assert_eq!(paths(&below, &set([])), ["/sys/fs/cgroup/system.slice/slurmstepd.scope/job_12"]);
    assert_eq!(
        v2.clone().below_in("job_12", "0::/../../job_12\nnonsense\n::\n"),
        v2,
        "and stays where nobody knows it"
    );
}

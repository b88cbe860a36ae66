//! Real groups, in every version that this machine has. Needs root and a mounted control group hierarchy.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::Pid;
use slipway_sys::cgroup::{CgroupError, Controller, Hierarchy, Limits};
use slipway_sys::process;

/// The machine as it is and, where it mixes versions, as if version 2 were not there.
fn hierarchies() -> Vec<Hierarchy> {
    let detected = Hierarchy::detect().expect("control groups are mounted");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let legacy = mounts.replace(" - cgroup2 ", " - tmpfs ");
    let legacy = Hierarchy::parse(&legacy, "").ok().filter(|legacy| *legacy != detected);
    [Some(detected), legacy].into_iter().flatten().collect()
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> (Self, Pid) {
        let child = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
        let pid = Pid::from_child(&child);
        (Self(child), pid)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn state(pid: Pid) -> String {
    let stat = fs::read_to_string(format!("/proc/{}/wchan", pid.as_raw_nonzero()));
    stat.unwrap_or_default()
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// An `up` that is interrupted makes groups while its lab is removed.
#[test]
fn a_group_that_others_add_to_is_removed() {
    for (index, hierarchy) in hierarchies().into_iter().enumerate() {
        let name = format!("test-added-{}-{index}", std::process::id());
        let lab = hierarchy.create_lab(&name, []).expect("root may");
        let (mut sleeper, pid) = Sleeper::start();
        lab.create_node("n1", &Limits::default()).expect("root may").add(pid).expect("joins");
        let again = hierarchy.open_lab(&name).expect("looked").expect("it is there");
        let removing = std::thread::spawn(move || again.remove());
        // It waits for the process meanwhile.
        for node in 2..100 {
            match lab.create_node(&format!("n{node}"), &Limits::default()) {
                // Removed before it was opened, or filled.
                Err(CgroupError::Io { source, .. }) if is_gone(&source) => {}
                made => drop(made.expect("root may")),
            }
        }
        lab.kill().expect("ends it");
        sleeper.0.wait().expect("our child");
        removing.join().expect("it ends").expect("it is removed");
        assert!(!hierarchy.find_all().expect("listed").contains(&name));
    }
}

#[test]
fn a_group_lives_from_making_to_removing() {
    for (index, hierarchy) in hierarchies().into_iter().enumerate() {
        let name = format!("test-{}-{index}", std::process::id());
        let lab = hierarchy.create_lab(&name, []).expect("root may");
        let node = lab.create_node("n1", &Limits::default()).expect("root may");
        let (mut sleeper, pid) = Sleeper::start();
        node.add(pid).expect("joins");
        let number = pid.as_raw_nonzero().get();
        assert_eq!(node.pids().expect("listed"), [number]);
        assert_eq!(lab.pids().expect("counted from above too"), [number]);
        assert!(hierarchy.find_all().expect("listed").contains(&name));

        lab.freeze().expect("freezes");
        assert!(node.is_frozen().expect("known"), "{:?} {}", hierarchy.mode(), state(pid));
        lab.thaw().expect("thaws");
        assert!(!node.is_frozen().expect("known"));

        let usage = node.usage().expect("readable");
        assert_eq!(usage.pids, 1);
        assert!(usage.memory > 0);

        node.freeze().expect("freezes");
        lab.kill().expect("a frozen process ends too");
        assert!(!sleeper.0.wait().expect("our child").success());
        assert_eq!(lab.pids().expect("listed"), []);
        lab.remove().expect("empty");
        assert!(!hierarchy.find_all().expect("listed").contains(&name));
        assert!(hierarchy.open_lab(&name).expect("looked").is_none());
        hierarchy.remove_top().expect("gone, or in use by a lab");
    }
}

#[test]
fn limits_reach_the_kernel() {
    for (index, hierarchy) in hierarchies().into_iter().enumerate() {
        let offered = hierarchy.controllers();
        let with = |controller: Controller| offered.contains(&controller);
        let limits = Limits {
            cpu: with(Controller::Cpu).then_some(0.2),
            cpu_period: Some(Duration::from_millis(20)),
            cpuset: with(Controller::Cpuset).then(|| "0".to_owned()),
            memory: with(Controller::Memory).then_some(64 << 20),
            pids: with(Controller::Pids).then_some(7),
            ..Limits::default()
        };
        let name = format!("limits-{}-{index}", std::process::id());
        let lab = hierarchy.create_lab(&name, [&limits]).expect("root may");
        let node = lab.create_node("n1", &limits).expect("root may");
        let free = lab.create_node("n2", &Limits::default()).expect("root may");

        let folders: BTreeSet<String> = mounted_folders(&format!("slipway/{name}/n1"));
        let read = |file: &str| folders.iter().find_map(|folder| fs::read_to_string(format!("{folder}/{file}")).ok());
        if with(Controller::Cpu) {
            let quota = read("cpu.max").or_else(|| read("cpu.cfs_quota_us")).expect("a quota");
            assert!(quota.starts_with("4000"), "{quota}");
        }
        if with(Controller::Pids) {
            assert_eq!(read("pids.max").expect("a limit").trim(), "7");
        }
        if with(Controller::Memory) {
            let memory = read("memory.max").or_else(|| read("memory.limit_in_bytes")).expect("a limit");
            assert_eq!(memory.trim(), (64 << 20).to_string());
        }
        let (_sleeper, pid) = Sleeper::start();
        node.add(pid).expect("joins, cpuset filled");
        if with(Controller::Cpuset) {
            let allowed = process::status(pid.as_raw_nonzero().get(), "Cpus_allowed_list");
            let is_in = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).expect("it runs");
            let cpus = ["cpuset.cpus", "cpuset.effective_cpus", "cpuset.cpus.effective"].map(read);
            assert_eq!(allowed.expect("it runs"), "0", "{cpus:?}, it is in\n{is_in}");
        }
        let reopened = hierarchy.open_node(&name, "n1").expect("looked").expect("there");
        assert_eq!(reopened.pids().expect("listed"), [pid.as_raw_nonzero().get()]);
        drop(free);
        lab.kill().expect("ends");
        lab.remove().expect("empty");
        assert!(mounted_folders(&format!("slipway/{name}")).is_empty(), "nothing is left");
        hierarchy.remove_top().expect("gone, or in use by a lab");
    }
}

#[test]
fn a_limit_that_nothing_enforces_is_refused() {
    let mounts = "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let bare = Hierarchy::parse(mounts, "").expect("usable");
    let limits = Limits { cpu: Some(1.0), ..Limits::default() };
    match bare.create_lab("never", [&limits]) {
        Err(CgroupError::NoController { limit: "cpu", reason }) => assert!(reason.contains("Hint"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_limit_that_comes_late_holds_those_who_are_there_and_those_who_come() {
    for (index, hierarchy) in hierarchies().into_iter().enumerate() {
        if !hierarchy.controllers().contains(&Controller::Pids) {
            continue;
        }
        let name = format!("late-{}-{index}", std::process::id());
        let lab = hierarchy.create_lab(&name, []).expect("root may");
        drop(lab.create_node("n1", &Limits::default()).expect("root may"));
        let opened_before = hierarchy.open_node(&name, "n1").expect("looked").expect("there");
        let (_there, pid) = Sleeper::start();
        opened_before.add(pid).expect("joins");

        let limits = Limits { pids: Some(50), ..Limits::default() };
        hierarchy.set_limits(&name, "n1", &limits, &[Controller::Pids].into()).expect("root may");
        let folders: Vec<_> = mounted_folders(&format!("slipway/{name}/n1")).into_iter().collect();
        let limited = folders.iter().find(|path| fs::exists(format!("{path}/pids.max")).unwrap_or(false));
        let limited = limited.expect("it has a folder now");
        let inside = || fs::read_to_string(format!("{limited}/cgroup.procs")).expect("readable");
        assert!(inside().lines().any(|line| line == pid.as_raw_nonzero().to_string()), "moved: {}", inside());
        assert_eq!(hierarchy.open_node(&name, "n1").expect("looked").expect("there").in_force(None).pids, Some(50));

        // A program that starts in a group opened before does the same; this one goes back again.
        opened_before.join_others().expect("joins");
        let own = std::process::id().to_string();
        let joined = inside();
        for folder in &folders {
            let (mount, _) = folder.split_once("/slipway/").expect("it is below a mount");
            fs::write(format!("{mount}/cgroup.procs"), &own).expect("back to where it was");
        }
        assert!(joined.lines().any(|line| line == own), "the folder that came since: {joined}");
        lab.kill().expect("ends");
        hierarchy.open_lab(&name).expect("looked").expect("there").remove().expect("empty");
        hierarchy.remove_top().expect("gone, or in use by a lab");
    }
}

/// Where the folder exists, over all mounted hierarchies.
fn mounted_folders(below: &str) -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let cgroups = mounts.lines().filter(|line| line.contains(" - cgroup"));
    cgroups
        .filter_map(|line| Some(format!("{}/{below}", line.split(' ').nth(4)?)))
        .filter(|path| fs::exists(path).unwrap_or(false))
        .collect()
}

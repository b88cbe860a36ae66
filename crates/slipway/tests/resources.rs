//! What nodes may use, on real control groups and block devices, through the command itself.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Inventory, Lab, Place, await_that, told};

/// Keeps a processor busy until this much wall time is over, then ends.
const BUSY: &str = "end=$(($(date +%s%N) + 1000000000)); while [ $(date +%s%N) -lt $end ]; do :; done";

/// Cores that the node of this row used on average while `program` ran in it, by its group's own count.
fn share(lab: &Lab<'_>, node: &str, program: &str) -> f64 {
    let used = || lab.row(node)["usage"]["cpu_ns"].as_u64().expect("a number");
    let (before, begun) = (used(), Instant::now());
    lab.exec(node, ["sh", "-c", program]);
    let wall = begun.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "a few seconds in nanoseconds")]
    let share = (used() - before) as f64 / wall.as_nanos() as f64;
    share
}

/// What a control file says, in whichever hierarchy the node has it; `None` where it has it in none.
fn control(lab: &Lab<'_>, node: &str, files: &[&str]) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let cgroups = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let tops: Vec<_> = cgroups.map(|mount| Path::new(mount).join("slipway")).collect();
    let labs = tops.iter().flat_map(|top| fs::read_dir(top).into_iter().flatten().flatten());
    let ours = labs.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name == lab.name || name.starts_with(&format!("{}.", lab.name))
    });
    let folders: Vec<_> = ours.map(|entry| entry.path().join(node)).collect();
    let mut texts = folders.iter().flat_map(|folder| files.iter().map(|file| folder.join(file)));
    texts.find_map(|path| fs::read_to_string(path).ok()).map(|text| text.trim().to_owned())
}

/// Quota and period as the kernel has them, µs; no quota is no limit.
fn quota(lab: &Lab<'_>, node: &str) -> (Option<f64>, Option<f64>) {
    if let Some(max) = control(lab, node, &["cpu.max"]) {
        let mut words = max.split(' ').map(|word| word.parse().ok());
        return (words.next().flatten(), words.next().flatten());
    }
    let number = |file| control(lab, node, &[file]).and_then(|text| text.parse::<f64>().ok());
    (number("cpu.cfs_quota_us").filter(|&quota| quota > 0.0), number("cpu.cfs_period_us"))
}

fn seconds(program: &mut Command) -> f64 {
    let begun = Instant::now();
    let output = program.output().expect("slipway can be started");
    assert!(output.status.success(), "{program:?}: {}", told(&output));
    begun.elapsed().as_secs_f64()
}

#[test]
fn a_busy_node_gets_its_share_and_no_more() {
    let place = Place::new();
    let lab = place.up("cpu", "nodes: {half: {cpu: 50%}, free: }\n");
    // How much of it a node gets depends on what else the machine does, and the more it does, the less often a limit stops
    // anybody. The kernel counts how often that was.
    let mut times = 0.0;
    await_that("its limit stops it", || {
        let limited = share(&lab, "half", BUSY);
        assert!(limited < 0.6, "half a core, and a fifth for a busy machine: {limited}");
        let stat = control(&lab, "half", &["cpu.stat"]).expect("it has a limit");
        let counted = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
        times = counted.expect("counted");
        times > 0.0
    });
    // It had its quota each time, but for what is kept for it on another processor (`min_cfs_rq_runtime`,
    // kernel/sched/fair.c).
    let used = lab.row("half")["usage"]["cpu_ns"].as_f64().expect("a number") / 1e3;
    let due = quota(&lab, "half").0.expect("limited") * times;
    assert!(used >= due / 2.0, "{used} of {due} µs");
    assert_eq!(quota(&lab, "free").0, None);
}

#[test]
fn megahertz_are_a_share_of_this_machines() {
    let place = Place::new();
    let lab = place.up("mhz", "nodes: {slow: {cpu: 100 MHz, cpu_period: 100ms}}\n");
    let (quota, period) = quota(&lab, "slow");
    let nominal = slipway_engine::facts::megahertz();
    let (quota, period) = (quota.expect("limited"), period.expect("limited"));
    assert!((quota / period - 100.0 / nominal).abs() < 0.001, "{quota} of {period} µs, {nominal} MHz");
    let file = place.file("fast", "nodes: {fast: {cpu: 90 GHz}}\n");
    let said = place.fails(2, ["up".as_ref(), file.as_os_str()]);
    assert!(said.contains("MHz of this machine") && said.contains("help: "), "{said}");
}

#[test]
fn limits_change_while_programs_run_and_survive_a_restart() {
    let place = Place::new();
    let lab = place.up("live", "nodes: {n: {count: 2}, small: {cpu: 20%}}\n");
    let mut busy = lab.program("n1", ["sh", "-c", "echo runs; while :; do :; done"]);
    let mut busy = busy.stdout(Stdio::piped()).spawn().expect("started");
    let mut runs = [0; 5];
    std::io::Read::read_exact(busy.stdout.as_mut().expect("piped"), &mut runs).expect("it says so");
    let run = |words: &[&str]| place.run(["set", &lab.name].into_iter().chain(words.iter().copied()));
    run(&["n1", "cpu=25%", "cpu_period=20ms"]);
    assert_eq!(quota(&lab, "n1"), (Some(5_000.0), Some(20_000.0)));
    assert!(control(&lab, "n1", &["cpu.stat"]).is_some_and(|stat| stat.contains("nr_throttled")));
    let inside = control(&lab, "n1", &["cgroup.procs"]).expect("it has groups").lines().count();
    assert!(inside >= 2, "init and the program that ran already: {inside}");
    assert!(control(&lab, "n2", &["cpu.max", "cpu.cfs_quota_us"]).is_none_or(|quota| quota.starts_with("max")));

    run(&["small", "cpu=10%"]);
    place.run(["stop", "--grace", "0s", &lab.name, "small"]);
    place.run(["start", &lab.name, "small"]);
    let (limit, period) = quota(&lab, "small");
    let share = limit.expect("still") / period.expect("still");
    assert!((share - 0.1).abs() < 0.001, "not what the file says: {share}");

    run(&["n1", "cpu=none", "cpu_period=none"]);
    assert_eq!(quota(&lab, "n1").0, None);
    let said = place.fails(1, ["set", &lab.name, "n1", "cpu=90 GHz"]);
    assert!(said.contains("Hint: "), "{said}");
    assert_eq!(quota(&lab, "n1").0, None, "what is refused changes nothing");
    busy.kill().expect("it runs");
    busy.wait().expect("ours");
}

#[test]
fn memory_kills_beyond_its_limit_and_is_not_lowered_below_what_is_used() {
    let place = Place::new();
    let lab = place.up("memory", "nodes: {n: {memory: 64MiB}}\n");
    let too_much = lab.program("n", ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]).output();
    let output = too_much.expect("slipway can be started");
    assert_eq!(output.status.code(), Some(137), "{}", told(&output));

    let set = |words: &str| place.slipway(["set", &lab.name, "n", words]).output().expect("slipway can be started");
    assert!(set("memory=128MiB").status.success());
    let mut holder = lab.program("n", ["sh", "-c", "head -c 60000000 /dev/zero > /dev/shm/x; echo held; cat"]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut held = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().expect("piped"), &mut held).expect("it says so");
    let refused = set("memory=48MiB");
    assert!(!refused.status.success(), "{}", told(&refused));
    assert!(told(&refused).contains("in use now"), "{}", told(&refused));
    let limit = control(&lab, "n", &["memory.max", "memory.limit_in_bytes"]);
    assert_eq!(limit, Some((128 << 20).to_string()), "as it was");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("ours").success(), "nothing was killed");
    lab.exec("n", ["rm", "/dev/shm/x"]);
    let fits = set("memory=48MiB");
    assert!(fits.status.success(), "{}", told(&fits));
}

#[test]
fn beyond_its_soft_limit_a_node_is_pushed_back_where_the_kernel_does_so() {
    let place = Place::new();
    let lab = place.up("soft", "nodes: {n: {memory: 64MiB, memory_soft: 32MiB}}\n");
    let limit = || control(&lab, "n", &["memory.high", "memory.soft_limit_in_bytes"]);
    assert_eq!(limit(), Some((32 << 20).to_string()));
    place.run(["set", &lab.name, "n", "memory_soft=16MiB"]);
    assert_eq!(limit(), Some((16 << 20).to_string()));
    // Version 1 does so only when the machine runs short. A little beyond: version 2 slows down whoever gives nothing back.
    if let Some(before) = control(&lab, "n", &["memory.events"]) {
        let count = |events: &str, key: &str| -> u64 {
            let words = events.lines().filter_map(|line| line.split_once(' '));
            words.filter(|(word, _)| *word == key).map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
        };
        lab.exec("n", ["dd", "if=/dev/zero", "of=/dev/null", "bs=18M", "count=1"]);
        let after = control(&lab, "n", &["memory.events"]).expect("still");
        assert!(count(&after, "high") > count(&before, "high"), "{before}, then {after}");
        assert_eq!(count(&after, "oom_kill"), 0, "nothing is killed");
    }
}

#[test]
fn a_disk_of_its_own_holds_every_write_to_its_pace_and_its_size() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let text = "nodes: {n: {disk: {size: 64MiB, write: 10MB/s, read: 20MB/s}}, other: }\n";
    let lab = place.up("disk", text);
    let dd = |words: &[&str]| seconds(&mut lab.program("n", ["dd", "bs=1M"].into_iter().chain(words.iter().copied())));

    let buffered = dd(&["if=/dev/zero", "of=/scratch/a", "count=20", "conv=fsync"]);
    assert!(buffered > 1.9, "21 MB at 10 MB/s: {buffered} s");
    let direct = dd(&["if=/dev/zero", "of=/scratch/b", "count=10", "oflag=direct"]);
    assert!(direct > 0.9, "10 MB at 10 MB/s: {direct} s");
    let read = dd(&["if=/scratch/a", "of=/dev/null", "iflag=direct"]);
    assert!(read > 0.9, "21 MB at 20 MB/s: {read} s");

    place.run(["set", &lab.name, "n", "disk.write=none", "disk.read=none"]);
    let full = lab.program("n", ["dd", "if=/dev/zero", "of=/scratch/c", "bs=1M", "count=100"]).output();
    let full = told(&full.expect("slipway can be started"));
    assert!(full.contains("No space left"), "{full}");
    assert!(lab.exec("other", ["ls", "/scratch"]).is_empty(), "the node's alone");

    place.run(["stop", "--grace", "0s", &lab.name, "n"]);
    place.run(["start", &lab.name, "n"]);
    assert_eq!(lab.exec("n", ["sh", "-c", "rm /scratch/c; ls /scratch"]), "a\nb\n", "kept like the rest");
    place.run(["set", &lab.name, "n", "disk.write=5MB/s"]);
    let slower = dd(&["if=/dev/zero", "of=/scratch/a", "count=10", "conv=fsync"]);
    assert!(slower > 1.9, "10 MB at 5 MB/s: {slower} s");
    // What still waits in the page cache must not hold up the end, at whatever pace: here it would take over eight minutes.
    place.run(["set", &lab.name, "n", "disk.write=1kB/s"]);
    lab.exec("n", ["dd", "if=/dev/zero", "of=/scratch/late", "bs=100k", "count=5"]);
    let down = Instant::now();
    lab.down();
    assert!(down.elapsed() < Duration::from_mins(4), "{:?}", down.elapsed());
    assert_eq!(Inventory::of(&place), before);
    assert!(attached(&place).is_empty(), "no loop device stays: {:?}", attached(&place));
}

#[test]
fn a_crash_leaves_no_loop_device_and_no_limit_on_one() {
    let place = Place::new();
    let lab = place.up("crash", "nodes: {n: {disk: {size: 16MiB, write: 1MB/s}}}\n");
    let device = attached(&place).pop().expect("it has one");
    let limits = || {
        let file = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
        fs::read_to_string(file).unwrap_or_default()
    };
    // Version 2 has it in the node's group, which goes with the node.
    let limited = limits() + &control(&lab, "n", &["io.max"]).unwrap_or_default();
    assert!(limited.lines().any(|line| line.starts_with(&format!("{device} "))), "{device}: {limited}");
    let state = fs::read_to_string(place.path().join("state").join(&lab.name).join("state.json")).expect("a state");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let anchor = state["anchor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a number");
    let anchor = rustix::process::Pid::from_raw(anchor).expect("not zero");
    let pidfd = rustix::process::pidfd_open(anchor, rustix::process::PidfdFlags::empty()).expect("it runs");
    rustix::process::kill_process(anchor, rustix::process::Signal::KILL).expect("it runs");
    rustix::event::poll(&mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)], None).expect("ended");
    lab.down();
    assert!(attached(&place).is_empty(), "{:?}", attached(&place));
    assert!(!limits().lines().any(|line| line.starts_with(&format!("{device} "))), "{device}: {}", limits());
}

#[test]
fn limits_on_the_machines_disk_say_what_they_do_not_hold() {
    let place = Place::new();
    if slipway_sys::block::Device::of(place.path()).expect("it is there").is_none() {
        let file = place.file("shared", "nodes: {n: {disk: {write: 5MB/s}}}\n");
        let said = place.fails(1, ["up".as_ref(), file.as_os_str()]);
        assert!(said.contains("no block device") && said.contains("size"), "{said}");
        return;
    }
    let lab = place.up("shared", "nodes: {n: {disk: {write: 10MB/s}}, free: }\n");
    let direct = |node| {
        let words = ["dd", "if=/dev/zero", "of=/scratch/b", "bs=1M", "count=20", "oflag=direct"];
        seconds(&mut lab.program(node, words))
    };
    assert!(direct("n") > 1.9, "21 MB at 10 MB/s");
    let said = place.run(["set", &lab.name, "free", "disk.write=5MB/s"]);
    assert!(direct("free") > 3.9, "21 MB at 5 MB/s");
    if Path::new("/sys/fs/cgroup/blkio").exists() {
        assert!(said.contains("past the page cache") && said.contains("size"), "{said}");
        return;
    }
    assert!(!said.contains("past the page cache"), "{said}");
    let written = || -> u64 {
        let stat = control(&lab, "n", &["io.stat"]).unwrap_or_default();
        let bytes = stat.split_whitespace().filter_map(|word| word.strip_prefix("wbytes="));
        bytes.map(|bytes| bytes.parse::<u64>().expect("a number")).sum()
    };
    // The program waits for no disk; that the kernel writes back at the node's pace is what is waited for.
    let (before, begun) = (written(), Instant::now());
    lab.exec("n", ["dd", "if=/dev/zero", "of=/scratch/c", "bs=1M", "count=20"]);
    rustix::fs::sync();
    assert!(begun.elapsed().as_secs_f64() > 1.9, "21 MB at 10 MB/s: {:?}", begun.elapsed());
    assert!(written() - before >= 20 << 20, "{} of 20 MiB are counted to the node", written() - before);
}

/// Numbers of the loop devices on files of this place.
fn attached(place: &Place) -> Vec<String> {
    let folder = place.path().canonicalize().expect("it is there");
    let found = slipway_sys::block::attached(&folder).expect("sysfs is mounted");
    found.into_iter().map(|(device, _)| device.to_string()).collect()
}

//! Helper processes. No test harness: it runs threads, and a process that clones itself may have none.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slipway_sys::clone::SingleThread;
use slipway_sys::helper::{Birth, End, Helper, Newborn};
use slipway_sys::process::{status, wait_for_end};

const LONG: Duration = Duration::from_mins(1);

fn fork(work: impl FnOnce(&mut Newborn) -> io::Result<()>) -> io::Result<(Helper, String)> {
    let alone = SingleThread::check().expect("one thread");
    Helper::fork(Birth { alone, name: c"a-helper", group: None, log: None }, work)
}

fn sleep() -> io::Result<()> {
    loop {
        std::thread::sleep(LONG);
    }
}

fn one_that_is_ready_runs_until_it_is_stopped() {
    let (helper, note) = fork(|newborn| {
        newborn.keep_only(&[])?;
        newborn.ready("all is well")?;
        sleep()
    })
    .expect("it starts");
    assert_eq!(note, "all is well");
    assert_eq!(status(helper.number(), "Name").expect("it runs"), "a-helper");
    assert!(!wait_for_end(helper.as_fd(), Duration::ZERO).expect("looks"), "it runs");
    assert_eq!(helper.stop(), End::Signal(9));
    assert!(wait_for_end(helper.as_fd(), Duration::ZERO).expect("looks"), "its end is noticed");
    assert_eq!(helper.stop(), End::Collected, "once");
}

fn its_reason_is_told() {
    let error = fork(|_| Err(io::Error::other("there is no room\nHint: make some"))).expect_err("it fails");
    assert_eq!(error.to_string(), "there is no room\nHint: make some");
    let error = fork(|_| std::process::exit(7)).expect_err("it says nothing");
    assert!(error.to_string().ends_with("ended with code 7 before it was ready"), "{error}");
    let error = fork(|_| Ok(())).expect_err("it says nothing");
    assert!(error.to_string().ends_with("ended with code 0 before it was ready"), "{error}");
}

fn its_end_is_noticed() {
    let (helper, _) = fork(|newborn| newborn.ready("")).expect("it starts");
    assert!(wait_for_end(helper.as_fd(), LONG).expect("waits"));
    assert_eq!(helper.stop(), End::Code(0));
}

fn it_ends_with_its_owner_and_with_its_maker() {
    let (helper, _) = fork(|newborn| newborn.ready("").and_then(|()| sleep())).expect("it starts");
    let number = helper.number();
    drop(helper);
    assert!(status(number, "Name").is_err(), "it was ended and collected");
    // A maker that ends without a word.
    let (maker, grandchild) = fork(|newborn| {
        let (helper, _) = fork(|newborn| newborn.ready("").and_then(|()| sleep()))?;
        newborn.ready(&helper.number().to_string())?;
        std::mem::forget(helper);
        sleep()
    })
    .expect("it starts");
    let grandchild = rustix::process::Pid::from_raw(grandchild.parse().expect("a number")).expect("a number");
    let grandchild = Helper::adopt(grandchild).expect("it runs");
    assert_eq!(maker.stop(), End::Signal(9));
    assert!(wait_for_end(grandchild.as_fd(), LONG).expect("waits"), "it ends with its maker");
}

fn programs_are_helpers_too() {
    let run = |script: &str, log: &Path| Helper::execute(Command::new("sh").args(["-c", script]), log);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let (helper, note) = run("echo ready by a note; exec sleep 60", &log).expect("it starts");
    assert_eq!(note, "by a note");
    assert_eq!(helper.stop(), End::Signal(9));
    let error = run("exit 3", &log).expect_err("it says nothing");
    assert!(error.to_string().ends_with("ended with code 3 before it was ready"), "{error}");
    std::fs::write(&log, "one\nno database\n").expect("a log");
    assert_eq!(run("exit 3", &log).expect_err("it says nothing").to_string(), "no database");
    assert!(run("echo hello; sleep 60", Path::new("/nowhere")).is_err());
}

fn main() {
    for (name, test) in [
        ("one_that_is_ready_runs_until_it_is_stopped", one_that_is_ready_runs_until_it_is_stopped as fn()),
        ("its_reason_is_told", its_reason_is_told),
        ("its_end_is_noticed", its_end_is_noticed),
        ("it_ends_with_its_owner_and_with_its_maker", it_ends_with_its_owner_and_with_its_maker),
        ("programs_are_helpers_too", programs_are_helpers_too),
    ] {
        if std::env::args().nth(1).is_none_or(|filter| name.contains(&filter)) {
            test();
            println!("{name}: ok");
        }
    }
}

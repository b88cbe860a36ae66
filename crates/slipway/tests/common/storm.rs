//! Faults at random moments, drawn from a seed.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};

/// Causes a fault, and returns whether it counts as a kill.
type Cause<'a> = Box<dyn Fn(&mut ChaCha8Rng, &Child) -> bool + 'a>;

/// A kind of fault.
pub struct Blow<'a> {
    name: &'static str,
    /// Its share of all blows.
    weight: usize,
    cause: Cause<'a>,
}

impl<'a> Blow<'a> {
    pub fn new(name: &'static str, weight: usize, cause: impl Fn(&mut ChaCha8Rng, &Child) -> bool + 'a) -> Self {
        Self { name, weight, cause: Box::new(cause) }
    }
}

/// Deals blows to a coordinator that runs, and to its successors, until so many have killed. `again` starts a successor,
/// and `left` counts the points without a result. The last coordinator is killed.
pub fn rage(
    kills: u32,
    seed: u64,
    mut run: Child,
    again: &dyn Fn() -> Child,
    left: &dyn Fn() -> u64,
    blows: &[Blow<'_>],
) {
    eprintln!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let lots: Vec<usize> =
        blows.iter().enumerate().flat_map(|(kind, blow)| std::iter::repeat_n(kind, blow.weight)).collect();
    let mut dealt = vec![0; blows.len()];
    let mut killed = 0;
    while killed < kills {
        // The moment of a fault is what is drawn.
        pause(&mut random, 400);
        if let Some(status) = run.try_wait().expect("it can be asked") {
            assert!(left() > 0, "more points are needed: {status}");
            run = again();
            continue;
        }
        let kind = lots[random.random_range(0..lots.len())];
        let counts = (blows[kind].cause)(&mut random, &run);
        killed += u32::from(counts);
        dealt[kind] += 1;
    }
    for (blow, dealt) in blows.iter().zip(dealt) {
        eprintln!("{dealt} {}", blow.name);
    }
    let _ = run.kill();
    run.wait().expect("it can be awaited");
}

/// Waits for less than so many milliseconds.
pub fn pause(random: &mut ChaCha8Rng, most: u64) {
    sleep(Duration::from_millis(random.random_range(0..most)));
}

/// Kills a process. Returns whether it was there.
pub fn kill(victim: Pid) -> bool {
    kill_process(victim, Signal::KILL).is_ok()
}

/// Kills one of these processes. Returns whether it was there.
pub fn kill_any(random: &mut ChaCha8Rng, victims: &[Process]) -> bool {
    !victims.is_empty() && kill(victims[random.random_range(0..victims.len())].pid)
}

/// A process that descends from another one.
pub struct Process {
    pub pid: Pid,
    parent: i32,
    pub name: String,
}

/// All descendants of a process.
pub fn descendants(of: Pid) -> Vec<Process> {
    let all: Vec<(i32, Process)> = fs::read_dir("/proc")
        .expect("/proc can be read")
        .flatten()
        .filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, tail) = stat.rsplit_once(')')?;
            let parent = tail.split_whitespace().nth(1)?.parse().ok()?;
            Some((parent, Process { pid, parent, name: head.split_once('(')?.1.to_owned() }))
        })
        .collect();
    let mut found = vec![of.as_raw_nonzero().get()];
    let mut descendants = Vec::new();
    let mut rest = all;
    loop {
        let (near, far): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(parent, _)| found.contains(parent));
        if near.is_empty() {
            return descendants;
        }
        found = near.iter().map(|(_, process)| process.pid.as_raw_nonzero().get()).collect();
        descendants.extend(near.into_iter().map(|(_, process)| process));
        rest = far;
    }
}

/// The workers. A child of a worker has the worker's name too, until it executes the program.
pub fn agents(run: &Child) -> Vec<Pid> {
    let all: Vec<Process> =
        descendants(Pid::from_child(run)).into_iter().filter(|process| process.name == "agent").collect();
    let pids: Vec<i32> = all.iter().map(|process| process.pid.as_raw_nonzero().get()).collect();
    all.into_iter().filter(|process| !pids.contains(&process.parent)).map(|process| process.pid).collect()
}

//! The helper of `srun(1)`.

use std::fs;

use rustix::process::{Pid, Signal};
use slipway_sys::process::{ProcessId, status};

/// Names of `srun` and of its helper.
const SRUN: &str = "srun";

/// Ends the helper of an `srun` whose step is to outlive it. The helper has Slurm kill the step at once where its `srun` is killed
/// (`_shepherd_spawn`, `src/srun/libsrun/srun_job.c`), and a script's end kills both in any order. Without it, Slurm asks the
/// step to end, and waits. Another command than `srun` has none.
pub(crate) fn dismiss(srun: u32) {
    let is_srun = |pid: i32| status(pid, "Name").is_ok_and(|name| name == SRUN);
    let Some(srun) = i32::try_from(srun).ok().filter(|&pid| is_srun(pid)) else { return };
    for helper in children(srun).into_iter().filter_map(Pid::from_raw) {
        let Ok(process) = ProcessId::of(helper) else { continue };
        // A number that another process has by now has another parent.
        let is_its = status(process.pid, "PPid").is_ok_and(|parent| parent == srun.to_string());
        if is_its && is_srun(process.pid) {
            // One that has ended already is as good.
            let _ = process.signal(Signal::KILL);
        }
    }
}

/// The children of a process (`proc_tid_children(5)`).
fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

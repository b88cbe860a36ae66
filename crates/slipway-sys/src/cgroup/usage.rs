//! Resources that a group has used so far.

use std::fs;

use serde::{Deserialize, Serialize};

use super::control::Folder;

/// A group's use of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time, ns. From the group's own count. Where there is none (version 1 alone), the sum over its
    /// processes and the children they have waited for, in the kernel's 10 ms ticks.
    pub cpu_ns: u64,
    /// Bytes. From the group's own count where it has a memory limit; otherwise the sum of its processes' resident sets,
    /// in which a page that two share counts twice.
    pub memory: u64,
    /// Processes (threads, where the group limits those).
    pub pids: u64,
}

pub(super) fn read<'a>(folders: &(impl Iterator<Item = &'a Folder> + Clone), pids: &[i32]) -> Usage {
    let number = |file: &str| folders.clone().find_map(|folder| folder.try_read(file).ok()?.trim().parse::<u64>().ok());
    let cpu_ns = folders
        .clone()
        .find_map(|folder| usage_usec(&folder.try_read("cpu.stat").ok()?))
        .map(|us| us * 1_000)
        .or_else(|| number("cpuacct.usage"));
    Usage {
        cpu_ns: cpu_ns.unwrap_or_else(|| pids.iter().filter_map(|&pid| cpu_of(pid)).sum()),
        memory: number("memory.current")
            .or_else(|| number("memory.usage_in_bytes"))
            .unwrap_or_else(|| pids.iter().filter_map(|&pid| memory_of(pid)).sum()),
        pids: number("pids.current").unwrap_or(pids.len() as u64),
    }
}

/// Version 1's `cpu.stat` has no such line.
fn usage_usec(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
}

/// `utime + stime + cutime + cstime` of `proc_pid_stat(5)`, fields 14 to 17, counted after the command name.
fn cpu_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum();
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

fn memory_of(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

//! Nodes of a job on this machine.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use slipway_lab::id::NodeId;
use slipway_sys::cgroup::{CgroupError, Group};

use super::JobError;
use crate::exec::Entry;
use crate::guard::Guard;
use crate::lab::Running;

/// A node of the job on this machine.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) entry: Entry,
    /// The job's own group in the node.
    pub(super) group: Option<Group>,
    /// The node's PID namespace, by inode.
    pub(super) namespace: u64,
}

impl Local {
    /// Prepares a node for a job of this name.
    pub(super) fn open(lab: &Running, node: NodeId, job: &str) -> Result<Self, JobError> {
        let entry = Entry::to(lab, node)?;
        let group = entry.group.as_ref().map(|group| group.create_within(job)).transpose()?;
        let namespace = pid_namespace(entry.init.pid).map_err(JobError::io(format!("look at node {}", entry.node)))?;
        Ok(Self { entry, group, namespace })
    }

    /// Bytes that devices of the node's network namespace have sent, loopback left out (`proc_pid_net(5)`, `dev`).
    pub(super) fn sent(&self) -> u64 {
        let path = PathBuf::from(format!("/proc/{}/net/dev", self.entry.init.pid));
        fs::read_to_string(path).map_or(0, |table| sum_sent(&table))
    }
}

/// The job's nodes on this machine, emptied however the job ends.
#[derive(Debug, Default)]
pub(super) struct Locals {
    pub(super) all: Vec<Local>,
    guard: Option<Guard>,
}

impl Locals {
    /// Posts a guard that empties them where this process is killed, and does `also`.
    pub(super) fn post(&mut self, also: impl FnOnce()) -> Result<(), JobError> {
        let guard = Guard::post(|| {
            // Nobody is there to be told. `down` finds the remains.
            let _ = self.end();
            also();
        });
        self.guard = Some(guard.map_err(JobError::io("post the job's guard"))?);
        Ok(())
    }

    /// Ends all programs in the job's groups.
    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        kill(&self.all)
    }

    /// Ends all programs in the job's groups, and removes these.
    pub(super) fn end(&mut self) -> Result<(), CgroupError> {
        let groups: Vec<Group> = self.all.iter_mut().filter_map(|place| place.group.take()).collect();
        let results: Vec<_> = groups.into_iter().map(|group| group.kill().and_then(|()| group.remove())).collect();
        self.guard = None;
        results.into_iter().collect()
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        // Reached with groups left only by an error, which is what gets reported.
        let _ = self.end();
    }
}

/// Ends all programs in the job's groups of these nodes.
pub(super) fn kill(all: &[Local]) -> Result<(), CgroupError> {
    let results: Vec<_> = all.iter().filter_map(|place| place.group.as_ref()).map(Group::kill).collect();
    results.into_iter().collect()
}

/// The PID namespace of a process, by inode.
pub(super) fn pid_namespace(pid: i32) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/ns/pid"))?.ino())
}

fn sum_sent(table: &str) -> u64 {
    let devices =
        table.lines().skip(2).filter_map(|line| line.trim().split_once(':')).filter(|(name, _)| *name != "lo");
    devices.filter_map(|(_, counts)| counts.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_the_network() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                     lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 42 1 0 0 0 0 0 0\n  eth1:7 1 0 0 0 0 0 0 58 1 0 0 0 0 0 0\n";
        assert_eq!(sum_sent(table), 100);
    }
}

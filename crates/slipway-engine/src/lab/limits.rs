//! What nodes may use, while they run: changed, and read back.

use serde::Serialize;
use slipway_lab::change::{Change, Keys as _, NodeChange};
use slipway_lab::condition::Disk;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Limits;
use slipway_sys::block::Statistics;
use slipway_sys::cgroup::{Group, Hierarchy, InForce, Throttled};

use super::{LabError, Running};
use crate::cgroup::{Plan, changed};
use crate::disk::{self, NodeDisk};

/// What a node may use, and what it has felt of that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resources {
    /// Asked for, by the lab's file and by changes since.
    pub asked: Limits,
    /// As the kernel has it. All of it `None` where the node has no control group.
    pub in_force: InForce,
    /// How much the processor limit was felt; `None` where there is none.
    pub throttled: Option<Throttled>,
    /// Programs that were killed for want of memory; `None` where it has no limit.
    pub memory_kills: Option<u64>,
    /// What was read from and written to the disk; `None` where that is not counted for this node.
    pub disk: Option<Statistics>,
    /// What of the limits does not hold as one might think.
    pub notes: Vec<String>,
}

impl Running {
    /// What a node may use now.
    ///
    /// # Errors
    /// When the state folder cannot be read.
    pub fn limits(&self, node: NodeId) -> Result<Limits, LabError> {
        Ok(self.all_limits()?[node].clone())
    }

    /// The limits of each node now.
    ///
    /// # Errors
    /// As [`limits`](Self::limits).
    pub fn all_limits(&self) -> Result<List<NodeId, Limits>, LabError> {
        let changed = self.dir.read_limits()?;
        Ok(changed.unwrap_or_else(|| self.lab.nodes.iter().map(|node| node.limits.clone()).collect()))
    }

    /// Changes what nodes may use. Their programs go on meanwhile, nodes that are stopped start with it. What does not hold
    /// as one might think is told.
    ///
    /// # Errors
    /// When the outcome is impossible for one of the nodes, takes a controller or device that is not there, or less memory
    /// than a node uses: then all is as before.
    pub fn set_node(&self, nodes: &[NodeId], change: &NodeChange) -> Result<Vec<String>, LabError> {
        let hierarchy = self.cgroups.as_ref().ok_or_else(|| self.no_group(nodes))?;
        let _turn = self.dir.lock_changes()?;
        let before = self.all_limits()?;
        let mut after = before.clone();
        for &node in nodes {
            after[node] = change.checked(&before[node]).map_err(|problem| {
                LabError::Refused(format!("change what node `{}` may use: {problem}", self.lab.nodes[node].name))
            })?;
        }
        let steps: Vec<Step> = nodes
            .iter()
            .map(|&node| self.step(hierarchy, node, &before[node], &after[node]))
            .collect::<Result<_, _>>()?;
        let mut said = Vec::new();
        for (done, step) in steps.iter().enumerate() {
            match self.take(hierarchy, step) {
                Ok(note) => said.extend(note),
                Err(error) => {
                    // What the kernel took before it takes back.
                    for step in steps[..=done].iter().rev() {
                        let _ = self.take(hierarchy, &step.back());
                    }
                    return Err(error);
                }
            }
        }
        self.dir.write_limits(&after)?;
        said.extend(nodes.iter().flat_map(|&node| self.notes(node, &after[node])));
        Ok(said)
    }

    /// What a node may use and has felt of it.
    ///
    /// # Errors
    /// When the kernel does not show it.
    pub fn resources(&self, node: NodeId) -> Result<Resources, LabError> {
        let asked = self.limits(node)?;
        let disk = self.disk(node, &asked)?;
        let group = self.group(node)?;
        let device = disk.map(|disk| disk.device);
        let mut in_force = group.as_ref().map(|group| group.in_force(device)).unwrap_or_default();
        if let (Some(hierarchy), Some(disk)) = (&self.cgroups, disk.filter(|disk| disk.own))
            && let Some(limits) = hierarchy.device_limits(disk.device)?
        {
            in_force.disk = Some(limits);
        }
        in_force.disk = in_force.disk.filter(|limits| !limits.is_none());
        let statistics = disk.and_then(|disk| match &group {
            Some(group) if !disk.own => group.disk_use(disk.device),
            _ => disk.device.statistics(),
        });
        Ok(Resources {
            in_force,
            throttled: group.as_ref().filter(|_| asked.cpu.is_some()).and_then(Group::throttled),
            memory_kills: group.as_ref().filter(|_| asked.memory.is_some()).and_then(Group::memory_kills),
            disk: statistics,
            notes: self.notes(node, &asked),
            asked,
        })
    }

    /// What of the lab's limits does not hold as one might think.
    #[must_use]
    pub fn limit_notes(&self) -> Vec<String> {
        self.lab.nodes.enumerate().flat_map(|(index, node)| self.notes(index, &node.limits)).collect()
    }

    fn notes(&self, node: NodeId, limits: &Limits) -> Vec<String> {
        let Disk { size, write, write_iops, .. } = limits.disk;
        let name = &self.lab.nodes[node].name;
        let legacy = self.cgroups.as_ref().filter(|cgroups| cgroups.limits_devices());
        let (writes, own) = (write.is_some() || write_iops.is_some(), size.is_some());
        let mut said = Vec::new();
        if let Some(legacy) = legacy {
            if writes && !own {
                said.push(format!(
                    "{name}: only writes past the page cache (O_DIRECT, fsync) are held to the disk limits, since control groups version 1 do not count what the kernel writes back later; give `disk` a `size` to have all held"
                ));
            }
            if own && limits.disk != (Disk { size, ..Disk::default() }) && !legacy.is_held_by_device_limits() {
                said.push(format!(
                    "{name}: reads and direct writes are not held to the disk limits for programs started from here, which is in a control group of its own; first: echo $$ > /sys/fs/cgroup/blkio/cgroup.procs"
                ));
            }
        }
        let device = || self.dir.read_disks().ok()?.get(node).copied().flatten();
        if writes && own && device().is_some_and(|disk| !disk.device.limits_waiting()) {
            said.push(format!(
                "{name}: this kernel (before 6.2) does not limit what waits in the page cache, so programs feel the disk's pace only at fsync, or once memory fills"
            ));
        }
        said
    }

    fn no_group(&self, nodes: &[NodeId]) -> LabError {
        LabError::NoGroup(nodes.first().map(|&node| self.lab.nodes[node].name.clone()).unwrap_or_default())
    }

    /// What carries the node's `/scratch`, where these limits have to do with that.
    fn disk(&self, node: NodeId, limits: &Limits) -> Result<Option<NodeDisk>, LabError> {
        if self.lab.nodes[node].limits.disk.size.is_some() {
            return Ok(self.dir.read_disks()?.get(node).copied().flatten());
        }
        if limits.disk == Disk::default() {
            return Ok(None);
        }
        Ok(Some(disk::shared(&self.lab.nodes[node], &self.dir.scratch())?))
    }

    fn step(&self, hierarchy: &Hierarchy, node: NodeId, before: &Limits, after: &Limits) -> Result<Step, LabError> {
        // One device for both: what the old limits were on has to lose them.
        let disk = match self.disk(node, after)? {
            Some(disk) => Some(disk),
            None => self.disk(node, before)?,
        };
        let plan = |limits| Plan::new(limits, disk, hierarchy);
        Ok(Step { node, before: plan(before)?, after: plan(after)? })
    }

    fn take(&self, hierarchy: &Hierarchy, step: &Step) -> Result<Option<String>, LabError> {
        let name = &self.lab.nodes[step.node].name;
        let Some(group) = self.group(step.node)? else { return Err(self.no_group(&[step.node])) };
        let limits = &step.after.group;
        let late = (limits.memory.is_some() || limits.memory_soft.is_some()) && !group.counts_memory();
        let which = changed(&step.before.group, limits);
        hierarchy.set_limits(self.dir.shared_name(), name, limits, &which)?;
        step.after.limit_device(hierarchy)?;
        Ok(late.then(|| {
            format!("{name}: memory in use so far is not counted to the limit that it has now; give it one in the lab file to have all counted")
        }))
    }
}

/// A node's way from one set of limits to another.
struct Step {
    node: NodeId,
    before: Plan,
    after: Plan,
}

impl Step {
    fn back(&self) -> Self {
        Self { node: self.node, before: self.after.clone(), after: self.before.clone() }
    }
}

/// The change that takes back `change` of what held `before`: for the keys that it names, what they were.
#[must_use]
pub fn undo(change: &NodeChange, before: &Limits) -> NodeChange {
    let mut back = Change { set: before.clone(), clear: Vec::new() };
    let named = change.set.words().into_iter().map(|(key, _)| key.to_owned()).chain(change.clear.iter().cloned());
    let named: Vec<String> = named.collect();
    for &key in Limits::NAMES {
        if !named.iter().any(|one| one == key) {
            back.set.clear(key);
        } else if !before.words().iter().any(|(had, _)| *had == key) {
            back.clear.push(key.to_owned());
        }
    }
    // No change names it: see `Keys`.
    back.set.cpuset = None;
    back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undone_is_as_before() {
        let before: NodeChange = "cpu=50% memory=1GiB disk.write=5MB/s".parse().expect("words");
        let before = before.apply(&Limits { cpuset: Some("0".to_owned()), ..Limits::default() });
        for words in ["cpu=10%", "memory=none cpu_period=20ms", "disk.read=1MB/s disk.write=none", "pids=7"] {
            let change: NodeChange = words.parse().expect("words");
            let after = change.apply(&before);
            assert_ne!(after, before, "{words}");
            assert_eq!(undo(&change, &before).apply(&after), before, "{words}");
        }
    }
}

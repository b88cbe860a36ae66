//! A lab's control groups: the record of who is in a node, and its limits.

use std::os::fd::RawFd;

use slipway_lab::condition::Cpu;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::{self, Lab};
use slipway_sys::cgroup::{CgroupError, Controller, DiskLimits, Group, Hierarchy, Limits};
use slipway_sys::ns::in_first_user_namespace;

use crate::disk::{NodeDisk, limit_own_device};
use crate::hierarchy::of_new;
use crate::state::LabDir;

/// A node's limits, in the kernel's terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Limits of its group.
    pub(crate) group: Limits,
    /// Of the block device that is its own.
    pub(crate) device: Option<DiskLimits>,
}

impl Plan {
    /// `disk` is what carries the node's `/scratch`, where that has to be known.
    pub(crate) fn new(
        asked: &model::Limits,
        disk: Option<NodeDisk>,
        hierarchy: &Hierarchy,
    ) -> Result<Self, CgroupError> {
        let limits = disk.map(|disk| DiskLimits {
            device: disk.device,
            read: asked.disk.read.map(|rate| rate.0),
            write: asked.disk.write.map(|rate| rate.0),
            read_iops: asked.disk.read_iops,
            write_iops: asked.disk.write_iops,
        });
        let device = limits.filter(|_| disk.is_some_and(|disk| disk.own));
        // Not twice.
        let disk = limits.filter(|_| device.is_none() || !hierarchy.limits_devices());
        let group = Limits { disk, ..without_disk(asked)? };
        Ok(Self { group, device })
    }

    /// Holds the device to its limits, where it is the node's own.
    pub(crate) fn limit_device(&self, hierarchy: &Hierarchy) -> Result<(), CgroupError> {
        self.device.map_or(Ok(()), |limits| limit_own_device(&limits, hierarchy))
    }
}

/// The limits asked for a node's control group, except those of its disk.
pub(crate) fn without_disk(asked: &model::Limits) -> Result<Limits, CgroupError> {
    Ok(Limits {
        cpu: asked.cpu.map(cores).transpose()?,
        cpu_period: asked.cpu_period.map(slipway_document::units::Seconds::duration),
        cpuset: asked.cpuset.clone(),
        memory: asked.memory.map(|bytes| bytes.0),
        memory_soft: asked.memory_soft.map(|bytes| bytes.0),
        swap: asked.swap.map(|bytes| bytes.0),
        pids: asked.pids,
        disk: None,
    })
}

/// A processor's speed as a share of one core.
fn cores(cpu: Cpu) -> Result<f64, CgroupError> {
    match cpu {
        Cpu::Cores(cores) => Ok(cores.0),
        Cpu::Megahertz(megahertz) => {
            let nominal = crate::facts::megahertz();
            if megahertz > nominal {
                let reason = format!(
                    "{megahertz} MHz is more than the {nominal} MHz of this machine's processors. Hint: a node of several cores is written `cpu: 2 cores`"
                );
                return Err(CgroupError::BadLimit { limit: "cpu", reason });
            }
            Ok(megahertz / nominal)
        }
    }
}

/// The control groups of a lab, as its anchor holds them.
#[derive(Debug)]
pub(crate) struct LabGroups {
    hierarchy: Hierarchy,
    lab: Group,
    shared_name: String,
    /// The first limits of each node.
    plans: List<NodeId, Plan>,
}

impl LabGroups {
    /// Makes the lab's group, and limits block devices that are its nodes' own. `None` where no group may be made and
    /// no node asks for a limit. In a user namespace without delegation a lab still runs, and loses only freezing and
    /// the figures of `ps`. `disks` is what carries each node's `/scratch`, where that has to be known.
    pub(crate) fn make(
        lab: &Lab,
        dir: &LabDir,
        disks: &List<NodeId, Option<NodeDisk>>,
    ) -> Result<Option<Self>, CgroupError> {
        let make = || {
            let hierarchy = of_new(lab, dir)?;
            let plans: List<NodeId, Plan> = lab
                .nodes
                .iter()
                .zip(disks)
                .map(|(node, disk)| Plan::new(&node.limits, *disk, &hierarchy))
                .collect::<Result<_, _>>()?;
            let group = hierarchy.create_lab(dir.shared_name(), plans.iter().map(|plan| &plan.group))?;
            plans.iter().try_for_each(|plan| plan.limit_device(&hierarchy))?;
            Ok(Self { hierarchy, lab: group, shared_name: dir.shared_name().to_owned(), plans })
        };
        match make() {
            Ok(groups) => Ok(Some(groups)),
            Err(CgroupError::NoHierarchy | CgroupError::NoFreezer | CgroupError::Io { .. })
                if lab.nodes.iter().all(|node| node.limits == model::Limits::default())
                    && !in_first_user_namespace().unwrap_or(true) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A group for a process of the lab itself, in which nothing is limited.
    pub(crate) fn of_process(&self, name: &str) -> Result<Group, CgroupError> {
        self.lab.create_within(name)
    }

    /// The descriptors that a copy of this needs to make nodes' groups.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.lab.descriptors()
    }

    /// The group of a node: as it is, whatever has been changed in it since; made with the limits of the lab's file where
    /// there is none yet.
    pub(crate) fn node(&self, node: NodeId, name: &str) -> Result<Group, CgroupError> {
        if !self.lab.has_node(name)? {
            return self.lab.create_node(name, &self.plans[node].group);
        }
        let gone = || CgroupError::BadName(name.to_owned());
        self.hierarchy.open_node(&self.shared_name, name)?.ok_or_else(gone)
    }
}

/// The controllers that have to do with a change from one set of limits to another.
pub(crate) fn changed(before: &Limits, after: &Limits) -> std::collections::BTreeSet<Controller> {
    let memory = |limits: &Limits| (limits.memory, limits.memory_soft, limits.swap);
    [
        (Controller::Cpu, (before.cpu, before.cpu_period) != (after.cpu, after.cpu_period)),
        (Controller::Cpuset, before.cpuset != after.cpuset),
        (Controller::Memory, memory(before) != memory(after)),
        (Controller::Pids, before.pids != after.pids),
        (Controller::Io, before.disk != after.disk),
    ]
    .into_iter()
    .filter_map(|(controller, changed)| changed.then_some(controller))
    .collect()
}

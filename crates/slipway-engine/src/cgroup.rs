//! A lab's control groups: the record of who is in a node, and its limits.

use slipway_lab::condition::Cpu;
use slipway_lab::model::{Lab, Node};
use slipway_sys::cgroup::{CgroupError, Group, Hierarchy, Limits};
use slipway_sys::ns::in_first_user_namespace;

use crate::state::LabDir;

/// What a node's limits are to the kernel.
pub(crate) fn limits(node: &Node) -> Limits {
    Limits {
        cpu: node.limits.cpu.map(cores),
        cpuset: node.limits.cpuset.clone(),
        memory: node.limits.memory.map(|bytes| bytes.0),
        pids: node.limits.pids,
        ..Limits::default()
    }
}

/// A processor's speed as a share of one core.
fn cores(cpu: Cpu) -> f64 {
    match cpu {
        Cpu::Cores(cores) => cores.0,
        Cpu::Megahertz(megahertz) => megahertz / crate::facts::megahertz(),
    }
}

/// Makes the lab's group. `None` where none may be made and no node asks for a limit: in a user namespace without
/// delegation a lab still runs, and only freezing and the figures of `ps` are lost.
pub(crate) fn make_group(lab: &Lab, dir: &LabDir) -> Result<Option<Group>, CgroupError> {
    let limits: Vec<Limits> = lab.nodes.iter().map(limits).collect();
    let made = Hierarchy::detect().and_then(|cgroups| cgroups.create_lab(dir.shared_name(), &limits));
    match made {
        Ok(group) => Ok(Some(group)),
        Err(CgroupError::NoHierarchy | CgroupError::NoFreezer | CgroupError::Io { .. })
            if limits.iter().all(|limits| *limits == Limits::default())
                && !in_first_user_namespace().unwrap_or(true) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

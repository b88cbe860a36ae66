//! The seam of bypasses: ways past a network that data of its nodes' programs may take.
//!
//! A network is a driver and its bypasses (`docs/adr/0039-driver-and-bypasses.md`). The rest of the engine knows a bypass by
//! three things alone:
//!
//! - [`Means`] or [`Lacks`]: whether this machine can run it;
//! - [`Needs`]: the calls that a supervisor answers in a node, environment, files;
//! - [`Bypass`]: its part in the life of the lab, from its helper processes to their end.
//!
//! [`bypasses`](crate::bypasses) lists the bypasses that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::wait::WaitStatus;
use rustix::event::PollFd;
use serde::{Deserialize, Serialize};
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::model::{Lab, Mount};
use slipway_lab::policy::Rule;
use slipway_sys::cgroup::{CgroupError, Group};
use slipway_sys::clone::SingleThread;
use slipway_sys::seccomp::Trap;

/// How this machine runs a bypass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Means {
    /// In words, e.g. `a fast path for TCP`.
    pub(crate) mechanism: String,
    /// Notes to read before you trust a measurement.
    pub(crate) notes: Vec<String>,
}

/// A bypass that this machine cannot run: what is missing, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// The missing parts of this machine.
    pub(crate) missing: String,
    /// The next step.
    pub(crate) hint: String,
}

/// The needs of bypasses in a node; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Calls of the node's programs that a supervisor answers.
    pub(crate) calls: Option<Calls>,
    /// Environment of the node's programs. The lab file's goes over it.
    pub(crate) env: BTreeMap<String, String>,
    /// Files and folders of this machine that the node sees from its start on.
    pub(crate) mounts: Vec<Mount>,
    /// Folders of this machine that lie over folders of the node's `/sys`.
    pub(crate) laid_over: Vec<LaidOver>,
    /// Device files of the node, in `/dev`, that swallow what is written as `/dev/null` does.
    pub(crate) devices: Vec<PathBuf>,
}

/// A folder whose files a node sees in another folder, before those there. Nodes cannot write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaidOver {
    /// The folder on this machine.
    pub(crate) source: PathBuf,
    /// The folder in the node.
    pub(crate) target: PathBuf,
    /// Folders in it, by their paths from there, that hide those of the same name: a node sees nothing else in them.
    pub(crate) hiding: Vec<PathBuf>,
}

/// Calls of programs that a supervisor answers, by a seccomp filter beside the profile of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Of several that fit a call, the first decides.
    pub(crate) traps: Vec<Trap>,
    /// Whether programs may use `io_uring`, whose calls no filter sees.
    pub(crate) io_uring: bool,
}

impl Needs {
    /// Joins the needs of two bypasses. Their traps become one filter with one listener: the kernel allows a tree of programs
    /// no second one (`seccomp(2)`, `EBUSY`). `io_uring` takes the permission of both.
    pub(crate) fn and(mut self, mut other: Self) -> Self {
        self.calls = match (self.calls, other.calls) {
            (Some(mut calls), Some(more)) => {
                calls.traps.extend(more.traps);
                calls.io_uring &= more.io_uring;
                Some(calls)
            }
            (one, other) => one.or(other),
        };
        self.env.append(&mut other.env);
        self.mounts.append(&mut other.mounts);
        self.laid_over.append(&mut other.laid_over);
        self.devices.append(&mut other.devices);
        self
    }
}

/// Makes a control group by a name; `None` where there are none.
pub(crate) type MakeGroup<'a> = &'a dyn Fn(&str) -> Result<Option<Group>, CgroupError>;

/// A bypass of a running lab, as the lab's anchor holds it.
///
/// Its helper processes begin with it ([`slipway_sys::helper`]), before the first node. A freeze comes as conditions: a node
/// that stands still answers nothing.
pub(crate) trait Bypass: Debug {
    /// Descriptors to wait for, and the events to wait for there.
    fn waits_for(&self) -> Vec<PollFd<'_>>;

    /// Longest time to wait.
    fn patience(&self) -> Option<Duration>;

    /// Acts on the descriptors of [`waits_for`](Self::waits_for) that something happened at, in the same order, and does other
    /// work that is due. True where helpers came or went.
    fn tend(&mut self, near: &Near<'_>, happened: &[bool]) -> bool;

    /// Notes that a child of the anchor ended. True where it was a helper of this bypass.
    fn helper_ended(&mut self, lab: &Lab, status: WaitStatus) -> bool;

    /// These nodes are born, for the first time or anew.
    fn born(&mut self, nodes: &[NodeId]);

    /// These nodes, whose programs are stopped, will end and their peers must not hear of it.
    fn silence(&mut self, near: &Near<'_>, nodes: &[NodeId]);

    /// These nodes have ended.
    fn died(&mut self, nodes: &[NodeId]);

    /// This node, which does not run, has come from another host. The lab of `near` has it on its new host already.
    ///
    /// # Errors
    /// When a helper that the host needs cannot be made.
    fn relocated(&mut self, near: &Near<'_>, node: NodeId, from: HostId) -> Result<(), BypassError>;

    /// Links of these nodes, and of no others, are altered from now on: nothing of theirs may pass by as if they were not. Gives
    /// how many connections were ended.
    ///
    /// # Errors
    /// When some may not have been ended.
    fn set_conditions(&mut self, near: &Near<'_>, altered: &Altered) -> Result<u64, BypassError>;

    /// Puts other rules in the place of those that there were. Gives how many connections were ended, because they may not be
    /// any more, or not as they are.
    ///
    /// # Errors
    /// When some may not have been ended.
    fn set_policy(&mut self, near: &Near<'_>, rules: &[Rule]) -> Result<u64, BypassError>;

    /// Ends all helpers, and waits for their ends, so that whoever waits for the anchor finds nothing left.
    fn end(&mut self);
}

/// The surroundings of bypasses in an anchor.
pub(crate) struct Near<'a> {
    pub(crate) alone: SingleThread,
    pub(crate) lab: &'a Lab,
    /// The lab's lock, which goes when the last of its processes does.
    pub(crate) lock: BorrowedFd<'a>,
    /// A host's network namespace.
    pub(crate) host_net: &'a dyn Fn(HostId) -> BorrowedFd<'a>,
    /// A node's; `None` for one that has never been started.
    pub(crate) net: &'a dyn Fn(NodeId) -> Option<BorrowedFd<'a>>,
    /// The first process of a node; `None` for one that does not run.
    pub(crate) init: &'a dyn Fn(NodeId) -> Option<i32>,
    /// Makes a control group for a helper.
    pub(crate) group: MakeGroup<'a>,
    /// Stops a node's programs for a moment.
    pub(crate) halt: &'a dyn Fn(NodeId) -> Result<(), CgroupError>,
}

/// Nodes whose links are not as they would be by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Altered {
    /// All of these nodes, and those that will be soon.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Those whose links have a delay, a loss, a rate or the like, or will soon.
    pub(crate) shaped: BTreeSet<NodeId>,
    /// Those that do not hear others now.
    pub(crate) parted: Parted,
}

/// Nodes that do not hear one another on networks with RDMA: cut off, frozen, or in different groups of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    /// Nodes that hear nobody.
    pub cut: BTreeSet<NodeId>,
    /// The groups of nodes, one for each of the partitions that there can be; 0 is none.
    pub groups: BTreeMap<NodeId, Vec<u16>>,
}

impl Parted {
    /// Whether all nodes hear one another.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cut.is_empty() && self.groups.is_empty()
    }

    /// Whether two nodes do not hear one another. A node always hears itself.
    #[must_use]
    pub fn parts(&self, one: NodeId, other: NodeId) -> bool {
        let are_apart = |(ours, theirs): (&u16, &u16)| ours != theirs && *ours != 0 && *theirs != 0;
        let groups = self.groups.get(&one).zip(self.groups.get(&other));
        let by_group = groups.is_some_and(|(ours, theirs)| ours.iter().zip(theirs).any(are_apart));
        one != other && (by_group || self.cut.contains(&one) || self.cut.contains(&other))
    }
}

/// Work of a bypass that failed, by its own error. It fits "failed to …".
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct BypassError(Box<dyn Error + Send + Sync>);

impl BypassError {
    pub(crate) fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_parts_a_node_from_all_others_and_a_partition_its_groups() {
        let [a, b, c] = [0, 1, 2].map(NodeId);
        let cut = Parted { cut: [a].into(), ..Parted::default() };
        assert!(cut.parts(a, b) && cut.parts(b, a) && !cut.parts(b, c) && !cut.parts(a, a));
        let groups = Parted { groups: [(a, vec![0, 1]), (b, vec![1, 2])].into(), ..Parted::default() };
        assert!(groups.parts(a, b) && !groups.parts(a, c) && !groups.is_empty());
    }

    #[test]
    fn the_needs_of_two_bypasses_are_one_filter_and_all_else_of_both() {
        let needs = |call, io_uring, name: &str| Needs {
            calls: Some(Calls { traps: vec![Trap::every(call)], io_uring }),
            env: [(name.to_owned(), "1".to_owned())].into(),
            mounts: vec![Mount { source: name.into(), target: "/there".into(), writable: false, shared: false }],
            laid_over: vec![LaidOver { source: name.into(), target: "/sys/class".into(), hiding: Vec::new() }],
            devices: vec![name.into()],
        };
        let both = needs(libc::SYS_connect, true, "one").and(needs(libc::SYS_ioctl, false, "two"));
        let traps = vec![Trap::every(libc::SYS_connect), Trap::every(libc::SYS_ioctl)];
        assert_eq!(both.calls, Some(Calls { traps, io_uring: false }));
        assert_eq!(both.env.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!((both.mounts.len(), both.laid_over.len(), both.devices.len()), (2, 2, 2));
        let one = needs(libc::SYS_connect, true, "one");
        assert_eq!(one.clone().and(Needs::default()).calls, one.calls);
        assert_eq!(Needs::default().and(one.clone()), one);
    }
}

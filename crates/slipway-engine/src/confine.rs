//! What a program in a node may not do: a default container's capabilities and system calls, no more.

use std::io;

use rustix::thread::{CapabilitySet, SecureComputingMode, secure_computing_mode};
use slipway_lab::model::Capability;
use slipway_sys::caps;
use slipway_sys::notify::Listener;
use slipway_sys::seccomp::Filter;

/// What a default container may not call, and a node may whose network says so.
const IO_URING: &[libc::c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// The profile, compiled once and attached to every program that enters a node.
#[derive(Debug, Clone)]
pub(crate) struct Confinement(Filter);

impl Confinement {
    pub(crate) fn compile() -> Self {
        Self(Filter::container_default())
    }

    /// Confines this thread for good, to a default container's capabilities and these. It is in a user namespace of the node's
    /// own where there are any of these.
    ///
    /// The order matters: shrinking the bounding set takes `CAP_SETPCAP`, attaching the filter without `no_new_privs`
    /// takes `CAP_SYS_ADMIN`, and the last step gives both up.
    pub(crate) fn apply(&self, more: &[Capability]) -> io::Result<()> {
        let keep = more.iter().fold(caps::DEFAULT, |keep, &one| keep.union(set(one)));
        caps::bound(keep)?;
        self.0.attach()?;
        caps::limit(keep)
    }

    /// As [`apply`](Self::apply), for a node's init: it needs no capability, and its exec brings none back. Its program enters
    /// strict mode, which only a process without a filter can. One that inherited a filter gets this one too.
    pub(crate) fn apply_to_init(&self) -> io::Result<()> {
        caps::bound(CapabilitySet::empty())?;
        if secure_computing_mode()? != SecureComputingMode::Disabled {
            self.0.attach()?;
        }
        caps::limit(CapabilitySet::empty())
    }

    /// As [`apply`](Self::apply), and has calls wait that `trap` names: who holds what is given back hears of them. Between
    /// here and its being held by somebody who listens, this thread must make none of them.
    pub(crate) fn apply_with(&self, trap: &Filter, io_uring: bool) -> io::Result<Listener> {
        caps::bound(caps::DEFAULT)?;
        if io_uring {
            Filter::container_with(IO_URING).attach()?;
        } else {
            self.0.attach()?;
        }
        let listener = trap.attach_and_listen()?;
        caps::limit(caps::DEFAULT)?;
        Ok(listener)
    }
}

fn set(capability: Capability) -> CapabilitySet {
    match capability {
        Capability::NetAdmin => CapabilitySet::NET_ADMIN,
        Capability::SysAdmin => CapabilitySet::SYS_ADMIN,
    }
}

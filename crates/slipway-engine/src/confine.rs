//! What a program in a node may not do: a default container's capabilities and system calls, no more.

use std::io;

use slipway_sys::caps;
use slipway_sys::seccomp::Filter;

/// The profile, compiled once and attached to every program that enters a node.
#[derive(Debug, Clone)]
pub(crate) struct Confinement(Filter);

impl Confinement {
    pub(crate) fn compile() -> Self {
        Self(Filter::container_default())
    }

    /// Confines this thread for good.
    ///
    /// The order matters: shrinking the bounding set takes `CAP_SETPCAP`, attaching the filter without `no_new_privs`
    /// takes `CAP_SYS_ADMIN`, and the last step gives both up.
    pub(crate) fn apply(&self) -> io::Result<()> {
        caps::bound(caps::DEFAULT)?;
        self.0.attach()?;
        caps::limit(caps::DEFAULT)
    }
}

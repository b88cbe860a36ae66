//! The controllers of control groups.

use serde::{Deserialize, Serialize};

/// The controllers that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// Processor time.
    Cpu,
    /// The set of processors.
    Cpuset,
    /// Stopping and resuming (version 1 only; part of the core in version 2).
    Freezer,
    /// Block devices.
    Io,
    /// Memory.
    Memory,
    /// The number of processes.
    Pids,
}

impl Controller {
    pub(super) const ALL: [Self; 6] = [Self::Cpu, Self::Cpuset, Self::Freezer, Self::Io, Self::Memory, Self::Pids];

    /// Those that limits use.
    pub const LIMITING: [Self; 5] = [Self::Cpu, Self::Cpuset, Self::Io, Self::Memory, Self::Pids];

    /// The kernel's name in version 2.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Freezer => "freezer",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    /// The kernel's name in version 1.
    #[must_use]
    pub fn legacy_name(self) -> &'static str {
        if self == Self::Io { "blkio" } else { self.name() }
    }
}

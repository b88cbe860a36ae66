//! Facts about a machine: what it is, and how it is set. They come from its procfs, sysfs and ethtool, or from a recording of them.
//!
//! Every fact may be unknown, with the reason. Nothing here trusts what it reads: sizes are bounded, and what makes no sense is unknown.

mod block;
mod cpu;
mod ethtool;
mod fact;
mod losses;
mod memory;
mod mounts;
mod nic;
mod pcie;
mod record;
mod source;
mod sysctl;
mod system;

use std::collections::BTreeMap;

use serde::Serialize;

pub use block::{Block, BlockKind};
pub use cpu::{Cpu, IdleState, NumaNode};
pub use ethtool::{Pause, Told};
pub use fact::Fact;
pub use losses::Losses;
pub use memory::Memory;
pub use mounts::Mount;
pub use nic::{Interrupt, Nic};
pub use pcie::PcieLink;
pub use record::RecordError;
pub use slipway_document::cpus::Cpus;
pub use source::{Recording, Source, SourceError};
pub use sysctl::NAMES as SYSCTLS;
pub use system::System;

/// All that Slipway knows of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// The kernel and what it runs on.
    pub system: System,
    /// Its processors.
    pub cpu: Cpu,
    /// Its memory.
    pub memory: Memory,
    /// Kernel parameters by name.
    pub sysctls: BTreeMap<String, Fact<String>>,
    /// Network interfaces with hardware behind them, by name.
    pub nics: Vec<Nic>,
    /// Disks and arrays of them, by name.
    pub blocks: Vec<Block>,
}

impl Facts {
    /// Reads everything.
    #[must_use]
    pub fn gather(source: &Source) -> Self {
        let told = source.told();
        Self {
            system: system::gather(source),
            cpu: cpu::gather(source),
            memory: memory::gather(source),
            sysctls: sysctl::gather(source),
            nics: nic::gather(source, &told),
            blocks: block::gather(source),
        }
    }

    /// Reads kernel parameters alone, as the calling thread's network namespace has them.
    #[must_use]
    pub fn sysctls(source: &Source) -> BTreeMap<String, Fact<String>> {
        sysctl::gather(source)
    }
}

#[cfg(test)]
mod tests;

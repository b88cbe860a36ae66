//! Room that machines offer, and nodes take. A rule of sums and order only: the same file gives the same places
//! everywhere.

use std::fmt;

use crate::condition::{Cpu, Limits};
use crate::id::{HostId, List, MachineId};
use crate::model::Machine;

/// The machine of each virtual host, where it is known before the nodes are placed.
pub(super) type Placed = List<HostId, Option<MachineId>>;

/// Shares are compared in millionths, so that no rounding differs between machines.
const MILLION: u128 = 1_000_000;

/// The sum of nodes' limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// Thousandths of a core.
    cores: u64,
    /// Bytes.
    memory: u64,
}

impl Need {
    /// A node's limits. Without one it takes as much as is there, and is not counted.
    pub(super) fn of(limits: &Limits) -> Self {
        let cores = limits.cpu.map_or(0, |cpu| match cpu {
            Cpu::Cores(cores) => milli(cores.0),
            // At most one core, whatever the frequency is.
            Cpu::Megahertz(_) => 1000,
        });
        Self { cores, memory: limits.memory.map_or(0, |bytes| bytes.0) }
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self { cores: self.cores.saturating_add(more.cores), memory: self.memory.saturating_add(more.memory) }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and is checked to be positive"
)]
fn milli(cores: f64) -> u64 {
    (cores * 1000.0).ceil().max(0.0) as u64
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.cores / 1000, self.cores % 1000);
        match rest {
            0 => write!(f, "{whole} cores")?,
            _ => write!(f, "{} cores", format!("{whole}.{rest:03}").trim_end_matches('0'))?,
        }
        write!(f, " and {} of memory", slipway_document::units::Bytes(self.memory))
    }
}

/// A machine's room.
#[derive(Debug, Clone)]
pub(super) struct Room {
    cores: Option<u64>,
    memory: Option<u64>,
    taken: Need,
    /// Number of things placed.
    count: usize,
}

impl Room {
    /// The rooms of machines, empty.
    pub(super) fn of(machines: &List<MachineId, Machine>) -> List<MachineId, Self> {
        let room = |machine: &Machine| Self {
            cores: machine.cores.map(|cores| u64::from(cores) * 1000),
            memory: machine.memory.map(|bytes| bytes.0),
            taken: Need::default(),
            count: 0,
        };
        machines.iter().map(room).collect::<Vec<_>>().into()
    }

    /// Whether the machine says what it offers.
    pub(super) fn is_known(&self) -> bool {
        self.cores.is_some() || self.memory.is_some()
    }

    /// Whether the machine has room for this, too.
    pub(super) fn fits(&self, more: Need) -> bool {
        let sum = self.taken.plus(more);
        self.cores.is_none_or(|offered| sum.cores <= offered) && self.memory.is_none_or(|offered| sum.memory <= offered)
    }

    /// Takes room, whether or not it is there.
    pub(super) fn take(&mut self, more: Need) {
        self.taken = self.taken.plus(more);
        self.count += 1;
    }

    /// How full it would be: the greater share of the two in millionths, then the number of things in it.
    pub(super) fn load(&self, more: Need) -> (u128, usize) {
        let sum = self.taken.plus(more);
        let share = |taken: u64, offered: Option<u64>| {
            offered.map_or(0, |offered| u128::from(taken) * MILLION / u128::from(offered.max(1)))
        };
        (share(sum.cores, self.cores).max(share(sum.memory, self.memory)), self.count)
    }

    /// The sum of all that was placed.
    pub(super) fn taken(&self) -> Need {
        self.taken
    }

    /// The machine's offer, in words.
    pub(super) fn offer(&self) -> String {
        let cores = self.cores.map(|cores| format!("{} cores", cores / 1000));
        let memory = self.memory.map(|bytes| format!("{} of memory", slipway_document::units::Bytes(bytes)));
        cores.into_iter().chain(memory).collect::<Vec<_>>().join(" and ")
    }
}

/// The emptiest machine in which there is room. Of equals, the first.
pub(super) fn emptiest(rooms: &List<MachineId, Room>, need: Need) -> Option<MachineId> {
    rooms.enumerate().filter(|(_, room)| room.fits(need)).min_by_key(|(_, room)| room.load(need)).map(|(at, _)| at)
}

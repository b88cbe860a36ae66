//! Traffic control (tc(8)): what a device does with packets before it sends them, and programs that look at each.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{Netlink, NetlinkError};

mod attribute;
mod distribution;
mod encode;
mod netem;
mod stats;
mod tbf;
#[cfg(test)]
mod tests;

pub use distribution::Distribution;
pub(super) use encode::{add_places, clsact_filter, delete_clsact, delete_qdisc, replace_qdisc};
pub use netem::scaled_share;
pub use stats::QdiscStats;

/// The direction of a device's packets, seen from the namespace that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Those it sends.
    Egress,
    /// Those it receives.
    Ingress,
}

/// A BPF program on a device that has a clsact (tc-bpf(8), direct-action: what it returns is done).
#[derive(Debug, Clone, Copy)]
pub struct BpfFilter<'a> {
    /// The device.
    pub index: u32,
    /// The direction of the packets that it sees.
    pub direction: Direction,
    /// Its place among a direction's filters, from 1: one that returns `TC_ACT_UNSPEC` leaves packets to the next. Another in the
    /// same place takes the place of the one before it.
    pub order: u16,
    /// A [`crate::bpf::Program`] of kind `SchedCls`.
    pub program: BorrowedFd<'a>,
    /// Shows in `tc filter`.
    pub name: &'a str,
}

/// A queueing discipline's own number, or the place below another where one is: `1:0`, `1:1` (tc(8), "handle").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The handle of the queueing discipline, its major part.
    pub major: u16,
    /// The class; 0 for the discipline itself.
    pub minor: u16,
}

impl Handle {
    /// The device's own place for one.
    pub const ROOT: Self = Self { major: u16::MAX, minor: u16::MAX };
}

/// A queueing discipline in its place. It replaces a discipline of another kind. One of the same kind and handle
/// changes, and keeps its packets.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplaceQdisc {
    /// The device.
    pub index: u32,
    /// The parent that it is attached to.
    pub parent: Handle,
    /// The major part of its handle.
    pub handle: u16,
    /// The discipline.
    pub qdisc: Qdisc,
}

/// A queueing discipline, with its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Qdisc {
    /// Delay, loss and the rest (tc-netem(8)).
    Netem(Netem),
    /// A rate (tc-tbf(8)).
    Tbf(Tbf),
    /// Any kind, with the settings that it has by itself.
    Plain(String),
}

/// A wide-area link (tc-netem(8)). Shares are fractions from 0 to 1. The default does nothing to packets, and holds 1,000.
#[derive(Debug, Clone, PartialEq)]
pub struct Netem {
    /// Packets that may wait.
    pub limit: u32,
    /// Added to every packet's way.
    pub delay: Duration,
    /// How far `delay` varies; at most 2.1 s.
    pub jitter: Duration,
    /// The shape of `jitter`. `None`: uniform.
    pub distribution: Option<Distribution>,
    /// How much a packet's delay depends on the one before it.
    pub delay_correlation: f64,
    /// Packets that vanish.
    pub loss: Loss,
    /// How much a random loss depends on the one before it.
    pub loss_correlation: f64,
    /// Packets that come twice.
    pub duplicate: f64,
    /// How much a duplication depends on the one before it.
    pub duplicate_correlation: f64,
    /// Packets with one bit turned over.
    pub corrupt: f64,
    /// How much a corruption depends on the one before it.
    pub corrupt_correlation: f64,
    /// Packets that are not delayed, and so overtake those that are.
    pub reorder: f64,
    /// How much a reordering depends on the one before it.
    pub reorder_correlation: f64,
    /// Only every so many packets may be reordered.
    pub gap: u32,
    /// Bytes per second.
    pub rate: Option<u64>,
    /// The seed of its random numbers. Kernels before 6.6 pay no attention, and start from a number of their own. Every
    /// change of the queueing discipline starts it anew.
    pub seed: Option<u64>,
}

impl Default for Netem {
    fn default() -> Self {
        Self {
            limit: 1000,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            distribution: None,
            delay_correlation: 0.0,
            loss: Loss::Random(0.0),
            loss_correlation: 0.0,
            duplicate: 0.0,
            duplicate_correlation: 0.0,
            corrupt: 0.0,
            corrupt_correlation: 0.0,
            reorder: 0.0,
            reorder_correlation: 0.0,
            gap: 1,
            rate: None,
            seed: None,
        }
    }
}

/// How packets are lost (tc-netem(8), `loss`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each with this probability.
    Random(f64),
    /// Two states.
    GilbertElliott {
        /// From good to bad.
        p: f64,
        /// From bad to good.
        r: f64,
        /// Loss in the bad state (`1-h`).
        one_minus_h: f64,
        /// Loss in the good state (`1-k`).
        one_minus_k: f64,
    },
    /// Four states: 1 good, 2 good within a burst, 3 loss within a burst, 4 isolated loss.
    FourState {
        /// From 1 to 3.
        p13: f64,
        /// From 3 to 1.
        p31: f64,
        /// From 3 to 2.
        p32: f64,
        /// From 2 to 3.
        p23: f64,
        /// From 1 to 4.
        p14: f64,
    },
}

/// A token bucket (tc-tbf(8)). Large segments that do not fit the bucket are cut into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes per second; not 0, which the kernel takes for 10⁹.
    pub rate: u64,
    /// Bytes that may go at once: at least a packet, Ethernet header included, or nothing gets through.
    pub burst: u32,
    /// Bytes that may wait.
    pub limit: u32,
}

impl Qdisc {
    /// The kind, by tc(8)'s name.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Netem(_) => "netem",
            Self::Tbf(_) => "tbf",
            Self::Plain(kind) => kind,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ROOT => f.write_str("root"),
            Self { major, minor } => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

impl Netlink {
    /// The queueing disciplines of the device `index`, and what they did.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn qdiscs(&mut self, index: u32) -> Result<Vec<QdiscStats>, NetlinkError> {
        let mut found = Vec::new();
        self.dump(stats::request(), |message| found.extend(stats::of_device(message, index)))?;
        Ok(found)
    }
}

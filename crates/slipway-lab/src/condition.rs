//! Conditions: what a link, a processor, memory or a disk is made to be. Values only; how they are made real is the engine's.
//!
//! Names and meanings are those of `tc-netem(8)`. A key that is not set is left as the machine has it.

use std::fmt;
use std::str::FromStr;

use crate::id::{NetworkId, NodeId};
use serde::{Deserialize, Serialize};
use slipway_document::units::{
    ByteRate, Bytes, CPU, Cores, Fraction, Rate, Seconds, UnitError, Value, decimal, shortened, split,
};
use slipway_document::written;

/// Rate that a link without one is taken to have, where its queue is reckoned.
pub const UNSHAPED: Rate = Rate(10_000_000_000);

/// Conditions of packets that go one way through an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConditions {
    /// Added to every packet's way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Seconds>,
    /// How far `delay` varies: half the width of `uniform`, one standard deviation of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Seconds>,
    /// The shape of `jitter`. `uniform` when left out, as netem without a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// How much a packet's delay depends on the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_correlation: Option<Fraction>,
    /// Packets that vanish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// How much a random loss depends on the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_correlation: Option<Fraction>,
    /// Packets with one bit turned over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Fraction>,
    /// Packets that come twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Fraction>,
    /// Packets that are not delayed, and so overtake those that are. Takes `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Fraction>,
    /// How much a reordering depends on the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_correlation: Option<Fraction>,
    /// Only every so many packets may be reordered. 1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<u32>,
    /// Bits per second, Ethernet headers included as the kernel counts them (`skb->len`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Packets that may wait, delayed ones included. Computed from `rate` and `delay` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Packets that may wait for the rate, the one that is being sent included. Those that are merely delayed do not count.
    /// Takes `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
}

/// The shape of jitter (`tc-netem(8)`, `distribution`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every value between delay − jitter and delay + jitter is as likely.
    #[default]
    Uniform,
    /// Normal.
    Normal,
    /// Pareto.
    Pareto,
    /// A quarter normal, three quarters Pareto.
    Paretonormal,
}

/// How packets are lost (`tc-netem(8)`, `loss`; Salsano et al., "Definition of a general and intuitive loss model").
/// Written `0.5%`, `gemodel 1% 10% 70% 0.1%`, `state 1% 10% 5% 50% 0.1%`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum Loss {
    /// Each packet with this probability.
    Random(Fraction),
    /// Gilbert–Elliott: two states.
    GilbertElliott {
        /// From good to bad.
        p: Fraction,
        /// From bad to good.
        r: Fraction,
        /// Loss in the bad state (`1-h`).
        one_minus_h: Fraction,
        /// Loss in the good state (`1-k`).
        one_minus_k: Fraction,
    },
    /// Four states: 1 good, 2 good within a burst, 3 loss within a burst, 4 isolated loss.
    FourState {
        /// Good to burst loss.
        p13: Fraction,
        /// Burst loss to good.
        p31: Fraction,
        /// Burst loss to good within the burst.
        p32: Fraction,
        /// Good within the burst to burst loss.
        p23: Fraction,
        /// Good to isolated loss.
        p14: Fraction,
    },
}

/// The conditions of both directions of an interface, seen from its node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Conditions of packets that the node sends.
    pub egress: LinkConditions,
    /// Conditions of packets that the node receives.
    pub ingress: LinkConditions,
}

/// Conditions between nodes: they hold for packets from any of `from` to any of `to`, over the sender's egress conditions
/// key by key. A later rule holds over an earlier one, key by key. Only `rate` is in addition: what a pair sends passes
/// the sender's interface, and its rate, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkRule {
    /// Senders, ascending.
    pub from: Vec<NodeId>,
    /// Receivers, ascending.
    pub to: Vec<NodeId>,
    /// One of the lab's networks. `None`: every network that both are on.
    pub network: Option<NetworkId>,
    /// The conditions in force.
    pub conditions: LinkConditions,
}

/// One-way delays between nodes, from a file that the engine reads: `matrix: latency.csv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixFile {
    /// Absolute path of a CSV whose first row and first column name nodes, and whose cells are delays.
    pub path: std::path::PathBuf,
    /// One of the lab's networks. `None`: every network that both are on.
    pub network: Option<NetworkId>,
}

/// Limits of a node's disk (the file system of `/scratch`). `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// A block device of the node's own, of this size, carries `/scratch`: then buffered writes are held to the limits too,
    /// on any kernel. Bytes.
    pub size: Option<Bytes>,
    /// Bytes read in a second.
    pub read: Option<ByteRate>,
    /// Bytes written in a second.
    pub write: Option<ByteRate>,
    /// Reads in a second.
    pub read_iops: Option<u32>,
    /// Writes in a second.
    pub write_iops: Option<u32>,
}

/// Limits of a node. `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Processor time.
    pub cpu: Option<Cpu>,
    /// Over which stretch of time `cpu` is counted. `None`: chosen by the engine.
    pub cpu_period: Option<Seconds>,
    /// Processors the node may run on, in the kernel's list form (`0-3,6`). The host's `cpus` where the node has none.
    pub cpuset: Option<String>,
    /// Memory, hard: beyond it the node's programs are killed.
    pub memory: Option<Bytes>,
    /// Memory, soft: what the node is pushed back to when the machine runs short.
    pub memory_soft: Option<Bytes>,
    /// Swap that may be used beyond `memory`. None of it where `memory` is given and this is not.
    pub swap: Option<Bytes>,
    /// Limits of its disk.
    pub disk: Disk,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// A processor's speed as it is asked for. Written `50%`, `2 cores` or `1200 MHz`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum Cpu {
    /// Cores, or a share of one.
    Cores(Cores),
    /// Megahertz, of the host's nominal frequency: the share of one core that would do as much.
    Megahertz(f64),
}

const LOSS: &str = "`0.5%`, `gemodel P [R [1-H [1-K]]]` or `state P13 [P31 [P32 [P23 [P14]]]]`, each a percentage";

/// The reason why a text is no loss model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossError {
    /// One of its shares is none.
    #[error(transparent)]
    Share(#[from] UnitError),
    /// No model of that name, or too many or too few shares.
    #[error("`{0}` is no loss model; write {LOSS}")]
    Model(String),
}

impl FromStr for Loss {
    type Err = LossError;

    /// Shares left out are what `tc-netem(8)` takes: `r` is 1 − `p`, `1-h` 100 %, `1-k` 0; `p31` is 1 − `p13`, `p32` 0,
    /// `p23` 100 %, `p14` 0.
    fn from_str(text: &str) -> Result<Self, LossError> {
        let unknown = || LossError::Model(shortened(text));
        let mut words = text.split_whitespace();
        let (model, words): (_, Vec<&str>) = match words.next() {
            Some(model @ ("gemodel" | "state")) => (model, words.collect()),
            Some(word) if word.starts_with(|c: char| c.is_ascii_alphabetic()) => return Err(unknown()),
            _ => return Ok(Self::Random(text.parse()?)),
        };
        let shares = words.into_iter().map(str::parse).collect::<Result<Vec<Fraction>, _>>()?;
        let [first, rest @ ..] = shares.as_slice() else { return Err(unknown()) };
        let share = |i: usize, left_out: f64| rest.get(i).copied().unwrap_or(Fraction(left_out));
        match (model, rest.len()) {
            ("gemodel", 0..=3) => Ok(Self::GilbertElliott {
                p: *first,
                r: share(0, 1.0 - first.0),
                one_minus_h: share(1, 1.0),
                one_minus_k: share(2, 0.0),
            }),
            ("state", 0..=4) => Ok(Self::FourState {
                p13: *first,
                p31: share(0, 1.0 - first.0),
                p32: share(1, 0.0),
                p23: share(2, 1.0),
                p14: share(3, 0.0),
            }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(share) => share.fmt(f),
            Self::GilbertElliott { p, r, one_minus_h, one_minus_k } => {
                write!(f, "gemodel {p} {r} {one_minus_h} {one_minus_k}")
            }
            Self::FourState { p13, p31, p32, p23, p14 } => write!(f, "state {p13} {p31} {p32} {p23} {p14}"),
        }
    }
}

written!(
    Loss,
    LOSS,
    "A loss model: a percentage, or one of tc-netem(8)'s models.",
    r"^((gemodel|state) +)?\d+(\.\d+)? *%( +\d+(\.\d+)? *%){0,4}$",
    ["0.5%", "gemodel 1% 10% 70% 0.1%"]
);

impl FromStr for Cpu {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, CPU)?;
        let scale = match unit {
            "MHz" => 1.0,
            "GHz" => 1e3,
            _ => return text.parse().map(Self::Cores),
        };
        Ok(Self::Megahertz(decimal(number, CPU)? * scale))
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(cores) => cores.fmt(f),
            Self::Megahertz(megahertz) => write!(f, "{megahertz} MHz"),
        }
    }
}

written!(
    Cpu,
    CPU,
    "Processor time: a share of one core, cores, or a frequency.",
    r"^\d+(\.\d+)? *(%|cores?|[MG]Hz)$",
    ["50%", "2 cores", "1200 MHz"]
);

impl Distribution {
    /// Every distribution.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Normal, Self::Pareto, Self::Paretonormal];
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
            Self::Paretonormal => "paretonormal",
        })
    }
}

impl Value for Distribution {
    const EXPECTED: &'static str = "`uniform`, `normal`, `pareto` or `paretonormal`";

    fn read(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.to_string() == text);
        found.ok_or_else(|| format!("there is no distribution `{}`; write {}", shortened(text), Self::EXPECTED))
    }
}

impl LinkConditions {
    /// Whether packets pass as if there were none of them.
    #[must_use]
    pub fn is_natural(&self) -> bool {
        let nothing = |share: Option<Fraction>| share.is_none_or(|share| share.0 == 0.0);
        let now = |time: Option<Seconds>| time.is_none_or(|time| time.0 == 0.0);
        let none_lost = matches!(self.loss, None | Some(Loss::Random(Fraction(0.0))));
        now(self.delay)
            && now(self.jitter)
            && none_lost
            && nothing(self.corrupt)
            && nothing(self.duplicate)
            && self.rate.is_none()
    }
}

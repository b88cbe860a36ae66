//! The content of a scenario's file, with names turned into ids. Cross-references are ids of the lab's, valid
//! by construction.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_document::units::{Fraction, Seconds};

use super::generator::{Generator, Quantity};
use super::link::Port;
use super::{Direction, Due, Kill};
use crate::change::{Change, Keys};
use crate::condition::{Limits, LinkConditions};
use crate::id::{NetworkId, NodeId};

/// Changes of a lab, and their times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Where its random streams begin. `None`: the lab's seed.
    pub seed: Option<u64>,
    /// When it is over. `None`: with its last event.
    pub length: Option<Due>,
    /// The entries, in file order.
    pub entries: Vec<Entry>,
}

/// One entry of a scenario's `events`: something that happens once or again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of its random streams: its own name, or its number from 1.
    pub name: String,
    /// The times of its events.
    pub when: Timing,
    /// For how long, in seconds. `None`: until something else changes it.
    pub hold: Option<Generator>,
    /// Random values are drawn once for all of its nodes or interfaces, rather than once for each.
    pub together: bool,
    /// The change, and its targets.
    pub effect: Effect,
}

/// When an entry's events are due.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The first, in seconds. `None`: one `every` after the beginning, or the beginning itself for what has no `every`.
    pub at: Option<Generator>,
    /// From each to the next, in seconds. `None`: there is only one.
    pub every: Option<Generator>,
    /// None is due later.
    pub until: Option<Due>,
    /// There are no more than so many (of each node's or interface's own).
    pub times: Option<u64>,
}

/// Some of the lab's nodes or interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection<T> {
    /// Whom it is about, or of whom it is drawn.
    pub among: Vec<T>,
    /// How many are drawn, anew for every event. `None`: all.
    pub choose: Option<Choose>,
}

/// The number of targets to draw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choose {
    /// A fixed number.
    Count(usize),
    /// This share, rounded to the nearest whole number.
    Share(Fraction),
}

impl Eq for Choose {}

/// A change, and its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Something happens to nodes.
    Nodes {
        /// The nodes.
        on: Selection<NodeId>,
        /// The change.
        act: NodeAct,
    },
    /// Something happens to interfaces.
    Links {
        /// The interfaces.
        on: Selection<Port>,
        /// The change.
        act: LinkAct,
    },
    /// Something happens between nodes.
    Pairs {
        /// The pairs of nodes.
        pairs: Pairs,
        /// The change.
        act: PairAct,
    },
    /// Nodes of different sides no longer reach each other.
    Partition {
        /// Disjoint.
        sides: Vec<Selection<NodeId>>,
        /// All other nodes are one more side. Otherwise they reach everybody.
        rest: bool,
    },
    /// Ends every partition.
    Join,
}

/// A change of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAct {
    /// The limits of the nodes change.
    Set(Setting<Limits>),
    /// The nodes end.
    Kill(Kill),
    /// The nodes start.
    Start,
    /// They end by being asked to, and start.
    Restart {
        /// Time that programs have to end.
        grace: Seconds,
    },
    /// The nodes' processes halt.
    Freeze,
    /// The nodes' processes continue.
    Thaw,
    /// The nodes come and go.
    Churn {
        /// The kind of failure.
        how: Kill,
        /// How long they are there, in seconds.
        availability: Generator,
        /// How long they are not, in seconds.
        unavailability: Generator,
    },
    /// A program runs in them.
    Run {
        /// argv.
        command: Vec<String>,
    },
    /// A file says what happens when.
    Trace {
        /// The file.
        trace: TraceFile,
        /// How they go where it says that they are down.
        how: Kill,
    },
}

/// A change of interfaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkAct {
    /// The conditions of the interfaces change.
    Set {
        /// The direction of the packets.
        direction: Direction,
        /// To what.
        setting: Setting<LinkConditions>,
    },
    /// Nothing passes any more.
    Cut,
    /// The interfaces pass packets again.
    Heal,
    /// The interfaces go up and down.
    Flap {
        /// How long they are up, in seconds.
        up: Generator,
        /// How long they are down, in seconds.
        down: Generator,
    },
    /// A file says what their conditions are when.
    Trace {
        /// The direction of the packets.
        direction: Direction,
        /// The file.
        trace: TraceFile,
    },
}

/// A change between nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairAct {
    /// Conditions change.
    Set(Setting<LinkConditions>),
    /// A file says what they are when.
    Trace(TraceFile),
}

/// Senders and receivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs {
    /// Senders.
    pub from: Vec<NodeId>,
    /// Receivers.
    pub to: Vec<NodeId>,
    /// And the other way round.
    pub both: bool,
    /// One of the lab's networks. `None`: every network that both are on.
    pub network: Option<NetworkId>,
}

/// New conditions: fixed values, and values drawn for every event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting<T: Default> {
    /// The fixed values.
    pub change: Change<T>,
    /// The random values.
    pub drawn: Vec<Drawn>,
}

/// A key whose value is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// The key, as [`Keys::NAMES`] has it.
    pub key: String,
    /// The quantity that it measures.
    pub quantity: Quantity,
    /// Its values, in the quantity's base unit.
    pub generator: Generator,
}

/// A file that says what happens when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceFile {
    /// Absolute.
    pub path: PathBuf,
    /// The format of the file.
    pub format: Format,
    /// Its subject: a key as [`Keys::NAMES`] has it, or `state`: `up`, `down`, `freeze`, `unfreeze`.
    pub of: String,
    /// Unit of values without one.
    pub unit: Option<String>,
    /// Over how long packet deliveries are counted (Mahimahi).
    pub window: Seconds,
}

/// The format of a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `date value` lines or a JSON object or list, as Distem takes event traces.
    Distem,
    /// Comma-separated values below a header.
    Csv,
    /// A time in milliseconds for every packet that may pass, as `mm-link(1)` takes it; from the top again at its end.
    Mahimahi,
}

impl Scenario {
    /// The files that it names, each once: read them for [`plan`](Self::plan).
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        let mut files: Vec<&Path> = self.entries.iter().flat_map(Entry::files).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl Entry {
    fn files(&self) -> Vec<&Path> {
        let trace = match &self.effect {
            Effect::Nodes { act: NodeAct::Trace { trace, .. }, .. }
            | Effect::Links { act: LinkAct::Trace { trace, .. }, .. }
            | Effect::Pairs { act: PairAct::Trace(trace), .. } => Some(trace.path.as_path()),
            _ => None,
        };
        self.generators().filter_map(Generator::file).chain(trace).collect()
    }

    /// All of its generators.
    pub(crate) fn generators(&self) -> impl Iterator<Item = &Generator> {
        let durations = match &self.effect {
            Effect::Nodes { act: NodeAct::Churn { availability, unavailability, .. }, .. } => {
                vec![availability, unavailability]
            }
            Effect::Links { act: LinkAct::Flap { up, down }, .. } => vec![up, down],
            _ => Vec::new(),
        };
        let drawn: &[Drawn] = match &self.effect {
            Effect::Nodes { act: NodeAct::Set(setting), .. } => &setting.drawn,
            Effect::Links { act: LinkAct::Set { setting, .. }, .. }
            | Effect::Pairs { act: PairAct::Set(setting), .. } => &setting.drawn,
            _ => &[],
        };
        let times = [&self.when.at, &self.when.every, &self.hold].into_iter().flatten();
        times.chain(durations).chain(drawn.iter().map(|drawn| &drawn.generator))
    }
}

impl<T: Keys> Setting<T> {
    /// One that changes nothing else.
    #[must_use]
    pub fn fixed(change: Change<T>) -> Self {
        Self { change, drawn: Vec::new() }
    }
}

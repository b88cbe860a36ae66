//! Scenarios: what happens to a lab, and when. A [`Scenario`] is what a file says; its [`Schedule`] is every event that
//! follows from it and a seed, in order, the same on every machine.

mod generator;
mod link;
mod model;
mod order;
mod schedule;
mod stream;
mod time;
mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use self::generator::Source;
pub use self::generator::{Generator, Quantity};
pub use self::link::{Direction, Groups, LinkAction, Pair, Port};
pub use self::model::{
    Choose, Drawn, Effect, Entry, Format, LinkAct, NodeAct, PairAct, Pairs, Scenario, Selection, Setting, Timing,
    TraceFile,
};
pub use self::order::{Kill, Order};
pub use self::schedule::{Action, Due, Event, Schedule};
pub(crate) use self::stream::Stream;
pub use self::time::MOST_EVENTS;
pub(crate) use self::time::{after, nanoseconds};
pub use self::trace::{Point, TraceError, csv, distem, mahimahi};
pub(crate) use self::trace::{Recording, durations};
pub use crate::change::{LinkChange, NodeChange};

/// The texts of the trace files that a scenario names ([`Scenario::files`]), read by the caller.
pub type Traces = BTreeMap<PathBuf, String>;

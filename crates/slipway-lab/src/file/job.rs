use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::de::{Named, Spanned};
use slipway_document::units::Seconds;

use super::{Command, Value};
use crate::model::Mpi;

/// A program to run over nodes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a job: a map with `command`")]
pub(crate) struct Job {
    /// The program and its arguments.
    pub(crate) command: Spanned<Command>,
    /// The MPI implementation that launches it. Without, it runs once on every node.
    pub(crate) mpi: Option<Mpi>,
    /// MPI ranks. The sum of the nodes' slots when left out.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) ranks: Option<Spanned<u32>>,
    /// Nodes of the job: names of nodes, groups, or patterns such as `n*`. All nodes when left out.
    pub(crate) nodes: Option<Vec<Spanned<String>>>,
    /// Ended after this long. No limit when left out.
    pub(crate) timeout: Option<Spanned<Seconds>>,
    /// Working directory in the nodes (absolute).
    pub(crate) workdir: Option<Spanned<String>>,
    /// Environment added for the job.
    #[serde(default)]
    pub(crate) env: Named<Value>,
    /// The figure that `slipway compare` picks from the job's output.
    pub(crate) figure: Option<Spanned<Figure>>,
}

/// One number of a job's output: exactly one of `regex`, `json_path` and `wall_time` says which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a figure: a map with `regex`, `json_path` or `wall_time`")]
pub(crate) struct Figure {
    /// Name of the figure in reports. Needed unless it is the wall time.
    pub(crate) name: Option<String>,
    /// Unit of the figure, such as `Gb/s`. Needed unless it is the wall time.
    pub(crate) unit: Option<String>,
    /// The direction in which the figure gets better. Needed unless it is the wall time.
    pub(crate) better: Option<Better>,
    /// A regular expression; its first group, in its first match, is the number.
    pub(crate) regex: Option<Spanned<String>>,
    /// A JSON path (RFC 9535) that selects the number.
    pub(crate) json_path: Option<Spanned<String>>,
    /// `true`: the job's own duration in seconds.
    pub(crate) wall_time: Option<Spanned<bool>>,
}

/// The direction in which a figure gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// A smaller number: a time, a latency.
    Lower,
    /// A greater number: a throughput.
    Higher,
}

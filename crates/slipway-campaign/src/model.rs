//! A campaign, as its file means it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_document::units::{Bytes, Cores, Seconds};
use slipway_energyplus::path::Path as FieldPath;
use slipway_energyplus::{Report, Reporting};

use crate::template::Template;
use crate::value::Value;

mod place;
mod search;
mod storage;

pub use place::{Place, Slurm};
pub use search::{Constraint, Goal, Method, Objective, Search};
pub use storage::{Bucket, Storage};

/// One program, run at many points.
#[derive(Debug, Clone, PartialEq)]
pub struct Campaign {
    /// The campaign's name.
    pub name: String,
    /// Seed of the design. Each random stream derives from it.
    pub seed: u64,
    /// Files that every point finds in its folder.
    pub inputs: Vec<Input>,
    /// The variables, in the file's order, which is the order of a point's values.
    pub variables: Vec<Variable>,
    /// The design of the experiment.
    pub design: Design,
    /// The values of a point that runs before all others, in the variables' order.
    pub baseline: Option<Vec<Value>>,
    /// The program of a point.
    pub run: Run,
    /// The results to extract, in the file's order.
    pub outputs: Vec<Output>,
    /// Outputs to improve, in the file's order.
    pub objectives: Vec<Objective>,
    /// Limits of outputs.
    pub constraints: Vec<Constraint>,
    /// Attempts of a point, and their limits.
    pub attempts: Attempts,
    /// The workers.
    pub workers: Workers,
    /// The place of state and results.
    pub storage: Storage,
    /// The files of points that stay in storage.
    pub keep: Keep,
}

impl Campaign {
    /// The search, where the design is one.
    #[must_use]
    pub fn search(&self) -> Option<Search> {
        match self.design {
            Design::Search(search) => Some(search),
            _ => None,
        }
    }
}

/// Columns of every result, whose names no variable and no output can have.
pub const RESERVED: [&str; 13] = [
    "point",
    "state",
    "seed",
    "seconds",
    "cpu_seconds",
    "peak_bytes",
    "worker",
    "attempts",
    "failure",
    "message",
    "manifest",
    "seq",
    "baseline",
];

/// A file that every point finds in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Path in the point's folder: relative, without `..`.
    pub name: PathBuf,
    /// The place that it is copied from.
    pub source: Source,
    /// The difference that a point's values make to it.
    pub content: Content,
}

/// The place of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path on this machine.
    Path(PathBuf),
    /// A model among the examples of EnergyPlus' package, by the beginning of its name.
    ExampleModel(String),
    /// A weather file among the examples, by the beginning of its name.
    ExampleWeather(String),
    /// An `OpenStudio` workflow (OSW) on this machine: the file, and all files that it names.
    Workflow(PathBuf),
}

impl Source {
    /// The path on this machine; examples have none. A workflow's other files are below its own folder.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Workflow(path) => Some(path),
            Self::ExampleModel(_) | Self::ExampleWeather(_) => None,
        }
    }
}

/// The difference that a point's values make to an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// None: all points share the file.
    Same,
    /// `{variable}` in the file stands for the point's value.
    Template,
    /// Fields of the model's objects get values, and the model asks for reports.
    Model(Model),
}

/// Changes of a model (IDF, OSM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Fields, each with its value.
    pub fields: Vec<(FieldPath, Template)>,
    /// Reports that outputs read; `None` for a model that is translated before it runs.
    pub reports: Option<Reports>,
}

/// Reports of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reports {
    /// The reports.
    pub wanted: Vec<Report>,
    /// Their frequency.
    pub reporting: Reporting,
    /// Whether the model's own reports get this frequency too.
    pub all: bool,
}

/// A variable and its distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The name: a letter or `_`, then letters, digits, `_` and `.`.
    pub name: String,
    /// The distribution.
    pub distribution: Distribution,
}

/// Values of a variable and how likely each is.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Fixed(Value),
    /// Any number from `low` to `high`, all equally likely.
    Uniform {
        /// Least value.
        low: f64,
        /// Greatest value.
        high: f64,
    },
    /// The logarithm is uniform. Both ends are positive.
    LogUniform {
        /// Least value.
        low: f64,
        /// Greatest value.
        high: f64,
    },
    /// Whole numbers from `low` to `high`, both included, all equally likely.
    Integer {
        /// Least value.
        low: i64,
        /// Greatest value.
        high: i64,
    },
    /// A triangle from `low` over `mode` to `high`.
    Triangle {
        /// Least value.
        low: f64,
        /// Likeliest value.
        mode: f64,
        /// Greatest value.
        high: f64,
    },
    /// Gauss's, truncated to `low..=high` where they are given.
    Normal {
        /// Mean, before truncation.
        mean: f64,
        /// Standard deviation, before truncation. Positive.
        deviation: f64,
        /// Least value; minus infinity without one.
        low: f64,
        /// Greatest value; infinity without one.
        high: f64,
    },
    /// The natural logarithm is Gauss's; truncated to `low..=high`.
    LogNormal {
        /// Mean of the value itself (not of its logarithm), before truncation.
        mean: f64,
        /// Standard deviation of the value itself, before truncation.
        deviation: f64,
        /// Least value; 0 without one.
        low: f64,
        /// Greatest value; infinity without one.
        high: f64,
    },
    /// One of several values, each with its weight. Weights are positive; their sum need not be 1.
    Choices(Vec<(Value, f64)>),
}

/// How many points there are, and which inputs each has.
#[derive(Debug, Clone, PartialEq)]
pub enum Design {
    /// Every combination. A continuous variable takes `levels` values, evenly spread in probability.
    Grid {
        /// Values of each continuous variable.
        levels: u32,
    },
    /// Independent random points.
    Random {
        /// Number of points.
        points: u64,
    },
    /// A Latin hypercube.
    Lhs {
        /// Number of points, then those that each extension added. Each is a hypercube of its own.
        blocks: Vec<u64>,
        /// Whether the smallest distance between points is made large.
        maximin: bool,
    },
    /// Sobol's sequence, scrambled as Owen does it.
    Sobol {
        /// Number of points.
        points: u64,
    },
    /// Halton's sequence, scrambled as Owen does it.
    Halton {
        /// Number of points.
        points: u64,
    },
    /// Morris' elementary effects.
    Morris {
        /// Number of trajectories, each of one point more than there are variables.
        trajectories: u64,
        /// Levels of the grid: an even number.
        levels: u32,
    },
    /// Saltelli's matrices, for Sobol' indices.
    Saltelli {
        /// Base samples N; the design has N (d + 2) points, or N (2 d + 2) with `second_order`.
        samples: u64,
        /// Whether indices of pairs are wanted.
        second_order: bool,
    },
    /// Extended FAST: one search curve for each variable.
    Fast {
        /// Points of each curve.
        samples: u64,
        /// Harmonics to sum (interference factor M).
        harmonics: u32,
    },
    /// One at a time: the medians, then for each variable `levels` values evenly spread in probability.
    Oat {
        /// Values of each continuous variable.
        levels: u32,
    },
    /// The same inputs again and again: medians, and a seed of its own for each point.
    Repeat {
        /// Number of points.
        points: u64,
    },
    /// Points from a file with a header of variables' names (CSV or Parquet).
    List {
        /// The file.
        source: PathBuf,
    },
    /// Each batch of points follows from the results of those before.
    Search(Search),
}

/// Where a worker finds the scripts that run engines.
pub const ENGINES: &str = "/campaign/engine";
/// Where a worker finds the engine's Python environment.
pub const PYTHON: &str = "/campaign/python";

/// A program that Slipway brings along: [`Run::command`] runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its kind.
    pub kind: EngineKind,
    /// Python packages, each with its version.
    pub packages: Vec<String>,
}

/// A kind of engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineKind {
    /// A function of the user's own.
    Python {
        /// The input that has it.
        file: PathBuf,
        /// Its name.
        function: String,
    },
    /// `EnergyPlus`, for a model and a weather file among the inputs.
    EnergyPlus {
        /// Whether it runs the whole year of the weather file.
        annual: bool,
    },
    /// `OpenStudio`'s SDK, which translates a model for `EnergyPlus`.
    OpenStudioModel {
        /// Whether `EnergyPlus` runs the whole year of the weather file.
        annual: bool,
    },
    /// An `OpenStudio` workflow.
    OpenStudioWorkflow {
        /// The arguments that points set, each as measure and argument.
        arguments: Vec<(String, String)>,
    },
}

/// The program of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The program and its arguments; `{variable}` stands for the point's value.
    pub command: Vec<Template>,
    /// Environment added for the program.
    pub env: BTreeMap<String, Template>,
    /// The engine that the command runs, if it is no program of the user's own.
    pub engine: Option<Engine>,
}

/// A result to extract from a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The name: a letter or `_`, then letters, digits, `_` and `.`.
    pub name: String,
    /// Unit for plots; empty without one.
    pub unit: String,
    /// The file in the point's folder; `None`: the program's standard output.
    pub file: Option<PathBuf>,
    /// The part of the file.
    pub pick: Pick,
}

/// The part of a file that is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The first group of the first match of a regular expression.
    Regex(String),
    /// A JSON path (RFC 9535) that selects one value, or a list of numbers: a time series.
    JsonPath(String),
    /// The last value in the column of a CSV file.
    Column(String),
    /// All values in the column of a CSV file: a time series.
    Series(String),
    /// The first value of the first row of a query, read from an SQLite file.
    Sql(String),
    /// The first value of each row of a query: a time series.
    SqlSeries(String),
    /// The size of the file in bytes.
    Size,
}

/// Attempts of a point, and their limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attempts {
    /// Attempts before a point is given up. At least 1.
    pub most: u32,
    /// Time of one attempt; `None`: learnt from the first points.
    pub timeout: Option<Seconds>,
    /// Time before the second attempt; it doubles with each further one.
    pub pause: Seconds,
}

/// The workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// The machines that they run on.
    pub place: Place,
    /// Most workers at once; `None`: as many as the machine's processors and memory allow.
    pub most: Option<u32>,
    /// Processors of one worker.
    pub cpus: Cores,
    /// Memory of one worker; `None`: learnt from the first points.
    pub memory: Option<Bytes>,
    /// Root file system: `host`, or an image's path.
    pub image: String,
    /// Whether workers have a network.
    pub network: bool,
    /// Time without work after which a worker ends.
    pub idle: Seconds,
}

/// The files of points that stay in storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Files of all points.
    #[default]
    All,
    /// Files of points that failed.
    Failures,
    /// No files: only the tables of results.
    Tables,
}

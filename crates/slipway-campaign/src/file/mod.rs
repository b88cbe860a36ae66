//! The campaign file as it is written. These types are the whole grammar. The reader follows them, and the JSON Schema is
//! made of them, so editors show these comments.

mod baseline;
mod design;
mod engine;
mod objective;
mod output;
mod search;
mod storage;
mod variable;

use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::{Named, Spanned};
use slipway_document::units::{Bytes, Cores, Seconds};

pub(crate) use self::baseline::Baseline;
pub(crate) use self::design::{Design, Fast, Lhs, Morris, Saltelli, Settings, Word};
pub(crate) use self::engine::{EnergyPlus, Engines, OpenStudio, PythonFunction};
pub(crate) use self::objective::{Constraint, Goal, Objective, ObjectiveSettings};
pub(crate) use self::output::{Output, OutputSettings, Taken};
pub(crate) use self::search::{Bayesian, Evolution};
pub(crate) use self::storage::{Storage, StorageSettings};
pub(crate) use self::variable::{Choices, Gauss, Scalar, Shape, Variable};
use crate::model::Keep;

/// A Slipway campaign: one program, run at many points of a design.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a campaign: a map with the key `run`")]
#[schemars(title = "Slipway campaign file")]
pub(crate) struct File {
    /// The campaign's name. The file's name when left out.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,31}$"))]
    pub(crate) campaign: Option<Spanned<String>>,
    /// Seed of the design and of the points. 0 when left out.
    pub(crate) seed: Option<u64>,
    /// The program of a point and its arguments, in which `{variable}` stands for the point's value; or an engine.
    pub(crate) run: Spanned<Program>,
    /// Environment added for the program. `{variable}` stands for the point's value.
    #[serde(default)]
    pub(crate) env: Named<Scalar>,
    /// Files and folders that every point finds in its own folder.
    #[serde(default)]
    pub(crate) inputs: Inputs,
    /// Variables by name, each with its values.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[A-Za-z_][A-Za-z0-9_.]{0,127}$"}))]
    pub(crate) variables: Named<Option<Variable>>,
    /// The points: how many, and the values that each takes. One point of medians when left out.
    pub(crate) design: Option<Spanned<Design>>,
    /// A point that runs before all others: `true` for each variable's median, or values of variables. None when left out.
    pub(crate) baseline: Option<Baseline>,
    /// Results by name, each with the place where the program leaves it.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[A-Za-z_][A-Za-z0-9_.]{0,127}$"}))]
    pub(crate) outputs: Named<Option<Output>>,
    /// Outputs to improve, each with its direction or the number to come near to.
    #[serde(default)]
    pub(crate) objectives: Named<Option<Objective>>,
    /// Limits of outputs, for designs that search.
    #[serde(default)]
    pub(crate) constraints: Named<Option<Constraint>>,
    /// Attempts before a point counts as failed. 3 when left out.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) attempts: Option<Spanned<u32>>,
    /// Time after which an attempt is ended. Learnt from the first points when left out.
    pub(crate) timeout: Option<Spanned<Seconds>>,
    /// Pause before a point's second attempt, doubled for each further one. 1s when left out.
    pub(crate) pause: Option<Spanned<Seconds>>,
    /// Workers: most at once, or their settings. As many as the machine carries when left out.
    pub(crate) workers: Option<Workers>,
    /// The folder for state and results, or a bucket for results. `slipway-campaigns/NAME` when left out.
    pub(crate) storage: Option<Storage>,
    /// Files of points that stay in storage. `all` when left out.
    pub(crate) keep: Option<Keep>,
}

/// A program and its arguments, or an engine.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Program {
    /// One line, split into words as a shell does (quotes, but no variables and no wildcards).
    Line(String),
    /// A list of words.
    Words(Vec<String>),
    /// A program that Slipway brings along: Python, `EnergyPlus` or `OpenStudio`.
    Engine(Box<Engines>),
}

by_shape!(
    Program,
    "a command (a line, or a list of words), or an engine such as `{python: {file: model.py, function: simulate}}`",
    Text => Line,
    List => Words,
    Map => Engine,
);

/// Files and folders for each point.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Inputs {
    /// Paths relative to the campaign file. Each point finds the last part of the path in its folder.
    Paths(Vec<Spanned<String>>),
    /// Names in the point's folder, each with its path.
    Named(Named<Option<Input>>),
}

by_shape!(Inputs, "a list of paths, or a map from names to paths", List => Paths, Map => Named);

impl Default for Inputs {
    fn default() -> Self {
        Self::Paths(Vec::new())
    }
}

/// A file or folder for each point.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Input {
    /// Its path, relative to the campaign file.
    Path(Spanned<String>),
    /// A path with settings.
    Settings(InputSettings),
}

by_shape!(Input, "an input: a path, or a map with `path`", Text => Path, Map => Settings);

/// An input's settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an input: a map with `path`")]
pub(crate) struct InputSettings {
    /// Path of the file or folder, relative to the campaign file.
    pub(crate) path: Spanned<String>,
    /// `true`: `{variable}` in the file stands for the point's value.
    pub(crate) template: Option<bool>,
}

/// The workers.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Workers {
    /// Most workers at once.
    Most(Spanned<u32>),
    /// Settings.
    Settings(Box<WorkerSettings>),
}

by_shape!(Workers, "a number of workers, or a map of settings", Number => Most, Map => Settings);

/// Settings of workers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "settings of workers: a map")]
pub(crate) struct WorkerSettings {
    /// The machines that workers run on. This one when left out.
    pub(crate) on: Option<Spanned<Place>>,
    /// Most workers at once. As many as processors and memory allow when left out; with Slurm it must be there.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max: Option<Spanned<u32>>,
    /// Processors of one worker. `1 core` when left out.
    pub(crate) cpus: Option<Spanned<Cores>>,
    /// Memory of one worker. Learnt from the first points when left out.
    pub(crate) memory: Option<Spanned<Bytes>>,
    /// Root file system: a directory, an archive or an OCI layout, relative to the campaign file. `host` when left out.
    pub(crate) image: Option<Spanned<String>>,
    /// `true`: workers share a network. They have none when left out.
    pub(crate) network: Option<bool>,
    /// Time without work after which a worker ends. 10s when left out.
    pub(crate) idle: Option<Spanned<Seconds>>,
    /// Slurm's partition. Slurm's own choice when left out.
    pub(crate) partition: Option<Spanned<String>>,
    /// Time limit of a worker's job. The partition's when left out.
    pub(crate) time: Option<Spanned<Seconds>>,
    /// Address and port where the coordinator listens for workers on other machines. Any free port when left out.
    pub(crate) listen: Option<Spanned<String>>,
}

/// The machines that workers run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// This machine.
    Here,
    /// Machines of a Slurm cluster: each worker is a job.
    Slurm,
}

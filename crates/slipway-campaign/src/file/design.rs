use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::Spanned;

use super::search::{Bayesian, Evolution};

/// A design of the experiment.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Design {
    /// A design that needs no number.
    Word(Word),
    /// A design with its size.
    Settings(Box<Settings>),
}

by_shape!(Design, "a design: `grid`, `oat`, or a map such as `lhs: 200`", Text => Word, Map => Settings);

/// A design that needs no number.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    /// Every combination of values.
    Grid,
    /// One variable at a time.
    Oat,
}

/// A design: exactly one key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a design: a map such as `lhs: 200`")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct Settings {
    /// Every combination; a continuous variable takes so many levels.
    pub(crate) grid: Option<Spanned<Levels>>,
    /// One variable at a time, from the medians.
    pub(crate) oat: Option<Spanned<Levels>>,
    /// Independent random points.
    pub(crate) random: Option<Spanned<Points>>,
    /// A Latin hypercube.
    pub(crate) lhs: Option<Spanned<Lhs>>,
    /// Sobol's sequence with Owen's scrambling. Powers of two are best.
    pub(crate) sobol: Option<Spanned<Points>>,
    /// Halton's sequence with Owen's scrambling.
    pub(crate) halton: Option<Spanned<Points>>,
    /// Morris' elementary effects.
    pub(crate) morris: Option<Spanned<Morris>>,
    /// Saltelli's matrices, for Sobol' indices.
    pub(crate) saltelli: Option<Spanned<Saltelli>>,
    /// Extended FAST.
    pub(crate) fast: Option<Spanned<Fast>>,
    /// The medians again and again, each with a seed of its own.
    pub(crate) repeat: Option<Spanned<Points>>,
    /// A file of points (CSV or Parquet) with variables' names as its header, relative to the campaign file.
    pub(crate) list: Option<Spanned<String>>,
    /// A search for objectives: the genetic algorithm NSGA-II.
    pub(crate) nsga2: Option<Spanned<Evolution>>,
    /// A search for objectives: the genetic algorithm SPEA2.
    pub(crate) spea2: Option<Spanned<Evolution>>,
    /// A search for one objective: a particle swarm.
    pub(crate) pso: Option<Spanned<Evolution>>,
    /// A search for one objective: a Gaussian process chooses each point. For programs that take long.
    pub(crate) bayesian: Option<Spanned<Bayesian>>,
}

/// A number of points.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Points(pub(crate) u64);

/// Levels of each continuous variable.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Levels(pub(crate) u32);

/// A Latin hypercube's size.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Lhs {
    /// Number of points.
    Points(u64),
    /// Settings.
    Settings(LhsSettings),
}

by_shape!(Lhs, "a number of points, or a map with `points`", Number => Points, Map => Settings);

/// A Latin hypercube's settings.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with `points`")]
pub(crate) struct LhsSettings {
    /// Number of points.
    pub(crate) points: u64,
    /// `true`: the smallest distance between points is made large.
    pub(crate) maximin: Option<bool>,
}

/// The size of Morris' design.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Morris {
    /// Number of trajectories.
    Trajectories(u64),
    /// Settings.
    Settings(MorrisSettings),
}

by_shape!(Morris, "a number of trajectories, or a map with `trajectories`", Number => Trajectories, Map => Settings);

/// Settings of Morris' design.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with `trajectories`")]
pub(crate) struct MorrisSettings {
    /// Number of trajectories.
    pub(crate) trajectories: u64,
    /// Levels of the grid, an even number. 4 when left out.
    pub(crate) levels: Option<u32>,
}

/// The size of Saltelli's design.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Saltelli {
    /// Base samples.
    Samples(u64),
    /// Settings.
    Settings(SaltelliSettings),
}

by_shape!(Saltelli, "a number of base samples, or a map with `samples`", Number => Samples, Map => Settings);

/// Settings of Saltelli's design.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with `samples`")]
pub(crate) struct SaltelliSettings {
    /// Base samples. Powers of two are best.
    pub(crate) samples: u64,
    /// `true`: indices of pairs too, for about twice the points.
    pub(crate) second_order: Option<bool>,
}

/// The size of a FAST design.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Fast {
    /// Points of each variable's curve.
    Samples(u64),
    /// Settings.
    Settings(FastSettings),
}

by_shape!(Fast, "a number of points of each curve, or a map with `samples`", Number => Samples, Map => Settings);

/// Settings of a FAST design.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with `samples`")]
pub(crate) struct FastSettings {
    /// Points of each variable's curve.
    pub(crate) samples: u64,
    /// Harmonics to sum. 4 when left out.
    pub(crate) harmonics: Option<u32>,
}

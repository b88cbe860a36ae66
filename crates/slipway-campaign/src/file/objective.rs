use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::Spanned;

/// The wish for an output.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Objective {
    /// `minimize` or `maximize`.
    Goal(Goal),
    /// The number that the output should come near to.
    Target(f64),
    /// Settings.
    Settings(Box<Spanned<ObjectiveSettings>>),
}

by_shape!(
    Objective,
    "an objective: `minimize`, `maximize`, a number to come near to, or a map such as `{goal: minimize, scale: 10}`",
    Text => Goal,
    Decimal => Target,
    Map => Settings,
);

/// The direction of an objective.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Goal {
    /// Less is better.
    Minimize,
    /// More is better.
    Maximize,
}

/// An objective's settings: one of `goal` and `target`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an objective: a map with `goal` or `target`")]
pub(crate) struct ObjectiveSettings {
    /// `minimize` or `maximize`.
    pub(crate) goal: Option<Goal>,
    /// The number that the output should come near to.
    pub(crate) target: Option<f64>,
    /// The objective is divided by this number. 1 when left out.
    pub(crate) scale: Option<Spanned<f64>>,
    /// Objectives with the same group count as one: their sum or, where they have targets, the distance to all targets.
    pub(crate) group: Option<Spanned<String>>,
}

/// Limits of an output. A point outside of them counts as worse than each point within.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a constraint: a map such as `{max: 200}`")]
pub(crate) struct Constraint {
    /// Least number.
    pub(crate) min: Option<f64>,
    /// Greatest number.
    pub(crate) max: Option<f64>,
}

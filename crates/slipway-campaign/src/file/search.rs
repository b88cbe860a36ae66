use schemars::JsonSchema;
use serde::Deserialize;

/// The size of a search by generations.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map such as `{population: 20, generations: 10}`")]
pub(crate) struct Evolution {
    /// Points of each generation, which run at the same time as far as there are workers.
    #[schemars(range(min = 2, max = 10_000))]
    pub(crate) population: u64,
    /// Evolution, the first one included.
    #[schemars(range(min = 1))]
    pub(crate) generations: u64,
    /// Value of each objective at a point that failed. The worst value so far when left out.
    pub(crate) failed: Option<f64>,
}

/// The size of a Bayesian search.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map such as `{points: 40, initial: 10}`")]
pub(crate) struct Bayesian {
    /// All points.
    #[schemars(range(min = 1))]
    pub(crate) points: u64,
    /// Points of a Latin hypercube that the search begins with. 10, or as many as there are points, when left out.
    #[schemars(range(min = 1))]
    pub(crate) initial: Option<u64>,
    /// Points that are chosen, and run, at once. 1 when left out.
    #[schemars(range(min = 1))]
    pub(crate) at_once: Option<u64>,
    /// Value of the objective at a point that failed. The worst value so far when left out.
    pub(crate) failed: Option<f64>,
}

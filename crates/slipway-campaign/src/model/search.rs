//! Designs whose points follow from results.

use serde::{Deserialize, Serialize};

/// A search for objectives: each batch of points follows from the results of those before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The method.
    pub method: Method,
    /// Points of the first batch.
    pub first: u64,
    /// Points of each further batch.
    pub batch: u64,
    /// Most points of all batches. The last batch may be cut short.
    pub points: u64,
    /// Value of each objective at a point that failed; `None`: the worst so far.
    pub failed: Option<f64>,
}

/// The method of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The genetic algorithm NSGA-II, for one or more objectives.
    Nsga2,
    /// The genetic algorithm SPEA2, for one or more objectives.
    Spea2,
    /// A particle swarm, for one objective.
    Pso,
    /// A Gaussian process, for one objective.
    Bayesian,
}

impl Method {
    /// The key in campaign files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nsga2 => "nsga2",
            Self::Spea2 => "spea2",
            Self::Pso => "pso",
            Self::Bayesian => "bayesian",
        }
    }

    /// Whether the method takes more than one objective.
    #[must_use]
    pub fn takes_several(self) -> bool {
        matches!(self, Self::Nsga2 | Self::Spea2)
    }
}

impl Search {
    /// Number of batches.
    #[must_use]
    pub fn batches(&self) -> u64 {
        1 + self.points.saturating_sub(self.first).div_ceil(self.batch)
    }

    /// Points of one unit of its size: of a generation, or of a point of a Bayesian search.
    #[must_use]
    pub fn unit(&self) -> u64 {
        if self.method == Method::Bayesian { 1 } else { self.batch }
    }
}

/// The wish for an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// Index of the output.
    pub output: usize,
    /// The direction.
    pub goal: Goal,
    /// The objective is divided by this. Positive.
    pub scale: f64,
    /// Objectives of one group count as one.
    pub group: Option<String>,
}

impl Objective {
    /// The value, in the output's own terms, that stands behind a score of this objective alone: the output itself, or its
    /// distance from the target.
    #[must_use]
    pub fn value(&self, score: f64) -> f64 {
        match self.goal {
            Goal::Minimize | Goal::Target(_) => score * self.scale,
            Goal::Maximize => -score * self.scale,
        }
    }
}

/// The direction of an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Less is better.
    Minimize,
    /// More is better.
    Maximize,
    /// The nearer to this number the better.
    Target(f64),
}

/// Limits of an output: a point outside of them is worse than each point within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constraint {
    /// Index of the output.
    pub output: usize,
    /// Least number; minus infinity without one.
    pub min: f64,
    /// Greatest number; infinity without one.
    pub max: f64,
}

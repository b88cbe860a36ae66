//! The history of a search: the points that it chose, and the scores that it learnt.
//!
//! An optimiser that gets the same history is in the same state. So a search goes on from its history, whatever ended.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use slipway_campaign::score::Score;
use slipway_campaign::value::Value;

use super::StoreError;

/// Points that a search chose together.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Their numbers.
    pub points: Range<u64>,
    /// Coordinates of each, as the optimiser gave them.
    pub coordinates: Vec<Vec<f64>>,
    /// Scores of each, once all points had ended and the optimiser could learn them.
    pub scores: Option<Vec<Learnt>>,
}

/// A score as an optimiser learnt it. It stays, also where the point runs again later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// The score.
    #[serde(flatten)]
    pub score: Score,
    /// Whether the point had failed, or its results were no numbers. The score stands for a bad one then.
    pub failed: bool,
}

/// A batch that a search has learnt from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// Its number, from 0.
    pub batch: u64,
    /// Its points.
    pub points: u64,
    /// Points of it that failed.
    pub failed: u64,
    /// The least score so far, where there is one objective.
    pub least: Option<f64>,
    /// The volume between all scores so far and the worst ones of the first batch, where there are more objectives.
    pub volume: Option<f64>,
}

/// The history of a search, in a campaign's queue.
pub trait History {
    /// The end of the points that may ever be given out: of those that a search has chosen, where there is one.
    fn chosen(&self) -> Result<u64, StoreError>;

    /// Keeps back all points that the search has not chosen. The baseline, if there is one, is point 0 and needs no choice.
    fn hold(&mut self, baseline: Option<&[Value]>) -> Result<(), StoreError>;

    /// A batch, by its number from 0.
    fn batch(&self, number: u64) -> Result<Option<Batch>, StoreError>;

    /// Adds a batch after all others, and lets its points be given out: coordinates and values of each.
    fn choose(&mut self, points: &[(Vec<f64>, Vec<Value>)]) -> Result<Batch, StoreError>;

    /// Points of a batch that have not ended.
    fn pending(&self, points: &Range<u64>) -> Result<u64, StoreError>;

    /// Notes the scores that the search learns from a batch, and the least one so far.
    fn learn(&mut self, batch: u64, scores: &[Learnt], least: Option<f64>) -> Result<(), StoreError>;

    /// Notes that the optimiser has learnt a batch, and the volume after it.
    fn measure(&mut self, batch: u64, volume: Option<f64>) -> Result<(), StoreError>;

    /// Ends the campaign with the points that were chosen: there are no more to choose.
    fn exhaust(&mut self) -> Result<(), StoreError>;

    /// The values of a point that the search chose.
    fn values(&self, point: u64) -> Result<Option<Vec<Value>>, StoreError>;

    /// Batches that the search has learnt from, in order.
    fn steps(&self) -> Result<Vec<Step>, StoreError>;

    /// The last batch that the search has learnt from.
    fn step(&self) -> Result<Option<Step>, StoreError>;

    /// Points that wait and that may be given out.
    fn ready(&self) -> Result<u64, StoreError>;
}

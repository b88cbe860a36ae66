//! Designs that search: the optimiser's library, and the best points.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use slipway_campaign::model::{Campaign, Method};
use slipway_campaign::score::{self, Score};
use slipway_campaign::value::Value;
use slipway_coordinator::store::{History as _, Step};

use super::{CampaignError, Study, engine, results};
use crate::Events;

/// Libraries of the genetic algorithms and the particle swarm, with those that their numbers come from.
const PYMOO: [&str; 4] = ["pymoo==0.6.2", "moocore==0.3.2", "numpy==2.4.6", "scipy==1.17.1"];
/// Libraries of the Bayesian search.
const BAYES: [&str; 4] = ["bayesian-optimization==3.4.0", "scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1"];

/// A point that no other is better than by all objectives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// The point.
    pub point: u64,
    /// Its variables.
    pub variables: Map<String, Json>,
    /// Its outputs.
    pub outputs: Map<String, Json>,
    /// Its scores by the objectives' names; less is better.
    pub scores: Map<String, Json>,
    /// Whether all constraints hold. No point that breaks one is among the best, unless all do.
    pub feasible: bool,
}

/// The interpreter with the optimiser's library, which is fetched once; `None` for designs that do not search.
pub(super) fn python(campaign: &Campaign, events: &mut Events<'_>) -> Result<Option<PathBuf>, CampaignError> {
    let Some(search) = campaign.search() else { return Ok(None) };
    let packages = if search.method == Method::Bayesian { BAYES } else { PYMOO };
    Ok(Some(engine::made(&packages, events)?.python()))
}

/// The best points so far: the Pareto front or, with one objective, those with the best value.
///
/// # Errors
/// Of the queue.
pub fn best(study: &Study) -> Result<Vec<Best>, CampaignError> {
    let campaign = &study.campaign;
    let (mut scores, mut rows): (Vec<Score>, Vec<_>) = Default::default();
    let columns = results::columns(study);
    let outputs = 1 + campaign.variables.len()..1 + campaign.variables.len() + campaign.outputs.len();
    results::rows::<CampaignError>(study, &mut |cells| {
        if let Some(score) = score::score(campaign, &cells[outputs.clone()]) {
            scores.push(score);
            rows.push(cells);
        }
        Ok(())
    })?;
    let names = score::names(campaign);
    let best = |index: usize| {
        let (cells, score) = (&rows[index], &scores[index]);
        let part = |range: std::ops::Range<usize>| {
            columns[range.clone()].iter().cloned().zip(cells[range].iter().map(|cell| json!(cell))).collect()
        };
        Best {
            point: match cells[0] {
                Some(Value::Integer(point)) => point.unsigned_abs(),
                _ => unreachable!("the first column is the point"),
            },
            variables: part(1..outputs.start),
            outputs: part(outputs.clone()),
            scores: names.iter().cloned().zip(score.objectives.iter().map(|number| json!(number))).collect(),
            feasible: score.is_feasible(),
        }
    };
    let mut front: Vec<Best> = score::front(&scores).into_iter().map(best).collect();
    front.sort_by_key(|best| best.point);
    Ok(front)
}

/// Batches that a search has learnt from.
///
/// # Errors
/// Of the queue.
pub fn steps(study: &Study) -> Result<Vec<Step>, CampaignError> {
    Ok(results::store(study)?.steps()?)
}

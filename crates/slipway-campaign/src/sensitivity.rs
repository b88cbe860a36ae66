//! Sensitivity: how much each variable matters to a result.
//!
//! [`analyse`] takes the measures that the campaign's design was made for. Points without a result are left out, with those
//! that are useless without them, and counted.

mod estimate;
pub mod fast;
mod matrix;
pub mod morris;
pub mod sample;
mod spectrum;
pub mod variance;

pub use estimate::Estimate;

use serde::{Deserialize, Serialize};

use crate::design::Plan;
use crate::model::{Campaign, Design, Distribution};
use crate::value::Value;

/// How much each variable matters to one result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Points that the measures come from.
    pub used: u64,
    /// Points that they leave out: those without a number as result, and the rest of their trajectory, sample or curve.
    pub dropped: u64,
    /// The measures.
    pub measures: Measures,
}

/// The measures of a design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measures {
    /// Of Morris' design.
    Morris(Vec<Named<morris::Effect>>),
    /// Of Saltelli's design.
    Variance {
        /// Indices of each variable.
        variables: Vec<Named<variance::Index>>,
        /// Indices of pairs of variables, where the design has them.
        pairs: Vec<Named<Estimate>>,
    },
    /// Of FAST.
    Fast(Vec<Named<fast::Index>>),
    /// Of every other sample.
    Sample {
        /// Relations of each variable to the result.
        variables: Vec<Named<sample::Relation>>,
        /// Share of the result's variance that a straight line in all variables explains; `None` where a variable follows
        /// from the others.
        r_squared: Option<f64>,
    },
}

/// Measures of a variable, or of a pair of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named<T> {
    /// The variable's name; those of a pair with ` × ` between them.
    pub name: String,
    /// Its measures.
    #[serde(flatten)]
    pub of: T,
}

/// Results that say nothing about sensitivity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SensitivityError {
    /// The design has no measure of sensitivity.
    #[error(
        "analyse: the design compares no variables over their range\nHint: take the design `morris` to screen variables, or `saltelli` for shares of variance"
    )]
    Design,
    /// The points crowd where results are good.
    #[error(
        "analyse: the design is a search, so its points crowd where results are good and are no fair sample\nHint: run the same file with the design `morris` or `saltelli`, under another `campaign:` name"
    )]
    Search,
    /// There are too few results.
    #[error(
        "analyse: {there} complete {unit} have results, and {needed} are needed\nHint: wait for more points, or extend the campaign"
    )]
    Few {
        /// Complete units with results.
        there: u64,
        /// Fewest.
        needed: u64,
        /// The unit, as a plural.
        unit: &'static str,
    },
    /// All results are the same.
    #[error("analyse: all results are the same, so no variable matters")]
    Constant,
}

/// The measures of a campaign's design for one result of each point, by the point's number.
///
/// Results may be fewer than points. Where one is `None`, or not finite, its point failed or is to come.
///
/// # Errors
/// Where the design has no measures, or results are too few or all the same.
pub fn analyse(campaign: &Campaign, plan: &Plan, results: &[Option<f64>]) -> Result<Analysis, SensitivityError> {
    // The baseline is no point of the design.
    let lead = plan.lead();
    let results = results.iter().skip(usize::from(lead > 0));
    let results: Vec<Option<f64>> = results.map(|result| result.filter(|number| number.is_finite())).collect();
    let varying = || campaign.variables.iter().filter(|variable| variable.distribution.varies());
    let names: Vec<&str> = varying().map(|variable| variable.name.as_str()).collect();
    let (used, measures) = match campaign.design {
        Design::Morris { levels, .. } => {
            let points = (lead..).take(results.len()).filter_map(|index| plan.coordinates(index));
            let points: Vec<Vec<f64>> = points.collect();
            let (used, effects) = morris::effects(&points, &results, levels)?;
            (used, Measures::Morris(named(&names, effects)))
        }
        Design::Saltelli { second_order, .. } => {
            let (used, variables, pairs) = variance::indices(names.len(), second_order, &results)?;
            let pair = |((one, other), of): ((usize, usize), Estimate)| {
                let name = format!("{} × {}", names[one], names[other]);
                Named { name, of }
            };
            let pairs = pairs.into_iter().map(pair).collect();
            (used, Measures::Variance { variables: named(&names, variables), pairs })
        }
        Design::Fast { samples, harmonics } => {
            let (used, curves) = fast::indices(samples, harmonics, &results)?;
            let known = names.iter().zip(curves).filter_map(|(name, index)| Some((*name, index?)));
            (used, Measures::Fast(known.map(|(name, of)| Named { name: name.to_owned(), of }).collect()))
        }
        Design::Oat { .. } | Design::Repeat { .. } => return Err(SensitivityError::Design),
        Design::Search(_) => return Err(SensitivityError::Search),
        _ => {
            let (points, results): (Vec<Vec<f64>>, Vec<f64>) = (lead..)
                .zip(&results)
                .filter_map(|(index, result)| {
                    let values = plan.point(index);
                    let codes = campaign.variables.iter().zip(&values);
                    let codes = codes.filter(|(variable, _)| variable.distribution.varies());
                    let codes = codes.map(|(variable, value)| code(&variable.distribution, value));
                    Some((codes.collect::<Option<Vec<_>>>()?, (*result)?))
                })
                .unzip();
            let (relations, r_squared) = sample::relations(&points, &results)?;
            (results.len(), Measures::Sample { variables: named(&names, relations), r_squared })
        }
    };
    Ok(Analysis { used: used as u64, dropped: (results.len() - used) as u64, measures })
}

/// The value as a number. Choices among texts count from 0, in the campaign's order.
fn code(distribution: &Distribution, value: &Value) -> Option<f64> {
    match distribution {
        Distribution::Choices(choices) if choices.iter().any(|(choice, _)| choice.number().is_none()) => {
            choices.iter().position(|(choice, _)| choice == value).map(|place| place as f64)
        }
        _ => value.number(),
    }
}

fn named<T>(names: &[&str], of: Vec<T>) -> Vec<Named<T>> {
    names.iter().zip(of).map(|(name, of)| Named { name: (*name).to_owned(), of }).collect()
}

/// The numbers of the blocks of `size` results that are complete, with their results.
fn complete(results: &[Option<f64>], size: usize) -> Vec<(usize, Vec<f64>)> {
    let blocks = results.chunks_exact(size).enumerate();
    blocks.filter_map(|(number, block)| Some((number, block.iter().copied().collect::<Option<Vec<_>>>()?))).collect()
}

fn at_least(needed: usize, there: usize, unit: &'static str) -> Result<(), SensitivityError> {
    if there >= needed {
        return Ok(());
    }
    Err(SensitivityError::Few { there: there as u64, needed: needed as u64, unit })
}

#[cfg(test)]
mod tests;

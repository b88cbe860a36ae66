//! Sobol' indices, from Saltelli's design.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, Spread, bootstrap};
use super::{SensitivityError, at_least, complete};
use crate::design::saltelli::block;

/// Shares of the result's variance that come from a variable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// By the variable alone (S1).
    pub first: Estimate,
    /// With all its interactions (ST).
    pub total: Estimate,
}

/// Estimates of pairs of variables, by the numbers of both.
pub type Pairs = Vec<((usize, usize), Estimate)>;

/// The number of points used, indices of each variable, and with `second_order` those of pairs: what both give together
/// beyond what each gives (S2).
///
/// Results are in the order of [`Saltelli`](crate::design::saltelli::Saltelli). A base sample that lacks a result is left
/// out. S1: Saltelli et al., "Variance based sensitivity analysis of model output" (2010), table 2(b). ST: Jansen, "Analysis
/// of variance designs for model output" (1999). S2: Saltelli, "Making best use of model evaluations to compute sensitivity
/// indices" (2002).
///
/// # Errors
/// With fewer than two complete base samples, or where all results are the same.
pub fn indices(
    variables: usize,
    second_order: bool,
    results: &[Option<f64>],
) -> Result<(usize, Vec<Index>, Pairs), SensitivityError> {
    // A block beyond memory has no complete results.
    let size = usize::try_from(block(variables, second_order)).unwrap_or(usize::MAX);
    let samples: Vec<Vec<f64>> = complete(results, size).into_iter().map(|(_, block)| block).collect();
    at_least(2, samples.len(), "base samples")?;
    // Estimates of products are biased where the mean is far from 0.
    let spread: Spread = samples.iter().flatten().copied().collect();
    let scale = libm::sqrt(spread.variance());
    if scale <= 0.0 {
        return Err(SensitivityError::Constant);
    }
    let scaled = |sample: Vec<f64>| sample.into_iter().map(|result| (result - spread.mean) / scale).collect();
    let samples: Vec<Vec<f64>> = samples.into_iter().map(scaled).collect();
    let all = (0..variables).flat_map(|one| (one + 1..variables).map(move |other| (one, other)));
    let pairs: Vec<(usize, usize)> = all.filter(|_| second_order).collect();
    let mut estimates = bootstrap(samples.len(), samples.len(), |picks| {
        let mean =
            |of: &dyn Fn(&[f64]) -> f64| picks.iter().map(|pick| of(&samples[*pick])).sum::<f64>() / picks.len() as f64;
        let (a, b) = (0, size - 1);
        let ends: Spread = picks.iter().flat_map(|pick| [samples[*pick][a], samples[*pick][b]]).collect();
        let share = |part: f64| if ends.variance() > f64::EPSILON { part / ends.variance() } else { 0.0 };
        let first = |of: usize| share(mean(&|y| y[b] * (y[1 + of] - y[a])));
        let total = |of: usize| share(0.5 * mean(&|y| (y[a] - y[1 + of]) * (y[a] - y[1 + of])));
        let firsts: Vec<f64> = (0..variables).map(first).collect();
        let totals = (0..variables).map(total);
        let seconds = pairs.iter().map(|(one, other)| {
            let both = share(mean(&|y| y[1 + variables + one] * y[1 + other] - y[a] * y[b]));
            both - firsts[*one] - firsts[*other]
        });
        firsts.iter().copied().chain(totals).chain(seconds).collect()
    });
    let seconds = pairs.into_iter().zip(estimates.split_off(2 * variables)).collect();
    let totals = estimates.split_off(variables);
    let indices = estimates.into_iter().zip(totals).map(|(first, total)| Index { first, total }).collect();
    Ok((samples.len() * size, indices, seconds))
}

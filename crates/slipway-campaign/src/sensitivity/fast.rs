//! Indices of the extended Fourier amplitude sensitivity test.

use serde::{Deserialize, Serialize};

use super::estimate::Spread;
use super::spectrum::Spectrum;
use super::{SensitivityError, at_least, complete};
use crate::design::fast::high_frequency;

/// Shares of the result's variance that come from a variable. Intervals are not known: the points of a curve depend on each
/// other, and SALib's bootstrap over them is unreliable (its issue 649).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// By the variable alone (S1).
    pub first: f64,
    /// With all its interactions (ST).
    pub total: f64,
}

/// The number of points used, and each variable's indices: `None` where its curve lacks a result.
///
/// Saltelli, Tarantola, Chan, "A Quantitative Model-Independent Method for Global Sensitivity Analysis of Model Output" (1999).
///
/// # Errors
/// Where no curve is complete, or all results are the same.
pub fn indices(
    samples: u64,
    harmonics: u32,
    results: &[Option<f64>],
) -> Result<(usize, Vec<Option<Index>>), SensitivityError> {
    // A curve beyond memory has no complete results.
    let [frequency, samples] =
        [high_frequency(samples, harmonics), samples].map(|of| usize::try_from(of).unwrap_or(usize::MAX));
    let curves = complete(results, samples);
    at_least(1, curves.len(), "curves")?;
    if curves.iter().all(|(_, curve)| curve.iter().copied().collect::<Spread>().variance() <= 0.0) {
        return Err(SensitivityError::Constant);
    }
    let mut indices = vec![None; results.len() / samples];
    for (number, curve) in &curves {
        indices[*number] = Some(of_curve(curve, frequency, harmonics as usize));
    }
    Ok((curves.len() * samples, indices))
}

fn of_curve(curve: &[f64], frequency: usize, harmonics: usize) -> Index {
    let spread: Spread = curve.iter().copied().collect();
    let spectrum = Spectrum::new(curve);
    // An even number of points has one frequency that is its own negative.
    let alone = if curve.len().is_multiple_of(2) { spectrum.power(curve.len() / 2) } else { 0.0 };
    let variance = spread.variance() - alone;
    if variance <= 0.0 {
        return Index { first: 0.0, total: 0.0 };
    }
    let own: f64 = (1..=harmonics).map(|harmonic| spectrum.power(harmonic * frequency)).sum();
    let others: f64 = (1..=frequency / 2).map(|low| spectrum.power(low)).sum();
    Index { first: 2.0 * own / variance, total: 1.0 - 2.0 * others / variance }
}

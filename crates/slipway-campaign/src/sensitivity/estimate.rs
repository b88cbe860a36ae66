//! Estimates with their intervals.

use serde::{Deserialize, Serialize};

use crate::hash::{below, hash};

/// The normal distribution's 97.5th percentile: intervals of 95 %.
pub(super) const Z: f64 = 1.959_963_984_540_054;

/// Bootstrap resamples. The width of an interval is then within 10 %, 19 times of 20.
const RESAMPLES: u64 = 200;

/// A figure, and the interval that contains the true one with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Low end of the interval.
    pub low: f64,
    /// High end of the interval.
    pub high: f64,
}

impl Estimate {
    /// An interval of `half` on each side.
    pub(super) fn around(value: f64, half: f64) -> Self {
        Self { value, low: value - half, high: value + half }
    }

    /// A correlation whose inverse hyperbolic tangent has this standard error.
    ///
    /// Fisher, "On the 'probable error' of a coefficient of correlation" (1921).
    pub(super) fn correlation(value: f64, error: f64) -> Self {
        let centre = libm::atanh(value.clamp(-1.0, 1.0));
        Self { value, low: libm::tanh(centre - Z * error), high: libm::tanh(centre + Z * error) }
    }
}

/// The statistics of all of `count` units, with normal intervals from resamples of `picked` units (with replacement).
///
/// Efron, Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
pub(super) fn bootstrap(count: usize, picked: usize, statistics: impl Fn(&[usize]) -> Vec<f64>) -> Vec<Estimate> {
    let all: Vec<usize> = (0..count).collect();
    let draw =
        |resample, place| usize::try_from(below(hash(&[resample, place]), count as u64)).expect("below a length");
    let mut spreads: Vec<Spread> = Vec::new();
    let mut picks = vec![0; picked];
    for resample in 0..RESAMPLES {
        (0..).zip(&mut picks).for_each(|(place, pick)| *pick = draw(resample, place));
        let found = statistics(&picks);
        spreads.resize(found.len(), Spread::default());
        spreads.iter_mut().zip(found).for_each(|(spread, value)| spread.add(value));
    }
    let estimates = statistics(&all).into_iter().zip(spreads);
    estimates.map(|(value, spread)| Estimate::around(value, Z * spread.deviation())).collect()
}

/// Standard deviation of a stream of numbers (Welford 1962).
#[derive(Clone, Copy, Default)]
pub(super) struct Spread {
    count: f64,
    pub(super) mean: f64,
    squares: f64,
}

impl Spread {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    /// Of a sample: with one degree of freedom less than numbers.
    pub(super) fn deviation(&self) -> f64 {
        libm::sqrt(self.squares / (self.count - 1.0))
    }

    /// Of all there are.
    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut spread = Self::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }
}

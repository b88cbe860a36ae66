//! Statistics for a handful of runs: the median, its bootstrap interval, and the ratio to a baseline.
//!
//! Benchmarks on shared machines have outliers and no normal distribution, and few runs: so medians, and intervals
//! that assume nothing but that runs are exchangeable.
//!
//! # The method
//! * **Median and quartiles**: linear interpolation between order statistics, as R and `NumPy` do by default (type 7 of
//!   Hyndman and Fan, *Sample quantiles in statistical packages*, The American Statistician 50(4), 1996).
//! * **95 % interval of the median**: percentile bootstrap (B. Efron, *Bootstrap methods: another look at the
//!   jackknife*, Annals of Statistics 7(1), 1979; B. Efron and R. Tibshirani, *An Introduction to the Bootstrap*, 1993,
//!   chapter 13). It draws the runs again, with replacement, [`RESAMPLES`] times. The interval holds the middle 95 % of
//!   the medians of those draws.
//! * **Ratio to the baseline**: paired by round. The ratio is taken within each round, where both drivers met the same
//!   state of the machine, then its median and interval as above. A drift that slows a whole round cancels out.
//!   The pairing is that of a randomised block design; the bootstrap draws whole pairs (same book, chapter 8).
//! * **Within noise**: the interval of the ratio contains 1.
//! * **Too few**: below [`ENOUGH`] values there is no verdict. Not even the whole range of four values covers the
//!   median in 95 % of experiments (1 − 2·½⁴ = 87.5 %; for five it is 93.75 %).
//!
//! Random numbers come from `ChaCha8`, seeded by the caller: the same records give the same report to the last digit.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Bootstrap draws for each interval. Efron and Tibshirani ask for 1,000 or more for percentile intervals.
pub const RESAMPLES: usize = 5_000;

/// Values below which an interval of the median is not evidence enough for a verdict.
pub const ENOUGH: usize = 5;

/// A median and its 95 % bootstrap interval, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the values.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// The median of `values` and its interval. `None` when there is no value, or one that is not finite.
    #[must_use]
    pub fn of_median(values: &[f64], seed: u64) -> Option<Self> {
        let sorted = sorted(values)?;
        let medians = bootstrap_medians(&sorted, seed);
        Some(Self {
            median: quantile_of_sorted(&sorted, 0.5),
            low: quantile_of_sorted(&medians, 0.025),
            high: quantile_of_sorted(&medians, 0.975),
        })
    }

    /// The median of `value / baseline` over pairs from the same round, and its interval.
    ///
    /// `None` when there is no pair, or a baseline is zero: then there is no ratio to speak of.
    #[must_use]
    pub fn of_ratio(pairs: &[Pair], seed: u64) -> Option<Self> {
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.value / pair.baseline).collect();
        Self::of_median(&ratios, seed)
    }

    /// Whether the interval contains `value`.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Values of a driver and of the baseline in the same round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The driver's value.
    pub value: f64,
    /// The baseline's value, in the same unit.
    pub baseline: f64,
}

/// Lower quartile, median and upper quartile. `None` when there is no value, or one that is not finite.
#[must_use]
pub fn quartiles(values: &[f64]) -> Option<[f64; 3]> {
    let sorted = sorted(values)?;
    Some([0.25, 0.5, 0.75].map(|q| quantile_of_sorted(&sorted, q)))
}

/// The median. `None` when there is no value, or one that is not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    Some(quantile_of_sorted(&sorted(values)?, 0.5))
}

/// Ascending, so that results do not depend on the order of the runs.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// Type 7 quantile of a non-empty ascending slice.
// `rank` lies in 0 ..= len - 1; equal neighbours are the very same number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp)]
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let weight = rank - rank.floor();
    // This form cannot overflow, and gives the value itself where both neighbours are equal.
    let (low, high) = (sorted[below], sorted[above]);
    if low == high { low } else { low * (1.0 - weight) + high * weight }
}

/// The medians of [`RESAMPLES`] draws with replacement, ascending.
fn bootstrap_medians(sorted: &[f64], seed: u64) -> Vec<f64> {
    let n = sorted.len();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = vec![0_usize; n];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            draw.fill_with(|| random.random_range(0..n));
            // `sorted` ascends, so the order of the indices is the order of the values.
            let (below, &mut upper, _) = draw.select_nth_unstable(n / 2);
            if n % 2 == 1 {
                return sorted[upper];
            }
            let lower = below.iter().copied().max().unwrap_or(upper);
            quantile_of_sorted(&[sorted[lower], sorted[upper]], 0.5)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    medians
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(0.001..1e9_f64, 1..20)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    #[test]
    fn quartiles_are_those_of_r_and_numpy() {
        // R: quantile(c(7, 15, 36, 39, 40, 41))
        assert_eq!(quartiles(&[41.0, 7.0, 40.0, 15.0, 39.0, 36.0]), Some([20.25, 37.5, 39.75]));
        assert_eq!(median(&[3.0]), Some(3.0));
    }

    #[test]
    fn nothing_comes_of_nothing_or_of_what_is_not_a_number() {
        assert_eq!(Estimate::of_median(&[], 1), None);
        assert_eq!(Estimate::of_median(&[1.0, f64::NAN], 1), None);
        let zero = Pair { value: 1.0, baseline: 0.0 };
        assert_eq!(Estimate::of_ratio(&[zero], 1), None);
    }

    #[test]
    fn one_value_is_its_own_interval() {
        let estimate = Estimate::of_median(&[4.0], 9).unwrap();
        assert_eq!((estimate.low, estimate.median, estimate.high), (4.0, 4.0, 4.0));
    }

    #[test]
    fn the_interval_of_five_runs_is_their_range() {
        // P(the bootstrap median is the least of five) = 5.8 % by counting, above the 2.5 % cut.
        let estimate = Estimate::of_median(&[10.0, 11.0, 12.0, 13.0, 20.0], 1).unwrap();
        assert_eq!((estimate.low, estimate.high), (10.0, 20.0));
    }

    #[test]
    fn the_interval_agrees_with_the_exact_bootstrap_distribution() {
        // For odd n the bootstrap median's distribution is a binomial tail (Efron 1979, section 3). For n = 11 and
        // ranks 1..11: P(median ≤ rank 3) = 5.1 %, P(median ≤ rank 2) = 0.7 %, so the 95 % interval is ranks 3 to 9.
        let runs: Vec<f64> = (1..=11).map(f64::from).collect();
        let estimate = Estimate::of_median(&runs, 2).unwrap();
        assert_eq!((estimate.low, estimate.median, estimate.high), (3.0, 6.0, 9.0));
    }

    #[test]
    fn pairing_removes_a_drift_that_both_drivers_share() {
        let pairs: Vec<Pair> =
            [1.0, 2.0, 4.0, 8.0, 16.0].iter().map(|drift| Pair { value: 1.5 * drift, baseline: *drift }).collect();
        let ratio = Estimate::of_ratio(&pairs, 3).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.5, 1.5, 1.5));
        assert!(!ratio.contains(1.0));
    }

    proptest! {
        // Each case draws thousands of resamples.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn order_of_runs_does_not_matter(values in values(), seed: u64) {
            let mut reversed = values.clone();
            reversed.reverse();
            prop_assert_eq!(Estimate::of_median(&values, seed), Estimate::of_median(&reversed, seed));
        }

        #[test]
        fn the_interval_contains_the_median_and_lies_within_the_range(values in values(), seed: u64) {
            let estimate = Estimate::of_median(&values, seed).unwrap();
            prop_assert!(estimate.contains(estimate.median));
            prop_assert!(values.iter().any(|&v| v <= estimate.low) && values.iter().any(|&v| v >= estimate.high));
        }

        #[test]
        fn scaling_the_values_scales_the_estimate(values in values(), factor in 0.001..1000.0_f64, seed: u64) {
            let scaled: Vec<f64> = values.iter().map(|v| v * factor).collect();
            let before = Estimate::of_median(&values, seed).unwrap();
            let after = Estimate::of_median(&scaled, seed).unwrap();
            prop_assert!(close(before.median * factor, after.median));
            prop_assert!(close(before.low * factor, after.low));
            prop_assert!(close(before.high * factor, after.high));
        }

        #[test]
        fn a_driver_that_equals_the_baseline_is_within_noise(values in values(), seed: u64) {
            let pairs: Vec<Pair> = values.iter().map(|&v| Pair { value: v, baseline: v }).collect();
            prop_assert!(Estimate::of_ratio(&pairs, seed).unwrap().contains(1.0));
        }

        #[test]
        fn quartiles_ascend(values in values()) {
            let [lower, middle, upper] = quartiles(&values).unwrap();
            prop_assert!(lower <= middle && middle <= upper);
        }
    }
}

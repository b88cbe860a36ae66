//! Measures of plain samples.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, Spread, Z, bootstrap};
use super::matrix::inverse;
use super::spectrum::Spectrum;
use super::{SensitivityError, at_least};

/// Harmonics of RBD-FAST. SALib takes as many.
const HARMONICS: usize = 10;

/// Relations of a variable to the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Relation {
    /// Pearson's correlation: how near to a straight line.
    pub pearson: Estimate,
    /// Spearman's correlation of ranks: how near to a rising or falling curve.
    pub spearman: Estimate,
    /// Standardized regression coefficient: deviations of the result for one of the variable, the others held; `None` where
    /// a variable follows from the others.
    pub regression: Option<Estimate>,
    /// Partial rank correlation (PRCC): Spearman's, with the others' share taken out; `None` likewise.
    pub partial_rank: Option<Estimate>,
    /// Share of the result's variance that comes from the variable alone, for curves of any form (S1, by RBD-FAST).
    pub first: Estimate,
}

/// Relations of each variable, and R² of the regression.
///
/// Intervals: of Pearson's by Fisher; of Spearman's by Fieller, Hartley, Pearson, "Tests for rank correlation coefficients"
/// (1957); of regression by its standard error; of S1 by the bootstrap. PRCC: Marino et al., "A methodology for performing
/// global uncertainty and sensitivity analysis in systems biology" (2008). S1: Tarantola, Gatelli, Mara, "Random balance
/// designs for the estimation of first order global sensitivity indices" (2006), with the order of points of Plischke (2010)
/// and the correction of Tissot and Prieur (2012).
///
/// # Errors
/// With too few points, or where all results are the same.
pub fn relations(points: &[Vec<f64>], results: &[f64]) -> Result<(Vec<Relation>, Option<f64>), SensitivityError> {
    let variables = points.first().map_or(0, Vec::len);
    let n = results.len();
    at_least((variables + 4).max(4 * HARMONICS + 1), n, "points")?;
    if results.iter().copied().collect::<Spread>().variance() <= 0.0 {
        return Err(SensitivityError::Constant);
    }
    let column = |variable: usize| points.iter().map(|point| point[variable]).collect::<Vec<f64>>();
    let columns: Vec<Vec<f64>> = (0..variables).map(column).chain([results.to_vec()]).collect();
    let ranked: Vec<Vec<f64>> = columns.iter().map(|column| ranks(column)).collect();
    let (of_values, of_ranks) = (correlations(&columns), correlations(&ranked));
    let (linear, monotone) = (Fit::of(&of_values), Fit::of(&of_ranks));
    let free = (n - variables - 1) as f64;
    let relation = |variable: usize| {
        let regression = linear.as_ref().map(|fit| {
            let error = libm::sqrt(fit.inverse[variable][variable] * (1.0 - fit.r_squared) / free);
            Estimate::around(fit.coefficients[variable], Z * error)
        });
        let partial_rank = monotone.as_ref().map(|fit| {
            let (own, rest) = (fit.coefficients[variable], fit.inverse[variable][variable] * (1.0 - fit.r_squared));
            let whole = libm::sqrt(own * own + rest);
            Estimate::correlation(if whole > 0.0 { own / whole } else { 0.0 }, 1.0 / libm::sqrt(free - 1.0))
        });
        Relation {
            pearson: Estimate::correlation(of_values[variable][variables], 1.0 / libm::sqrt(n as f64 - 3.0)),
            spearman: Estimate::correlation(of_ranks[variable][variables], libm::sqrt(1.06 / (n as f64 - 3.0))),
            regression,
            partial_rank,
            first: first(&columns[variable], results),
        }
    };
    Ok(((0..variables).map(relation).collect(), linear.as_ref().map(|fit| fit.r_squared)))
}

/// A straight line in all variables, where variables and result have mean 0 and deviation 1.
struct Fit {
    /// The inverse of the variables' correlations.
    inverse: Vec<Vec<f64>>,
    coefficients: Vec<f64>,
    r_squared: f64,
}

impl Fit {
    /// The least squares of these correlations, of which the result's are last; `None` where a variable follows from others.
    fn of(correlations: &[Vec<f64>]) -> Option<Self> {
        let (result, variables) = correlations.split_last()?;
        let result = &result[..variables.len()];
        let inverse = inverse(variables.iter().map(|row| row[..variables.len()].to_vec()).collect())?;
        let product = |row: &[f64]| row.iter().zip(result).map(|(a, b)| a * b).sum::<f64>();
        let coefficients: Vec<f64> = inverse.iter().map(|row| product(row)).collect();
        let r_squared = product(&coefficients).min(1.0);
        Some(Self { inverse, coefficients, r_squared })
    }
}

/// The order of each value, from 1. Equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let order = order(values);
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let until = before + equal.len();
        for place in equal {
            ranks[*place] = f64::midpoint((before + 1) as f64, until as f64);
        }
        before = until;
    }
    ranks
}

/// Places of the values from the least to the greatest.
fn order(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    order
}

/// Correlations of each column with each. A constant one has none, also with itself.
fn correlations(columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let standard = |column: &Vec<f64>| {
        let spread: Spread = column.iter().copied().collect();
        let scale = libm::sqrt(spread.variance());
        let scaled = |value: &f64| if scale > 0.0 { (value - spread.mean) / scale } else { 0.0 };
        column.iter().map(scaled).collect::<Vec<_>>()
    };
    let columns: Vec<Vec<f64>> = columns.iter().map(standard).collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64;
    columns.iter().map(|a| columns.iter().map(|b| product(a, b)).collect()).collect()
}

fn first(values: &[f64], results: &[f64]) -> Estimate {
    let half = results.len() / 2;
    let share = |picks: &[usize]| {
        let of = |from: &[f64]| picks.iter().map(|pick| from[*pick]).collect::<Vec<f64>>();
        vec![first_of(&of(values), &of(results))]
    };
    bootstrap(results.len(), half, share)[0]
}

/// The results are put in the order of values that rise and then fall, so that they swing once if the variable matters.
fn first_of(values: &[f64], results: &[f64]) -> f64 {
    let order = order(values);
    let rising = order.iter().step_by(2);
    let falling = order.iter().skip(1).step_by(2).rev();
    let series: Vec<f64> = rising.chain(falling).map(|place| results[*place]).collect();
    let spread: Spread = series.iter().copied().collect();
    if spread.variance() <= 0.0 {
        return 0.0;
    }
    let spectrum = Spectrum::new(&series);
    let share = (1..=HARMONICS).map(|harmonic| 2.0 * spectrum.power(harmonic)).sum::<f64>() / spread.variance();
    let bias = 2.0 * HARMONICS as f64 / series.len() as f64;
    share - bias / (1.0 - bias) * (1.0 - share)
}

//! Morris' elementary effects.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, Spread, bootstrap};
use super::{SensitivityError, at_least, complete};

/// Elementary effects of a variable: changes of the result, each divided by the variable's step as a share of its range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Mean of the absolute effects (μ*): how much the variable matters.
    pub mu_star: Estimate,
    /// Mean of the effects (μ): the direction, where all effects have the same.
    pub mu: f64,
    /// Standard deviation of the effects (σ): curvature, or interaction with other variables.
    pub sigma: f64,
}

/// Effects of each variable, and the number of points that they come from.
///
/// `points` are coordinates in the unit cube, trajectory after trajectory, on a grid of `levels`. A trajectory that lacks a
/// result is left out.
///
/// Morris, "Factorial Sampling Plans for Preliminary Computational Experiments" (1991); μ* after Campolongo, Cariboni,
/// Saltelli, "An effective screening design for sensitivity analysis of large models" (2007).
///
/// # Errors
/// With fewer than two complete trajectories.
pub fn effects(
    points: &[Vec<f64>],
    results: &[Option<f64>],
    levels: u32,
) -> Result<(usize, Vec<Effect>), SensitivityError> {
    let variables = points.first().map_or(0, Vec::len);
    let steps = variables + 1;
    let trajectories = complete(results, steps);
    at_least(2, trajectories.len(), "trajectories")?;
    let delta = f64::from(levels) / (2.0 * f64::from(levels - 1));
    let of_trajectory = |(number, results): &(usize, Vec<f64>)| {
        let rows = &points[number * steps..][..steps];
        let mut effects = vec![0.0; variables];
        for (rows, results) in rows.windows(2).zip(results.windows(2)) {
            let changes = (0..variables).map(|of| rows[1][of] - rows[0][of]).enumerate();
            // Others may differ in the last digit.
            if let Some((variable, by)) = changes.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) {
                effects[variable] = (results[1] - results[0]) / delta.copysign(by);
            }
        }
        effects
    };
    let effects: Vec<Vec<f64>> = trajectories.iter().map(of_trajectory).collect();
    let mu_stars = bootstrap(effects.len(), effects.len(), |picks| {
        let mean = |variable: usize| picks.iter().map(|pick| effects[*pick][variable].abs()).collect::<Spread>().mean;
        (0..variables).map(mean).collect()
    });
    let of_variable = |(variable, mu_star): (usize, Estimate)| {
        let spread: Spread = effects.iter().map(|of| of[variable]).collect();
        Effect { mu_star, mu: spread.mean, sigma: spread.deviation() }
    };
    Ok((trajectories.len() * steps, mu_stars.into_iter().enumerate().map(of_variable).collect()))
}

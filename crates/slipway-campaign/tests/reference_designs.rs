//! Designs and distributions, held against SciPy and SALib (`scripts/reference-designs.py`).

use std::path::Path;

use serde_json::Value as Json;
use slipway_campaign::design::fast::Fast;
use slipway_campaign::design::saltelli::Saltelli;
use slipway_campaign::design::{Cube, Halton, Plan, Sobol};
use slipway_campaign::model::{Campaign, Distribution};

fn reference(text: &str) -> Json {
    serde_json::from_str(text).expect("a JSON file")
}

fn sequences() -> Json {
    reference(include_str!("reference/sequences.json"))
}

fn layouts() -> Json {
    reference(include_str!("reference/layouts.json"))
}

fn numbers(of: &Json) -> Vec<f64> {
    of.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn rows(of: &Json) -> Vec<Vec<f64>> {
    of.as_array().expect("a list").iter().map(numbers).collect()
}

fn points(cube: &impl Cube) -> Vec<Vec<f64>> {
    (0..cube.count()).map(|index| cube.at(index)).collect()
}

/// Rows of a map from their numbers.
fn numbered(of: &Json) -> impl Iterator<Item = (u64, Vec<f64>)> {
    of.as_object().expect("a map").iter().map(|(row, found)| (row.parse().expect("a number"), numbers(found)))
}

#[test]
fn sequences_without_scrambling_are_those_of_scipy() {
    let expected = sequences();
    assert_eq!(points(&Sobol::new(None, 8, 64)), rows(&expected["sobol"]));
    assert_eq!(points(&Halton::new(None, 8, 64)), rows(&expected["halton"]));
    assert_eq!(Halton::new(None, 100, 123_457).at(123_456), numbers(&expected["halton_123456"]));
    let wide = Sobol::new(None, 1000, 1024);
    for (row, found) in numbered(&expected["sobol_wide"]) {
        assert_eq!(wide.at(row).into_iter().step_by(37).collect::<Vec<_>>(), found, "{row}");
    }
}

#[test]
fn saltellis_matrices_are_those_of_salib() {
    let expected = layouts();
    for (second_order, name) in [(false, "false"), (true, "true")] {
        let found = points(&Saltelli::new(Sobol::new(None, 6, 8), 3, second_order));
        assert_eq!(found, rows(&expected["saltelli"][name]), "{second_order}");
    }
}

#[test]
fn curves_of_fast_are_those_of_salib() {
    for curve in layouts()["fast"].as_array().expect("a list") {
        let whole = |name: &str| curve[name].as_u64().expect("a whole number");
        let harmonics = u32::try_from(whole("harmonics")).expect("few");
        let fast = Fast::new(numbers(&curve["phases"]), whole("samples"), harmonics);
        for (row, expected) in numbered(&curve["points"]) {
            for (found, expected) in fast.at(row).into_iter().zip(expected) {
                // The arc sine is steep at the ends of the interval, where the last digit of the sine counts most.
                assert!((found - expected).abs() < 1e-7, "{row}: {found} {expected}");
            }
        }
    }
}

#[test]
fn values_by_probability_are_those_of_scipy() {
    let expected = reference(include_str!("reference/quantiles.json"));
    let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
    let normal = |mean, deviation, low, high| Distribution::Normal { mean, deviation, low, high };
    for (name, distribution) in [
        ("uniform", Distribution::Uniform { low: -2.0, high: 5.0 }),
        ("log-uniform", Distribution::LogUniform { low: 1e-3, high: 1e4 }),
        ("triangle", Distribution::Triangle { low: 1.0, mode: 2.0, high: 5.0 }),
        ("normal", normal(3.0, 2.0, least, most)),
        ("normal-cut", normal(3.0, 2.0, 0.0, 4.0)),
        ("normal-tail", normal(0.0, 1.0, 9.0, most)),
        ("normal-low-tail", normal(0.0, 1.0, least, -20.0)),
        ("log-normal", Distribution::LogNormal { mean: 3.0, deviation: 2.0, low: 0.0, high: most }),
    ] {
        for (u, expected) in numbers(&expected["u"]).into_iter().zip(numbers(&expected["values"][name])) {
            let found = distribution.quantile(u).number().expect("a number");
            assert!((found - expected).abs() <= 1e-11 * expected.abs().max(1.0), "{name} at {u}: {found} {expected}");
        }
    }
}

/// Hickernell's centred L2 discrepancy ("A generalized discrepancy and quadrature error bound", 1998), as SciPy has it.
fn discrepancy(points: &[Vec<f64>]) -> f64 {
    let n = points.len() as f64;
    let dimensions = i32::try_from(points[0].len()).expect("few");
    let one: f64 = points
        .iter()
        .map(|point| point.iter().map(|u| (u - 0.5).abs()).map(|of| 1.0 + 0.5 * of - 0.5 * of * of).product::<f64>())
        .sum();
    let pair = |a: &f64, b: &f64| 1.0 + 0.5 * (a - 0.5).abs() + 0.5 * (b - 0.5).abs() - 0.5 * (a - b).abs();
    let two: f64 = points
        .iter()
        .flat_map(|a| points.iter().map(move |b| a.iter().zip(b).map(|(a, b)| pair(a, b)).product::<f64>()))
        .sum();
    (13.0_f64 / 12.0).powi(dimensions) - 2.0 / n * one + two / (n * n)
}

/// The mean over 40 seeds is that of SciPy's own scrambling, or less, within four standard errors of the difference.
#[test]
fn scrambled_points_lie_as_evenly_as_those_of_scipy() {
    let unit = "{uniform: [0, 1]}";
    let text = format!("campaign: c\nrun: x\nvariables: {{a: {unit}, b: {unit}, c: {unit}, d: {unit}, e: {unit}}}\n");
    let expected = sequences();
    for name in ["sobol", "halton", "lhs"] {
        let text = format!("{text}design: {{{name}: 256}}\n");
        let mut campaign: Campaign = slipway_campaign::parse("c.yaml", &text, Path::new(".")).expect("a campaign");
        let found: Vec<f64> = (0..40)
            .map(|seed| {
                campaign.seed = seed;
                let plan = Plan::new(&campaign, None).expect("a plan");
                let points = (0..256).map(|index| plan.coordinates(index).expect("a design in the cube"));
                discrepancy(&points.collect::<Vec<_>>())
            })
            .collect();
        let mean = found.iter().sum::<f64>() / 40.0;
        let variance = found.iter().map(|each| (each - mean).powi(2)).sum::<f64>() / 39.0;
        let [theirs, deviation] =
            ["mean", "deviation"].map(|of| expected["discrepancy"][name][of].as_f64().expect("a number"));
        let error = ((variance + deviation * deviation) / 40.0).sqrt();
        assert!(mean < theirs + 4.0 * error, "{name}: {mean}, SciPy {theirs}");
    }
}

//! Measures of sensitivity, held against SALib and SciPy (`scripts/reference-designs.py`) on the same points.

use std::f64::consts::PI;

use serde_json::Value as Json;
use slipway_campaign::design::fast::Fast;
use slipway_campaign::design::saltelli::Saltelli;
use slipway_campaign::design::{Cube, Halton, Sobol};
use slipway_campaign::sensitivity::{Estimate, fast, morris, sample, variance};

/// A function on the unit cube, its number of variables, and its indices as its paper gives them: S1 and ST.
struct Model {
    name: &'static str,
    at: fn(&[f64]) -> f64,
    first: &'static [f64],
    total: &'static [f64],
}

/// Ishigami and Homma, "An importance quantification technique in uncertainty analysis for computer models" (1990); Saltelli
/// and Sobol', "About the use of rank transformation in sensitivity analysis of model output" (1995).
const MODELS: [Model; 2] = [
    Model { name: "ishigami", at: ishigami, first: &[0.3139, 0.4424, 0.0], total: &[0.5576, 0.4424, 0.2437] },
    Model {
        name: "sobol_g",
        at: sobol_g,
        first: &[0.7162, 0.1790, 0.0237, 0.0072, 0.0001, 0.0001],
        total: &[0.7871, 0.2422, 0.0343, 0.0105, 0.0001, 0.0001],
    },
];

fn ishigami(unit: &[f64]) -> f64 {
    let [a, b, c] = [0, 1, 2].map(|of| PI * (2.0 * unit[of] - 1.0));
    a.sin() + 7.0 * b.sin().powi(2) + 0.1 * c.powi(4) * a.sin()
}

fn sobol_g(unit: &[f64]) -> f64 {
    let weights = [0.0, 1.0, 4.5, 9.0, 99.0, 99.0];
    unit.iter().zip(weights).map(|(u, a)| ((4.0 * u - 2.0).abs() + a) / (1.0 + a)).product()
}

fn numbers(of: &Json) -> Vec<f64> {
    of.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// Each model with SALib's findings for a design.
fn each(design: &str, check: impl Fn(&Model, &Json)) {
    let all: Json = serde_json::from_str(include_str!("reference/indices.json")).expect("a JSON file");
    for model in MODELS {
        check(&model, &all[model.name][design]);
    }
}

fn results(points: &[Vec<f64>], model: &Model) -> Vec<Option<f64>> {
    points.iter().map(|point| Some((model.at)(point))).collect()
}

fn points(cube: &impl Cube) -> Vec<Vec<f64>> {
    (0..cube.count()).map(|index| cube.at(index)).collect()
}

#[track_caller]
fn equal(found: impl IntoIterator<Item = f64>, expected: &Json, within: f64) {
    let expected = numbers(expected);
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= within * b.abs().max(1.0);
    assert!(found.iter().zip(&expected).all(is_near), "{found:?} {expected:?}");
}

/// Half widths of intervals from other random resamples: they vary.
#[track_caller]
fn about(found: impl IntoIterator<Item = Estimate>, expected: &Json) {
    for (found, expected) in found.into_iter().map(|of| (of.high - of.low) / 2.0).zip(numbers(expected)) {
        assert!((found - expected).abs() <= 0.25 * expected + 1e-6, "{found} {expected}");
    }
}

#[test]
fn effects_of_morris_are_those_of_salib() {
    each("morris", |model, expected| {
        let points: Vec<Vec<f64>> = expected["points"].as_array().expect("a list").iter().map(numbers).collect();
        let (used, effects) = morris::effects(&points, &results(&points, model), 4).expect("trajectories");
        assert_eq!(used, points.len());
        equal(effects.iter().map(|of| of.mu), &expected["mu"], 1e-9);
        equal(effects.iter().map(|of| of.mu_star.value), &expected["mu_star"], 1e-9);
        equal(effects.iter().map(|of| of.sigma), &expected["sigma"], 1e-9);
        about(effects.iter().map(|of| of.mu_star), &expected["mu_star_conf"]);
    });
}

#[test]
fn indices_of_saltellis_design_are_those_of_salib() {
    each("saltelli", |model, expected| {
        let variables = model.first.len();
        let points = points(&Saltelli::new(Sobol::new(None, 2 * variables, 256), variables, true));
        let (_, indices, pairs) = variance::indices(variables, true, &results(&points, model)).expect("samples");
        equal(indices.iter().map(|of| of.first.value), &expected["S1"], 1e-9);
        equal(indices.iter().map(|of| of.total.value), &expected["ST"], 1e-9);
        about(indices.iter().map(|of| of.first), &expected["S1_conf"]);
        about(indices.iter().map(|of| of.total), &expected["ST_conf"]);
        for ((one, other), pair) in pairs {
            let of = |name: &str| Json::Array(vec![expected[name][one][other].clone()]);
            equal([pair.value], &of("S2"), 1e-9);
            about([pair], &of("S2_conf"));
        }
    });
}

#[test]
fn indices_of_fast_are_those_of_salib() {
    each("fast", |model, expected| {
        let points = points(&Fast::new(numbers(&expected["phases"]), 500, 4));
        let (_, indices) = fast::indices(500, 4, &results(&points, model)).expect("curves");
        let known = || indices.iter().map(|of| of.expect("a complete curve"));
        equal(known().map(|of| of.first), &expected["S1"], 1e-7);
        equal(known().map(|of| of.total), &expected["ST"], 1e-7);
    });
}

#[test]
fn relations_in_a_sample_are_those_of_scipy_and_salib() {
    each("sample", |model, expected| {
        let points = points(&Halton::new(None, model.first.len(), 500));
        let results: Vec<f64> = points.iter().map(|point| (model.at)(point)).collect();
        let (relations, _) = sample::relations(&points, &results).expect("points");
        equal(relations.iter().map(|of| of.pearson.value), &expected["pearson"], 1e-9);
        for (found, expected) in relations.iter().zip(expected["pearson_interval"].as_array().expect("a list")) {
            equal([found.pearson.low, found.pearson.high], expected, 1e-9);
        }
        equal(relations.iter().map(|of| of.spearman.value), &expected["spearman"], 1e-9);
        equal(relations.iter().map(|of| of.regression.expect("a fit").value), &expected["regression"], 1e-9);
        equal(relations.iter().map(|of| of.partial_rank.expect("a fit").value), &expected["partial_rank"], 1e-9);
        equal(relations.iter().map(|of| of.first.value), &expected["first"], 1e-9);
        about(relations.iter().map(|of| of.first), &expected["first_conf"]);
    });
}

/// On scrambled points, the indices are those of the papers, and their intervals contain them.
#[test]
fn indices_are_those_of_the_papers() {
    for model in MODELS {
        let variables = model.first.len();
        let points = points(&Saltelli::new(Sobol::new(Some(1), 2 * variables, 4096), variables, false));
        let (_, indices, _) = variance::indices(variables, false, &results(&points, &model)).expect("samples");
        for ((index, first), total) in indices.iter().zip(model.first).zip(model.total) {
            for (of, known) in [(index.first, first), (index.total, total)] {
                assert!((of.value - known).abs() < 0.01, "{}: {of:?} {known}", model.name);
                assert!(of.low - 1e-4 < *known && *known < of.high + 1e-4, "{}: {of:?} {known}", model.name);
            }
        }
    }
}

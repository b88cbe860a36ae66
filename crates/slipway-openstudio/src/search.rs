//! Algorithms that search, and the objectives that they search for.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::distribution::number;
use crate::error::Notes;
use crate::yaml;

const KIND: &str = "$.analysis.problem.analysis_type";
/// Largest population and number of generations that are passed on; the campaign file has limits of its own.
const MOST: f64 = 1e9;

/// An algorithm that searches.
struct Algorithm {
    name: &'static str,
    /// The design that runs.
    design: &'static str,
    /// Settings that give the population, the first one first.
    population: &'static [&'static str],
    /// Settings that give the number of generations.
    generations: &'static [&'static str],
    /// Whether the design is the algorithm itself.
    is_same: bool,
}

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm {
        name: "nsga_nrel",
        design: "nsga2",
        population: &["number_of_samples"],
        generations: &["generations"],
        is_same: true,
    },
    Algorithm {
        name: "spea_nrel",
        design: "spea2",
        population: &["number_of_samples"],
        generations: &["generations"],
        is_same: true,
    },
    Algorithm {
        name: "pso",
        design: "pso",
        population: &["npart", "number_of_samples"],
        generations: &["maxit", "generations"],
        is_same: true,
    },
    Algorithm {
        name: "ga",
        design: "nsga2",
        population: &["popSize", "number_of_samples"],
        generations: &["maxiter", "generations"],
        is_same: false,
    },
    Algorithm {
        name: "gaisl",
        design: "nsga2",
        population: &["popSize", "number_of_samples"],
        generations: &["maxiter", "generations"],
        is_same: false,
    },
    Algorithm {
        name: "rgenoud",
        design: "nsga2",
        population: &["popsize", "popSize", "number_of_samples"],
        generations: &["generations"],
        is_same: false,
    },
];

/// Algorithms that no design stands for, each with the design that comes nearest.
const REFUSED: [(&str, &str); 2] = [("optim", "bayesian"), ("sequential_search", "nsga2")];

/// Whether an algorithm searches: it takes its next points from results.
pub(crate) fn is_one(kind: &str) -> bool {
    ALGORITHMS.iter().any(|algorithm| algorithm.name == kind) || REFUSED.iter().any(|(name, _)| *name == kind)
}

/// The design of an algorithm that searches. `None` where the algorithm is refused.
pub(crate) fn design(kind: &str, problem: &Json, notes: &mut Notes) -> Option<String> {
    if let Some((_, near)) = REFUSED.iter().find(|(name, _)| *name == kind) {
        notes.refuse(KIND, format!("`{kind}` has no design here; the nearest that runs is `{near}`"));
        return None;
    }
    let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == kind)?;
    let setting = |name: &str| problem.pointer(&format!("/algorithm/{name}")).and_then(number);
    let first = |names: &[&str], usual: f64| names.iter().find_map(|name| setting(name)).unwrap_or(usual);
    let (population, generations) = (first(algorithm.population, 20.0), first(algorithm.generations, 10.0));
    if !algorithm.is_same {
        notes.change(KIND, format!("`{kind}` becomes `{}`, another genetic algorithm", algorithm.design));
    }
    let mut text = format!(
        "{{{}: {{population: {}, generations: {}",
        algorithm.design,
        yaml::number(population.clamp(0.0, MOST).trunc()),
        yaml::number(generations.clamp(0.0, MOST).trunc())
    );
    if let Some(failed) = setting("failed_f_value") {
        let _ = write!(text, ", failed: {}", yaml::number(failed));
    }
    text.push_str("}}");
    Some(text)
}

/// The objective of an output, as a line of the campaign file. `is_grouped` tells whether others have the same group.
pub(crate) fn objective(name: &str, output: &Json, is_grouped: bool) -> String {
    let setting = |key: &str| output.get(key).and_then(number);
    let mut text = match setting("objective_function_target") {
        Some(target) => format!("target: {}", yaml::number(target)),
        None => "goal: minimize".to_owned(),
    };
    if let Some(scale) = setting("scaling_factor").filter(|scale| *scale != 0.0) {
        let _ = write!(text, ", scale: {}", yaml::number(scale));
    }
    if let Some(group) = setting("objective_function_group").filter(|_| is_grouped) {
        let _ = write!(text, ", group: {}", yaml::text(&format!("group {}", yaml::number(group))));
    }
    format!("  {}: {{{text}}}", yaml::text(name))
}

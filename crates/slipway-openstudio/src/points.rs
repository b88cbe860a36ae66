//! Points one by one: data points of a server, and algorithms that no design is.

use std::fmt::Write as _;

use serde_json::Value as Json;
use slipway_campaign::design::Plan;
use slipway_campaign::value::Value;

use crate::distribution::plain;
use crate::error::Notes;
use crate::variable::{MOST, Rows, Variable};
use crate::yaml;

/// Reads data points, single ones and batches.
pub(crate) fn read(texts: &[String], variables: &[Variable], notes: &mut Notes) -> Rows {
    let mut rows = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let root = format!("data points {}: $", number + 1);
        let document: Json = match serde_json::from_str(text) {
            Ok(document) => document,
            Err(error) => {
                notes.refuse(root, format!("it is no JSON: {error}"));
                continue;
            }
        };
        let batch = document.get("data_points").and_then(Json::as_array);
        let found: Vec<(String, &Json)> = match batch {
            Some(batch) => {
                batch.iter().enumerate().map(|(index, one)| (format!("{root}.data_points[{index}]"), one)).collect()
            }
            None => vec![(root, &document)],
        };
        for (path, point) in found {
            let point = point.get("data_point").unwrap_or(point);
            rows.extend(row(point, &path, variables, notes));
        }
    }
    rows
}

fn row(point: &Json, path: &str, variables: &[Variable], notes: &mut Notes) -> Option<Vec<Value>> {
    let Some(values) = point.get("set_variable_values").and_then(Json::as_object) else {
        notes.refuse(path, "it has no `set_variable_values`");
        return None;
    };
    for id in values.keys().filter(|id| !variables.iter().any(|variable| variable.ids.contains(id))) {
        notes.refuse(
            format!("{path}.set_variable_values"),
            format!("the analysis has no variable `{}`", id.escape_debug()),
        );
    }
    let mut row = Vec::with_capacity(variables.len());
    for variable in variables {
        let Some(json) = variable.ids.iter().find_map(|id| values.get(id)) else {
            let usual = variable.values.usual.clone();
            notes.change(path, format!("`{}` is not set, and has its usual value {usual}", variable.name));
            row.push(usual);
            continue;
        };
        match plain(json) {
            Some(value) => row.push(value),
            None => notes.refuse(path, format!("the value of `{}` is no single value", variable.name)),
        }
    }
    (row.len() == variables.len()).then_some(row)
}

fn all(variables: &[Variable], of: impl Fn(&Variable) -> Value) -> Vec<Value> {
    variables.iter().map(of).collect()
}

/// All variables at their least, usual and greatest values.
pub(crate) fn preflight(variables: &[Variable], problem: &Json) -> Rows {
    let wanted = |name: &str| {
        let value = problem.pointer(&format!("/algorithm/{name}"));
        !matches!(value.map(ToString::to_string).as_deref(), Some("0" | "false" | "\"false\"" | "\"0\""))
    };
    let rows = [
        ("run_min", all(variables, |variable| variable.values.least.clone())),
        ("run_mode", all(variables, |variable| variable.values.usual.clone())),
        ("run_max", all(variables, |variable| variable.values.greatest.clone())),
    ];
    rows.into_iter().filter(|(name, _)| wanted(name)).map(|(_, row)| row).collect()
}

/// The usual values, then each variable at its other values.
pub(crate) fn one_at_a_time(variables: &[Variable]) -> Rows {
    let base = all(variables, |variable| variable.values.usual.clone());
    let mut rows = vec![base.clone()];
    for (index, variable) in variables.iter().enumerate() {
        let values = &variable.values;
        let ends = || vec![values.least.clone(), values.greatest.clone()];
        for value in values.choices.clone().unwrap_or_else(ends) {
            if value.to_string() != base[index].to_string() {
                let mut row = base.clone();
                row[index] = value;
                rows.push(row);
            }
        }
    }
    rows
}

/// All variables from their least to their greatest values together.
pub(crate) fn diagonal(variables: &[Variable], samples: u64) -> Rows {
    let steps = usize::try_from(samples).unwrap_or(usize::MAX).clamp(2, MOST + 1);
    let at = |variable: &Variable, step: usize| match &variable.values.choices {
        Some(choices) => choices[step * (choices.len() - 1) / (steps - 1)].clone(),
        None => match (variable.values.least.number(), variable.values.greatest.number()) {
            (Some(least), Some(greatest)) => {
                Value::Number(least + (greatest - least) * step as f64 / (steps - 1) as f64)
            }
            _ => variable.values.usual.clone(),
        },
    };
    (0..steps).map(|step| all(variables, |variable| at(variable, step))).collect()
}

/// Points of a design of some variables.
fn planned(design: &str, variables: &[&Variable], seed: u64) -> Rows {
    let mut text = format!("run: 'true'\nseed: {seed}\ndesign: {design}\nvariables:\n");
    for variable in variables {
        let _ = writeln!(text, "  {}: {}", yaml::text(&variable.name), variable.values.yaml);
    }
    let campaign = slipway_campaign::parse("design.yaml", &text, std::path::Path::new("/")).ok();
    let plan = campaign.and_then(|campaign| Plan::new(&campaign, None).ok());
    plan.map_or_else(Vec::new, |plan| (0..plan.len().min(MOST as u64 + 1)).map(|point| plan.point(point)).collect())
}

/// A Latin hypercube of each variable alone, the others at their usual values.
pub(crate) fn individually(variables: &[Variable], samples: u64, seed: u64) -> Rows {
    let base = all(variables, |variable| variable.values.usual.clone());
    let mut rows = Vec::new();
    for (index, variable) in variables.iter().enumerate() {
        for mut values in planned(&format!("{{lhs: {samples}}}"), &[variable], seed.wrapping_add(index as u64)) {
            let mut row = base.clone();
            row[index] = values.swap_remove(0);
            rows.push(row);
            if rows.len() > MOST {
                return rows;
            }
        }
    }
    rows
}

/// A design of the variables that are no pivots, once for each combination of those that are.
pub(crate) fn crossed(design: &str, variables: &[Variable], seed: u64, notes: &mut Notes) -> Rows {
    let (pivots, others): (Vec<&Variable>, Vec<&Variable>) = variables.iter().partition(|variable| variable.pivot);
    if let Some(endless) = pivots.iter().find(|variable| variable.values.choices.is_none()) {
        notes.refuse("$.analysis.problem", format!("the pivot `{}` has no list of values", endless.name));
        return Vec::new();
    }
    let outer = planned("grid", &pivots, seed);
    let inner = planned(design, &others, seed);
    if outer.is_empty() || inner.is_empty() {
        notes.refuse("$.analysis.problem.algorithm", format!("the design {design} does not fit the variables"));
        return Vec::new();
    }
    let mut rows = Vec::new();
    for pivot in &outer {
        for point in &inner {
            let (mut pivot, mut point) = (pivot.iter(), point.iter());
            let value = |variable: &Variable| if variable.pivot { pivot.next() } else { point.next() };
            rows.push(variables.iter().filter_map(value).cloned().collect());
            if rows.len() > MOST {
                return rows;
            }
        }
    }
    rows
}

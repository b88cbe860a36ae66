//! The baseline.

use slipway_document::de::Named;
use slipway_document::errors::Report;
use slipway_document::suggest;

use super::variable::value;
use crate::file::{Baseline as Written, Scalar};
use crate::model::{Distribution, Variable};
use crate::value::Value;

/// The values of the baseline, in the variables' order.
pub(super) fn baseline(written: Option<&Written>, variables: &[Variable], report: &mut Report) -> Option<Vec<Value>> {
    let none = Named(Vec::new());
    let given = match written? {
        Written::Medians(false) => return None,
        Written::Medians(true) => &none,
        Written::Values(given) => given,
    };
    let given = values(given, variables, report);
    // A distribution with an error may have no median.
    if !report.is_empty() {
        return None;
    }
    let value = |(variable, given): (&Variable, Option<Value>)| given.unwrap_or_else(|| variable.distribution.median());
    Some(variables.iter().zip(given).map(value).collect())
}

/// The given value of each variable; `None` for variables that have none.
fn values(given: &Named<Scalar>, variables: &[Variable], report: &mut Report) -> Vec<Option<Value>> {
    let mut values = vec![None; variables.len()];
    for entry in &given.0 {
        let name = &entry.name;
        let Some(index) = variables.iter().position(|variable| variable.name == name.value) else {
            let names: Vec<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
            report.add(name.at, format!("there is no variable `{}`", name.value), suggest(&name.value, &names));
            continue;
        };
        let value = value(&entry.value);
        values[index] = match (&variables[index].distribution, value) {
            (Distribution::Fixed(_) | Distribution::Choices(_), value)
            | (Distribution::Integer { .. }, value @ Value::Integer(_)) => Some(value),
            (Distribution::Integer { .. }, _) => {
                report.add(name.at, "the variable takes whole numbers", "write a whole number");
                None
            }
            // As the design's own values are: all of a column are alike.
            (_, Value::Integer(number)) => Some(Value::Number(number as f64)),
            (_, value @ Value::Number(_)) => Some(value),
            (_, Value::Bool(_) | Value::Text(_)) => {
                report.add(name.at, "the variable takes numbers", "write a number");
                None
            }
        };
    }
    values
}

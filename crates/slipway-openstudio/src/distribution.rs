//! Values of variables: `uncertainty_description`.

use serde_json::Value as Json;
use slipway_campaign::value::Value;

use crate::error::Notes;
use crate::yaml;

/// The values of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    /// As the campaign file has them, behind the variable's name.
    pub(crate) yaml: String,
    /// The least value, the usual one and the greatest; for choices the first, the usual and the last.
    pub(crate) least: Value,
    pub(crate) usual: Value,
    pub(crate) greatest: Value,
    /// All values, where they are few.
    pub(crate) choices: Option<Vec<Value>>,
}

/// A JSON value as one of a variable.
pub(crate) fn plain(json: &Json) -> Option<Value> {
    match json {
        Json::Bool(yes) => Some(Value::Bool(*yes)),
        Json::Number(number) => number.as_i64().map(Value::Integer).or_else(|| number.as_f64().map(Value::Number)),
        Json::String(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// A number, written as one or as a text.
pub(crate) fn number(json: &Json) -> Option<f64> {
    let number = json.as_f64().or_else(|| json.as_str()?.trim().parse().ok());
    number.filter(|number| number.is_finite())
}

/// The attribute of a description with this name.
fn attribute<'a>(description: &'a Json, name: &str) -> Option<&'a Json> {
    let attributes = description.get("attributes")?.as_array()?;
    let found = attributes.iter().find(|one| one.get("name").and_then(Json::as_str) == Some(name))?;
    found.get("value").or_else(|| found.get("values_and_weights"))
}

/// Reads a description. `usual`: the value that the analysis uses where the variable does not vary.
pub(crate) fn read(
    description: &Json,
    whole: bool,
    usual: Option<Value>,
    path: &str,
    notes: &mut Notes,
) -> Option<Values> {
    let kind = description.get("type").and_then(Json::as_str).unwrap_or_default().to_lowercase();
    let kind = kind.trim_end_matches("_uncertain");
    let get = |name: &str| attribute(description, name).and_then(number);
    let (low, high, mode, deviation) = (get("lower_bounds"), get("upper_bounds"), get("modes"), get("stddev"));
    if kind == "discrete" || kind == "bool" || kind == "boolean" {
        return discrete(description, usual, path, notes);
    }
    let whole = whole || kind.contains("integer") || kind == "discrete_uniform";
    let kind = kind.trim_start_matches("integer_").trim_end_matches("_integer");
    let (Some(low), Some(high)) = (low, high) else {
        notes.refuse(format!("{path}.attributes"), "it has no numbers for `lower_bounds` and `upper_bounds`");
        return None;
    };
    if low >= high {
        if low > high {
            notes
                .refuse(format!("{path}.attributes"), format!("the lower bound {low} is above the upper bound {high}"));
            return None;
        }
        notes
            .change(format!("{path}.attributes"), format!("both bounds are {low}: the variable always has this value"));
        let value = Value::Number(low);
        return Some(Values {
            yaml: yaml::number(low),
            least: value.clone(),
            usual: value.clone(),
            greatest: value,
            choices: None,
        });
    }
    let shape = match kind {
        "uniform" | "integer" | "discrete_uniform" if whole => integers(low, high, path, notes)?,
        "uniform" => format!("{{uniform: [{}, {}]}}", yaml::number(low), yaml::number(high)),
        "triangle" | "triangular" => {
            let mode = within(mode, low, high, path, notes);
            format!("{{triangle: [{}, {}, {}]}}", yaml::number(low), yaml::number(mode), yaml::number(high))
        }
        "normal" | "lognormal" => {
            let mode = within(mode, low, high, path, notes);
            let Some(deviation) = deviation.filter(|deviation| *deviation > 0.0) else {
                notes.refuse(format!("{path}.attributes"), "it has no `stddev` above 0");
                return None;
            };
            if kind == "lognormal" && (mode <= 0.0 || low < 0.0) {
                notes.refuse(format!("{path}.attributes"), "a lognormal variable is positive");
                return None;
            }
            if kind == "lognormal" {
                let text = "`modes` and `stddev` are mean and deviation of the value itself, not of its logarithm";
                notes.change(format!("{path}.attributes"), text);
            }
            format!(
                "{{{kind}: {{mean: {}, deviation: {}, min: {}, max: {}}}}}",
                yaml::number(mode),
                yaml::number(deviation),
                yaml::number(low),
                yaml::number(high)
            )
        }
        other => {
            let known = "uniform, triangle, normal, lognormal, discrete, and whole numbers of them";
            notes.refuse(
                format!("{path}.type"),
                format!("`{other}` is no kind that a campaign has; there are: {known}"),
            );
            return None;
        }
    };
    if whole && !matches!(kind, "uniform" | "integer" | "discrete_uniform") {
        notes.change(
            format!("{path}.type"),
            format!("`{kind}` gives numbers with a fraction, where whole ones were wanted"),
        );
    }
    let usual = usual
        .filter(|value| value.number().is_some())
        .unwrap_or(Value::Number(mode.unwrap_or(f64::midpoint(low, high))));
    Some(Values { yaml: shape, least: Value::Number(low), usual, greatest: Value::Number(high), choices: None })
}

#[expect(clippy::cast_possible_truncation, reason = "bounded before")]
fn integers(low: f64, high: f64, path: &str, notes: &mut Notes) -> Option<String> {
    let (from, to) = (low.ceil(), high.floor());
    if from >= to || from.abs().max(to.abs()) > 9e15 {
        notes.refuse(format!("{path}.attributes"), format!("there are no two whole numbers from {low} to {high}"));
        return None;
    }
    Some(format!("{{integer: [{}, {}]}}", from as i64, to as i64))
}

fn within(mode: Option<f64>, low: f64, high: f64, path: &str, notes: &mut Notes) -> f64 {
    let mode = mode.unwrap_or(f64::midpoint(low, high));
    if !(low..=high).contains(&mode) {
        let text = format!("the mode {mode} is outside of {low} to {high}, and becomes the nearer bound");
        notes.change(format!("{path}.attributes"), text);
    }
    mode.clamp(low, high)
}

fn discrete(description: &Json, usual: Option<Value>, path: &str, notes: &mut Notes) -> Option<Values> {
    let mut choices: Vec<(Value, f64)> = Vec::new();
    for one in attribute(description, "discrete").and_then(Json::as_array).into_iter().flatten() {
        let weight = one.get("weight").map_or(Some(1.0), number).filter(|weight| *weight >= 0.0);
        let (Some(value), Some(weight)) = (one.get("value").and_then(plain), weight) else {
            notes.refuse(format!("{path}.attributes"), "a discrete value is no single value, or its weight no number");
            return None;
        };
        if weight == 0.0 {
            notes.change(format!("{path}.attributes"), format!("`{value}` has weight 0 and is left out"));
            continue;
        }
        // A value that stands there twice has the weight of both.
        match choices.iter_mut().find(|(other, _)| other.to_string() == value.to_string()) {
            Some((_, sum)) => *sum += weight,
            None => choices.push((value, weight)),
        }
    }
    let (Some((least, first)), Some((greatest, _))) = (choices.first(), choices.last()) else {
        notes.refuse(format!("{path}.attributes"), "a discrete variable has no values");
        return None;
    };
    let equal = choices.iter().all(|(_, weight)| (weight - first).abs() < 1e-9 * first.abs());
    let list = |item: &dyn Fn(&(Value, f64)) -> String| choices.iter().map(item).collect::<Vec<_>>().join(", ");
    let shape = if equal {
        format!("[{}]", list(&|(value, _)| yaml::value(value)))
    } else {
        format!(
            "{{choices: {{{}}}}}",
            list(&|(value, weight)| format!("{}: {}", yaml::text(&value.to_string()), yaml::number(*weight)))
        )
    };
    let usual = usual.unwrap_or_else(|| least.clone());
    let (least, greatest) = (least.clone(), greatest.clone());
    Some(Values {
        yaml: shape,
        least,
        usual,
        greatest,
        choices: Some(choices.into_iter().map(|(value, _)| value).collect()),
    })
}

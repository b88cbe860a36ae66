//! Variables and their distributions.

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::{Report, Span};

use crate::file::{Choices, Gauss, Scalar, Shape, Variable as Written};
use crate::model::{Distribution, RESERVED, Variable};
use crate::template::is_name;
use crate::value::Value;

pub(super) fn variables(written: &Named<Option<Written>>, report: &mut Report) -> Vec<Variable> {
    let mut variables = Vec::new();
    for entry in &written.0 {
        check_name(&entry.name, "a variable", report);
        let distribution = match &entry.value {
            Some(written) => distribution(written, entry.name.at, report),
            None => equal(&[], entry.name.at, report),
        };
        variables.push(Variable { name: entry.name.value.clone(), distribution });
    }
    variables
}

/// Reports a name that cannot be a column of the results.
pub(super) fn check_name(name: &Spanned<String>, whose: &str, report: &mut Report) {
    if RESERVED.contains(&name.value.as_str()) {
        report.add(name.at, format!("`{}` is a column of every result", name.value), "choose another name");
    } else if !is_name(&name.value) {
        let help = "write a letter or `_`, then letters, digits, `_` and `.`; at most 128 in all";
        report.add(name.at, format!("this is no name of {whose}"), help);
    }
}

/// A value as its text says. A whole number stays one: `4` is not `4.0` on a command line.
pub(super) fn value(written: &Scalar) -> Value {
    match written {
        Scalar::Bool(yes) => Value::Bool(*yes),
        Scalar::Number(number) => number_value(*number),
        Scalar::Text(text) => Value::Text(text.clone()),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a whole number below 2^53 is an i64")]
fn number_value(number: f64) -> Value {
    let whole = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    if whole { Value::Integer(number as i64) } else { Value::Number(number) }
}

fn distribution(written: &Written, at: Span, report: &mut Report) -> Distribution {
    match written {
        Written::Bool(yes) => Distribution::Fixed(Value::Bool(*yes)),
        Written::Number(number) => Distribution::Fixed(number_value(*number)),
        Written::Text(text) => Distribution::Fixed(Value::Text(text.clone())),
        Written::List(values) => equal(values, at, report),
        Written::Shape(shape) => {
            // The missing value may be one that an error was reported for.
            let in_doubt = report.touches(shape.whole);
            shaped(&shape.value, shape.at, in_doubt, report).unwrap_or(NOTHING)
        }
    }
}

/// Stands for a distribution with an error.
const NOTHING: Distribution = Distribution::Fixed(Value::Integer(0));

fn shaped(shape: &Shape, at: Span, in_doubt: bool, report: &mut Report) -> Option<Distribution> {
    let found = [
        shape.uniform.as_ref().map(|ends| {
            let [low, high] = ordered(ends, report)?;
            Some(Distribution::Uniform { low, high })
        }),
        shape.loguniform.as_ref().map(|ends| {
            let [low, high] = ordered(ends, report)?;
            if low <= 0.0 {
                report.add(ends.at, "a logarithm needs positive numbers", "write a least number above 0");
            }
            Some(Distribution::LogUniform { low, high })
        }),
        shape.integer.as_ref().map(|ends| {
            let [low, high] = ordered(ends, report)?;
            Some(Distribution::Integer { low, high })
        }),
        shape.triangle.as_ref().map(|corners| {
            let [low, mode, high] = ordered(corners, report)?;
            Some(Distribution::Triangle { low, mode, high })
        }),
        shape.normal.as_ref().map(|gauss| {
            let (low, high) = cut(gauss, f64::NEG_INFINITY, report);
            let Gauss { mean, deviation, .. } = gauss.value;
            Some(Distribution::Normal { mean, deviation, low, high })
        }),
        shape.lognormal.as_ref().map(|gauss| {
            let (low, high) = cut(gauss, 0.0, report);
            let Gauss { mean, deviation, .. } = gauss.value;
            if mean <= 0.0 {
                report.add(gauss.at, "the mean of positive numbers is positive", "write a mean above 0");
            }
            Some(Distribution::LogNormal { mean, deviation, low, high })
        }),
        shape.choices.as_ref().map(|choices| Some(self::choices(choices, report))),
    ];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (Some(one), None) => one,
        (None, _) if in_doubt => None,
        (None, _) => {
            report.add(at, "the variable has no values", "write for example `uniform: [0, 1]` or `choices: [a, b]`");
            None
        }
        _ => {
            report.add(at, "the variable has more than one distribution", "keep one");
            None
        }
    }
}

/// So many numbers, in ascending order, the first less than the last.
fn ordered<T: PartialOrd + Copy, const N: usize>(written: &Spanned<Vec<T>>, report: &mut Report) -> Option<[T; N]> {
    let Ok(numbers) = <[T; N]>::try_from(written.value.as_slice()) else {
        let help =
            if N == 2 { "write the least and the greatest" } else { "write the least, the likeliest and the greatest" };
        report.add(written.at, format!("{} numbers where {N} belong", written.value.len()), help);
        return None;
    };
    if !numbers.is_sorted() || numbers.first() >= numbers.last() {
        report.add(written.at, "these numbers do not ascend", "write the least first");
    }
    Some(numbers)
}

/// The ends of a truncated distribution.
fn cut(gauss: &Spanned<Gauss>, least: f64, report: &mut Report) -> (f64, f64) {
    let Gauss { deviation, min, max, .. } = gauss.value;
    let (low, high) = (min.unwrap_or(least), max.unwrap_or(f64::INFINITY));
    if deviation <= 0.0 {
        report.add(gauss.at, "a deviation must be positive", "write a fixed value as it is: `name: 3`");
    }
    if low >= high {
        report.add(gauss.at, "`min` is not below `max`", "exchange them");
    }
    if low < least {
        report.add(gauss.at, "`min` is below what the distribution gives", format!("write at least {least}"));
    }
    (low, high)
}

fn equal(values: &[Scalar], at: Span, report: &mut Report) -> Distribution {
    if values.is_empty() {
        report.add(at, "the variable has no values", "write at least one");
    }
    Distribution::Choices(values.iter().map(|written| (value(written), 1.0)).collect())
}

fn choices(written: &Spanned<Choices>, report: &mut Report) -> Distribution {
    let weighted = match &written.value {
        Choices::Equal(values) => return equal(values, written.at, report),
        Choices::Weighted(weighted) => weighted,
    };
    if weighted.0.is_empty() {
        report.add(written.at, "the variable has no values", "write at least one");
    }
    for entry in weighted.0.iter().filter(|entry| entry.value <= 0.0) {
        report.add(entry.name.at, "a weight must be positive", "write a number above 0, or leave the value out");
    }
    Distribution::Choices(weighted.0.iter().map(|entry| (key_value(&entry.name.value), entry.value)).collect())
}

/// The value that a key stands for: keys have no quotes that would tell a number from a text.
fn key_value(key: &str) -> Value {
    match (key, key.parse::<f64>()) {
        ("true" | "false", _) => Value::Bool(key == "true"),
        (_, Ok(number)) if number.is_finite() => number_value(number),
        _ => Value::Text(key.to_owned()),
    }
}

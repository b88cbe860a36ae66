//! Values as YAML.

use slipway_campaign::value::Value;

/// A text in double quotes, whose escapes are those of JSON too.
pub(crate) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A value of a variable.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::Bool(yes) => yes.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => self::number(*number),
        Value::Text(words) => text(words),
    }
}

/// A number that reads back as the same.
pub(crate) fn number(number: f64) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

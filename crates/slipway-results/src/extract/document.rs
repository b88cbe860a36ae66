//! Parts of a file that is read as a whole: regular expressions and JSON paths.

use regex::bytes::Regex;
use serde_json_path::JsonPath;
use slipway_campaign::value::Value;

use super::{Found, bounded, value};

/// Outputs of one file.
#[derive(Debug, Default)]
pub(super) struct Picks {
    regexes: Vec<(usize, Regex)>,
    paths: Vec<(usize, JsonPath)>,
}

impl Picks {
    pub(super) fn add_regex(&mut self, output: usize, pattern: &str) -> Result<(), String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        if regex.captures_len() < 2 {
            return Err(format!(
                "the regular expression `{pattern}` has no group\nHint: put the value in parentheses, as in `Total: (.*) J`"
            ));
        }
        self.regexes.push((output, regex));
        Ok(())
    }

    pub(super) fn add_path(&mut self, output: usize, path: &str) -> Result<(), String> {
        let path = JsonPath::parse(path).map_err(|error| {
            format!("`{path}` is no JSON path: {error}\nHint: write one of RFC 9535, as in `$.totals.energy`")
        })?;
        self.paths.push((output, path));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.regexes.is_empty() && self.paths.is_empty()
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        let regexes = self.regexes.iter().map(|(output, _)| *output);
        regexes.chain(self.paths.iter().map(|(output, _)| *output))
    }

    pub(super) fn read(&self, text: &[u8], found: &mut Found<'_>) {
        for (output, regex) in &self.regexes {
            let group = regex.captures(text).and_then(|captures| captures.get(1));
            let missing = || format!("the regular expression `{regex}` matches nothing");
            found.set(*output, group.ok_or_else(missing).and_then(|group| value(group.as_bytes())));
        }
        if self.paths.is_empty() {
            return;
        }
        let document: Result<serde_json::Value, _> = serde_json::from_slice(text);
        for (output, path) in &self.paths {
            match &document {
                Ok(document) => match series(path, document) {
                    Some(values) => found.set_series(*output, values),
                    None => found.set(*output, select(path, document)),
                },
                Err(error) => found.set(*output, Err(format!("it is no JSON: {error}"))),
            }
        }
    }
}

/// The list of numbers that a path selects, if it does.
fn series(path: &JsonPath, document: &serde_json::Value) -> Option<Vec<f64>> {
    let list = path.query(document).exactly_one().ok()?.as_array()?;
    if list.is_empty() { None } else { list.iter().map(serde_json::Value::as_f64).collect() }
}

fn select(path: &JsonPath, document: &serde_json::Value) -> Result<Value, String> {
    let nodes = path.query(document);
    let node = nodes.exactly_one().map_err(|error| {
        let amount = if error.is_empty() { "nothing" } else { "several values" };
        format!("the JSON path selects {amount}")
    })?;
    match node {
        serde_json::Value::Bool(yes) => Ok(Value::Bool(*yes)),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Ok(Value::Integer(number)),
            (None, Some(number)) if number.is_finite() => Ok(Value::Number(number)),
            _ => Err(format!("`{number}` is not a finite number")),
        },
        serde_json::Value::String(text) => bounded(text),
        serde_json::Value::Null => Err("the JSON path selects null".to_owned()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Err("the JSON path selects an object or a list that is not of numbers".to_owned())
        }
    }
}

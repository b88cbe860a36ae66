//! Results to extract.

use std::collections::BTreeSet;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::{Report, Span};

use super::{inside, variable};
use crate::file::{Output as Written, OutputSettings};
use crate::model::{Output, Pick, Variable};

pub(super) fn outputs(written: &Named<Option<Written>>, variables: &[Variable], report: &mut Report) -> Vec<Output> {
    let taken: BTreeSet<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
    let mut outputs = Vec::new();
    for entry in &written.0 {
        variable::check_name(&entry.name, "an output", report);
        if taken.contains(entry.name.value.as_str()) {
            report.add(entry.name.at, "a variable has this name", "choose another: both are columns of the results");
        }
        if let Some(written) = &entry.value {
            outputs.extend(output(&entry.name.value, written, report));
        } else {
            let help = "write a regular expression for standard output, or a map with `file`";
            report.add(entry.name.at, "nothing says where the result is", help);
        }
    }
    outputs
}

fn output(name: &str, written: &Written, report: &mut Report) -> Option<Output> {
    let (unit, file, pick) = match written {
        Written::Regex(regex) => {
            check_regex(regex, report);
            (String::new(), None, Pick::Regex(regex.value.clone()))
        }
        Written::Settings(settings) => {
            let Spanned { value: settings, at, .. } = settings.as_ref();
            let file = settings.file.as_ref().map(|file| inside(file, report));
            let pick = pick(settings, *at, report)?;
            if file.is_none() && matches!(pick, Pick::Sql(_)) {
                report.add(*at, "standard output is no SQLite file", "add `file:` and the file's path");
            }
            (settings.unit.clone().unwrap_or_default(), file, pick)
        }
    };
    Some(Output { name: name.to_owned(), unit, file, pick })
}

/// The one way of the six that is written.
fn pick(written: &OutputSettings, at: Span, report: &mut Report) -> Option<Pick> {
    let size = written.size.as_ref().filter(|size| size.value);
    let picks = [
        written.regex.as_ref().map(|text| {
            check_regex(text, report);
            Pick::Regex(text.value.clone())
        }),
        written.json_path.as_ref().map(|text| {
            if serde_json_path::JsonPath::parse(&text.value).is_err() {
                report.add(text.at, "this is no JSON path", "write one such as `$.end.total` (RFC 9535)");
            }
            Pick::JsonPath(text.value.clone())
        }),
        written.column.as_ref().map(|text| Pick::Column(text.value.clone())),
        written.series.as_ref().map(|text| Pick::Series(text.value.clone())),
        written.sql.as_ref().map(|text| Pick::Sql(text.value.clone())),
        size.map(|_| Pick::Size),
    ];
    let known = "`regex`, `json_path`, `column`, `series`, `sql` and `size: true`";
    let mut written = picks.into_iter().flatten();
    match (written.next(), written.next()) {
        (Some(pick), None) => Some(pick),
        (None, _) => {
            report.add(at, "nothing says which part of the file is the result", format!("add one of {known}"));
            None
        }
        _ => {
            report.add(at, "the result is in more than one place", format!("keep one of {known}"));
            None
        }
    }
}

fn check_regex(regex: &Spanned<String>, report: &mut Report) {
    match regex::Regex::new(&regex.value) {
        Ok(compiled) if compiled.captures_len() < 2 => {
            let help = "put the result in parentheses, such as `time ([0-9.]+) s`";
            report.add(regex.at, "the expression has no group", help);
        }
        Ok(_) => {}
        Err(error) => {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let help = "see https://docs.rs/regex/latest/regex/#syntax; in YAML, quote it with '…'";
            report.add(regex.at, format!("this is no regular expression: {why}"), help);
        }
    }
}

//! Results to extract.

use std::collections::BTreeSet;
use std::path::Path;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::{Report, Span};
use slipway_energyplus::idf::is_value;
use slipway_energyplus::query::{self, Take};
use slipway_energyplus::{Report as EnergyReport, Reporting};

use super::{inside, variable};
use crate::file::{Output as Written, OutputSettings, Taken};
use crate::model::{Output, Pick, Variable};

/// File with the results that an engine returns, in a point's folder.
pub(super) const RESULTS: &str = "results.json";

/// Results that need no file's name.
pub(super) enum Reads {
    /// None: the user's own program.
    Files,
    /// Those that a Python function returns.
    Returned,
    /// Those that measures register, and the tables of `EnergyPlus`.
    Steps,
    /// Those in the database of `EnergyPlus`.
    Database {
        /// Frequency of reports.
        reporting: Reporting,
        /// Reports that outputs read, so far.
        reports: Vec<EnergyReport>,
    },
}

impl Reads {
    pub(super) fn database(reporting: Reporting) -> Self {
        Self::Database { reporting, reports: Vec::new() }
    }

    pub(super) fn into_reports(self) -> Vec<EnergyReport> {
        match self {
            Self::Database { reports, .. } => reports,
            _ => Vec::new(),
        }
    }

    /// Whether an output without a place is one that the engine returns by its name.
    fn returns(&self) -> bool {
        matches!(self, Self::Returned | Self::Steps)
    }
}

/// Names of the outputs that the engine itself returns.
pub(super) fn returned(outputs: &[Output]) -> Vec<String> {
    let own = outputs.iter().filter(|output| output.file.as_deref() == Some(Path::new(RESULTS)));
    own.map(|output| output.name.clone()).collect()
}

pub(super) fn outputs(
    written: &Named<Option<Written>>,
    variables: &[Variable],
    reads: &mut Reads,
    report: &mut Report,
) -> Vec<Output> {
    let taken: BTreeSet<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
    let mut outputs = Vec::new();
    for entry in &written.0 {
        variable::check_name(&entry.name, "an output", report);
        if taken.contains(entry.name.value.as_str()) {
            report.add(entry.name.at, "a variable has this name", "choose another: both are columns of the results");
        }
        match &entry.value {
            Some(written) => outputs.extend(output(&entry.name.value, written, reads, report)),
            None if reads.returns() => outputs.push(by_name(&entry.name.value, String::new())),
            None => {
                let help = "write a regular expression for standard output, or a map with `file`";
                report.add(entry.name.at, "nothing says where the result is", help);
            }
        }
    }
    outputs
}

/// An output that the engine returns by its name.
fn by_name(name: &str, unit: String) -> Output {
    // Names have no quotes.
    let pick = Pick::JsonPath(format!("$['{name}']"));
    Output { name: name.to_owned(), unit, file: Some(RESULTS.into()), pick }
}

fn output(name: &str, written: &Written, reads: &mut Reads, report: &mut Report) -> Option<Output> {
    let (unit, file, pick) = match written {
        Written::Regex(regex) => {
            check_regex(regex, report);
            (String::new(), None, Pick::Regex(regex.value.clone()))
        }
        Written::Settings(settings) => {
            let Spanned { value: settings, at, .. } = settings.as_ref();
            let unit = settings.unit.clone().unwrap_or_default();
            let energyplus = energyplus(settings, *at, reads, report);
            if settings.file.is_none() && energyplus.is_none() && reads.returns() && !has_pick(settings) {
                return Some(by_name(name, unit));
            }
            let file = settings.file.as_ref().map(|file| inside(file, report));
            let file = file.or_else(|| (energyplus.is_some()).then(|| query::DATABASE.into()));
            let pick = pick(settings, energyplus, *at, report)?;
            if file.is_none() && matches!(pick, Pick::Sql(_)) {
                report.add(*at, "standard output is no SQLite file", "add `file:` and the file's path");
            }
            (unit, file, pick)
        }
    };
    Some(Output { name: name.to_owned(), unit, file, pick })
}

fn has_pick(written: &OutputSettings) -> bool {
    let texts = [&written.regex, &written.json_path, &written.column, &written.series, &written.sql];
    texts.into_iter().any(Option::is_some) || written.size.is_some()
}

/// The result of `EnergyPlus` that is written, if one is.
fn energyplus(written: &OutputSettings, at: Span, reads: &mut Reads, report: &mut Report) -> Option<Pick> {
    let OutputSettings { meter, variable, table, of, take, .. } = written;
    for (key, belongs) in
        [("of", of.is_some() && variable.is_none()), ("take", take.is_some() && meter.is_none() && variable.is_none())]
    {
        if belongs {
            report.add(
                at,
                format!("`{key}` is about a meter or a variable of EnergyPlus"),
                format!("leave `{key}` out"),
            );
        }
    }
    let name = meter.as_ref().or(variable.as_ref()).or(table.as_ref())?;
    if !is_value(&name.value) || name.value.trim().is_empty() {
        report.add(name.at, "EnergyPlus has no result of this name", "write a name without comma, semicolon and `!`");
    }
    let (reporting, reports) = match (reads, table) {
        (Reads::Database { reporting, reports }, _) => (*reporting, Some(reports)),
        (Reads::Steps, Some(_)) => (Reporting::Hourly, None),
        (Reads::Steps, None) => {
            let help = "add a measure that asks for the report, and read it with `file: eplusout.sql` and `sql:`";
            report.add(name.at, "a workflow's measures say which reports there are", help);
            return None;
        }
        _ => {
            report.add(
                name.at,
                "only EnergyPlus has meters, variables and tables",
                "write `run: {energyplus: …}`, or `file:`",
            );
            return None;
        }
    };
    let taking = |usual: Take| take.as_ref().map_or(usual, |take| taken(take.value));
    let (pick, wanted) = if let Some(meter) = meter {
        let unit = written.unit.as_deref().unwrap_or_default();
        let known = query::ENERGY.iter().find(|(name, _)| *name == unit).map(|(_, joules)| *joules);
        if known.is_none() && !["", "m3"].contains(&unit) {
            let units = query::ENERGY.map(|(name, _)| name).join(", ");
            report.add(at, format!("a meter is not in `{unit}`"), format!("write one of {units} (or m3 for water)"));
        }
        let query = query::meter(&meter.value, reporting, taking(Take::Sum), known.unwrap_or(1.0));
        (sql(query, taking(Take::Sum)), EnergyReport::Meter(meter.value.clone()))
    } else if let Some(variable) = variable {
        let object = of.as_ref().map(|of| of.value.as_str());
        let query = query::variable(&variable.value, object, reporting, taking(Take::Mean));
        (sql(query, taking(Take::Mean)), EnergyReport::Variable(variable.value.clone()))
    } else {
        match query::table(&name.value) {
            Ok(query) => (Pick::Sql(query), EnergyReport::Tables),
            Err(why) => {
                report.add(name.at, why, "write for example `End Uses/Total End Uses/Electricity`");
                return None;
            }
        }
    };
    if let Some(reports) = reports.filter(|reports| !reports.contains(&wanted)) {
        reports.push(wanted);
    }
    Some(pick)
}

fn sql(query: String, take: Take) -> Pick {
    if take == Take::Series { Pick::SqlSeries(query) } else { Pick::Sql(query) }
}

fn taken(written: Taken) -> Take {
    match written {
        Taken::Sum => Take::Sum,
        Taken::Mean => Take::Mean,
        Taken::Least => Take::Least,
        Taken::Greatest => Take::Greatest,
        Taken::Series => Take::Series,
    }
}

/// The one way that is written. `energyplus`: one that is its own.
fn pick(written: &OutputSettings, energyplus: Option<Pick>, at: Span, report: &mut Report) -> Option<Pick> {
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
        energyplus,
    ];
    let known = "`regex`, `json_path`, `column`, `series`, `sql` and `size: true`";
    // An error of a meter, a variable or a table is reported already.
    let in_doubt = [&written.meter, &written.variable, &written.table].into_iter().any(Option::is_some);
    let mut picks = picks.into_iter().flatten();
    match (picks.next(), picks.next()) {
        (Some(pick), None) => Some(pick),
        (None, _) if in_doubt => None,
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

//! Analyses (OSA).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value as Json};
use slipway_campaign::template::is_name;
use slipway_campaign::value::Value;
use slipway_document::names;

use crate::algorithm::{self, Chosen};
use crate::distribution::{self, plain};
use crate::error::{ImportError, Note, Notes};
use crate::imported::{Files, Imported};
use crate::osw::{LARGEST, Step, Workflow};
use crate::search;
use crate::variable::{Rows, Variable};
use crate::yaml;

/// Name of the workflow beside the campaign file.
const WORKFLOW: &str = "workflow.osw";
/// Name of the list of points beside the campaign file.
const POINTS: &str = "points.csv";

/// Makes a campaign of an analysis.
///
/// # Errors
/// With all reasons why there is none.
pub fn read(text: &str, files: &Files) -> Result<Imported, ImportError> {
    if text.len() > LARGEST {
        return Err(ImportError::Large(LARGEST >> 20));
    }
    let document: Json = serde_json::from_str(text).map_err(|error| ImportError::Json(error.to_string()))?;
    let mut notes = Notes::default();
    let made = make(&document, files, &mut notes);
    match made {
        Some(imported) if notes.refusals.is_empty() => checked(Imported { changes: notes.changes, ..imported }),
        _ => Err(ImportError::Refused(notes.refusals)),
    }
}

/// The campaign, if its file can be read as one.
fn checked(imported: Imported) -> Result<Imported, ImportError> {
    match slipway_campaign::parse("campaign.yaml", &imported.campaign, std::path::Path::new("/")) {
        Ok(_) => Ok(imported),
        Err(errors) => {
            let text = format!("the campaign would be wrong: {}", errors.plain());
            Err(ImportError::Refused(vec![Note { path: "$".to_owned(), text }]))
        }
    }
}

fn make(document: &Json, files: &Files, notes: &mut Notes) -> Option<Imported> {
    let Some(analysis) = document.get("analysis").filter(|analysis| analysis.is_object()) else {
        notes.refuse("$", "there is no `analysis`");
        return None;
    };
    if analysis.get("urbanopt").and_then(Json::as_bool) == Some(true) {
        notes.refuse(
            "$.analysis.urbanopt",
            "URBANopt runs whole districts by a program of its own, and Slipway has none for it",
        );
        return None;
    }
    let name = ["name", "display_name"].iter().find_map(|key| analysis.get(key)?.as_str()).unwrap_or("analysis");
    let name = names::from_file(&name.replace(['/', '.', '_'], "-"), "analysis");
    let Some(problem) = analysis.get("problem").filter(|problem| problem.is_object()) else {
        notes.refuse("$.analysis", "there is no `problem`");
        return None;
    };
    let (workflow, variables) = workflow(analysis, problem, files, notes);
    let seed = problem.pointer("/algorithm/seed").and_then(distribution::number);
    let chosen = algorithm::choose(problem, &variables, seed_of(seed), files, notes)?;
    let outputs = outputs(analysis, &variables, notes);
    others(analysis, problem, notes);
    let mut list = Vec::new();
    let design = match chosen {
        Chosen::Design(design) => design,
        Chosen::Rows(rows) => {
            list.push((POINTS.to_owned(), csv(&variables, &rows)));
            format!("{{list: {POINTS}}}")
        }
    };
    let timeout = analysis.get("run_workflow_timeout").and_then(distribution::number).filter(|seconds| *seconds > 0.0);
    let mut text = format!(
        "# Made of the OpenStudio analysis {} by `slipway campaign import`.\ncampaign: {name}\nseed: {}\nrun:\n  openstudio:\n    workflow: {WORKFLOW}\n",
        yaml::text(analysis.get("display_name").and_then(Json::as_str).unwrap_or(&name)),
        seed_of(seed),
    );
    if !variables.is_empty() {
        text.push_str("    set:\n");
        for variable in &variables {
            let _ = writeln!(
                text,
                "      {}: {}",
                yaml::text(&variable.argument),
                yaml::text(&format!("{{{}}}", variable.name))
            );
        }
        text.push_str("variables:\n");
        for variable in &variables {
            let _ = writeln!(text, "  {}: {}", yaml::text(&variable.name), variable.values.yaml);
        }
    }
    let _ = writeln!(text, "design: {design}");
    if !outputs.is_empty() {
        let _ = writeln!(text, "outputs:\n{outputs}");
    }
    if let Some(seconds) = timeout {
        let _ = writeln!(text, "timeout: {}s", yaml::number(seconds));
    }
    let osw = serde_json::to_string_pretty(&workflow).unwrap_or_default();
    list.push((WORKFLOW.to_owned(), osw + "\n"));
    Some(Imported { name, campaign: text, files: list, changes: Vec::new() })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of a number above 0")]
fn seed_of(seed: Option<f64>) -> u64 {
    seed.map_or(0, |seed| seed.clamp(0.0, 9e15) as u64)
}

/// The workflow, and the variables of its measures.
fn workflow(analysis: &Json, problem: &Json, files: &Files, notes: &mut Notes) -> (Workflow, Vec<Variable>) {
    let mut workflow = Workflow {
        file_paths: ["files", "weather", "seeds", "seed", "."].map(str::to_owned).to_vec(),
        ..Workflow::default()
    };
    for (key, place) in [("seed", &mut workflow.seed_file), ("weather_file", &mut workflow.weather_file)] {
        let path = format!("$.analysis.{key}.path");
        match analysis.pointer(&format!("/{key}/path")).and_then(Json::as_str) {
            Some(file) => *place = inside(file, &path, files, notes),
            None => notes.refuse(path, "the analysis names no such file"),
        }
    }
    let mut variables: Vec<Variable> = Vec::new();
    let mut names = BTreeSet::new();
    for (index, step) in problem.get("workflow").and_then(Json::as_array).into_iter().flatten().enumerate() {
        let path = format!("$.analysis.problem.workflow[{index}]");
        let Some(name) = step.get("name").and_then(Json::as_str).filter(|name| !name.contains('/')) else {
            notes.refuse(path, "the step has no `name`");
            continue;
        };
        if !names.insert(name) {
            notes.refuse(format!("{path}.name"), format!("another step is called `{name}`"));
        }
        let folder = step.get("measure_definition_directory").and_then(Json::as_str);
        let Some(folder) =
            folder.and_then(|folder| inside(folder, &format!("{path}.measure_definition_directory"), files, notes))
        else {
            if folder.is_none() {
                notes.refuse(path, "the step has no `measure_definition_directory`");
            }
            continue;
        };
        let (parent, last) = folder.rsplit_once('/').unwrap_or((".", &folder));
        if !workflow.measure_paths.iter().any(|known| known == parent) {
            workflow.measure_paths.push(parent.to_owned());
        }
        let mut arguments = Map::new();
        for argument in step.get("arguments").and_then(Json::as_array).into_iter().flatten() {
            let key = argument.get("name").and_then(Json::as_str);
            if let (Some(key), Some(value)) = (key, argument.get("value").filter(|value| plain(value).is_some())) {
                arguments.insert(key.to_owned(), value.clone());
            }
        }
        for (number, written) in step.get("variables").and_then(Json::as_array).into_iter().flatten().enumerate() {
            let path = format!("{path}.variables[{number}]");
            variable(name, written, &path, &mut arguments, &mut variables, notes);
        }
        workflow.steps.push(Step { name: Some(name.to_owned()), measure_dir_name: last.to_owned(), arguments });
    }
    if workflow.steps.is_empty() && notes.refusals.is_empty() {
        notes.change("$.analysis.problem.workflow", "there are no steps: the seed model runs as it is");
    }
    (workflow, variables)
}

/// Reads one variable of a step. One that does not vary is an argument.
fn variable(
    step: &str,
    written: &Json,
    path: &str,
    arguments: &mut Map<String, Json>,
    variables: &mut Vec<Variable>,
    notes: &mut Notes,
) {
    let Some(argument) = written.pointer("/argument/name").and_then(Json::as_str) else {
        notes.refuse(path, "the variable has no `argument.name`");
        return;
    };
    let usual = ["/static_value", "/argument/value", "/argument/default_value"];
    let usual = usual.iter().find_map(|key| written.pointer(key).filter(|value| plain(value).is_some()));
    let varies = written.get("variable").and_then(Json::as_bool).unwrap_or(true);
    let Some(description) = written.get("uncertainty_description").filter(|_| varies) else {
        if let Some(value) = usual {
            arguments.insert(argument.to_owned(), value.clone());
        }
        notes.change(path, format!("`{step}.{argument}` does not vary, and is an argument of the measure"));
        return;
    };
    let full = format!("{step}.{argument}");
    let starts = full.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let safe: String =
        full.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).take(120).collect();
    let mut name = if starts { safe } else { format!("_{safe}") };
    if variables.iter().any(|other| other.name == name) {
        name = format!("{name}_{}", variables.len());
    }
    if name != full {
        notes.change(path, format!("`{full}` is called `{name}`: names have letters, digits, `_` and `.`"));
    }
    debug_assert!(is_name(&name), "{name}");
    let whole = written.pointer("/argument/value_type").and_then(Json::as_str) == Some("integer");
    let path_of_values = format!("{path}.uncertainty_description");
    let usual = usual.and_then(plain);
    // Arguments are often texts of numbers.
    let usual = usual.map(|value| match &value {
        Value::Text(text) => {
            text.trim().parse().ok().filter(|number: &f64| number.is_finite()).map_or(value, Value::Number)
        }
        _ => value,
    });
    let Some(values) = distribution::read(description, whole, usual, &path_of_values, notes) else { return };
    let pivot = written.get("variable_type").and_then(Json::as_str) == Some("pivot");
    let ids = [written.get("uuid"), written.get("version_uuid")].into_iter().flatten();
    let ids = ids.filter_map(Json::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
    let ids = ids.chain([full, name.clone()]).collect();
    variables.push(Variable { name, argument: format!("{step}/{argument}"), ids, values, pivot });
}

/// A path of the analysis, below its folder.
fn inside(path: &str, place: &str, files: &Files, notes: &mut Notes) -> Option<String> {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() || parts.contains(&"..") || path.starts_with('/') || path.contains(['\0', '\n']) {
        notes.refuse(place, format!("{} leaves the analysis' folder", path.escape_debug()));
        return None;
    }
    let plain = parts.join("/");
    let below = format!("{plain}/");
    if !files.names.is_empty() && !files.names.iter().any(|name| *name == plain || name.starts_with(&below)) {
        notes.refuse(place, format!("{plain} is not among the analysis' files"));
    }
    Some(plain)
}

/// Outputs and objectives, as lines of the campaign file.
fn outputs(analysis: &Json, variables: &[Variable], notes: &mut Notes) -> String {
    let (mut lines, mut wishes) = (Vec::new(), Vec::new());
    let mut taken: BTreeSet<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
    for (index, output) in analysis.get("output_variables").and_then(Json::as_array).into_iter().flatten().enumerate() {
        let path = format!("$.analysis.output_variables[{index}]");
        let Some(name) = output.get("name").and_then(Json::as_str) else {
            notes.refuse(path, "the output has no `name`");
            continue;
        };
        if !is_name(name) || !name.contains('.') {
            notes.refuse(format!("{path}.name"), format!("`{}` is no `measure.output`", name.escape_debug()));
            continue;
        }
        if !taken.insert(name) {
            notes.change(path, format!("`{name}` is a column already, and is left out"));
            continue;
        }
        let unit = output.get("units").and_then(Json::as_str).unwrap_or_default();
        lines.push(format!("  {}: {{unit: {}}}", yaml::text(name), yaml::text(unit)));
        if output.get("objective_function").and_then(Json::as_bool) == Some(true) {
            wishes.push((name, output));
        }
    }
    if !wishes.is_empty() {
        let group = |output: &Json| output.get("objective_function_group").and_then(distribution::number);
        lines.push("objectives:".to_owned());
        for (name, output) in &wishes {
            let same = wishes.iter().filter(|(_, other)| group(other) == group(output)).count();
            lines.push(search::objective(name, output, same > 1));
        }
    }
    lines.join("\n")
}

/// Says what of the rest has no counterpart.
fn others(analysis: &Json, problem: &Json, notes: &mut Notes) {
    let is_set =
        |value: Option<&Json>| value.is_some_and(|value| value.as_object().is_some_and(|scripts| !scripts.is_empty()));
    if is_set(analysis.get("server_scripts")) {
        notes.change("$.analysis.server_scripts", "scripts of the server are not run");
    }
    let kind = problem.get("analysis_type").and_then(Json::as_str).unwrap_or_default();
    if !search::is_one(kind) && problem.pointer("/algorithm/failed_f_value").is_some() {
        let text = "a point that fails has no result, instead of this value";
        notes.change("$.analysis.problem.algorithm.failed_f_value", text);
    }
}

/// Points as CSV.
fn csv(variables: &[Variable], rows: &Rows) -> String {
    let cell = |text: String| {
        if text.contains([',', '"', '\n', '\r']) || text.trim() != text {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    let line = |cells: Vec<String>| cells.into_iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
    let mut text = line(variables.iter().map(|variable| variable.name.clone()).collect());
    for row in rows {
        text.push_str(&line(row.iter().map(ToString::to_string).collect()));
    }
    text
}

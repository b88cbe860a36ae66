//! Objectives and constraints.

use std::collections::BTreeMap;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::Report;
use slipway_document::suggest;

use crate::file::{self, Objective as Written, ObjectiveSettings};
use crate::model::{Constraint, Goal, Objective, Output, Pick};

pub(super) fn objectives(written: &Named<Option<Written>>, outputs: &[Output], report: &mut Report) -> Vec<Objective> {
    let mut objectives = Vec::new();
    let mut groups: BTreeMap<String, bool> = BTreeMap::new();
    for entry in &written.0 {
        let Some(output) = output(&entry.name, outputs, report) else { continue };
        let plain = |goal| Objective { output, goal, scale: 1.0, group: None };
        let objective = match &entry.value {
            Some(Written::Goal(goal)) => plain(direction(*goal)),
            Some(Written::Target(target)) => plain(Goal::Target(*target)),
            Some(Written::Settings(settings)) => match set(settings, report) {
                Some((goal, scale, group)) => Objective { output, goal, scale, group },
                None => continue,
            },
            // A word that is none was reported.
            None if report.touches(entry.name.whole) => continue,
            None => {
                report.add(entry.name.at, "nothing says what is better", "write `minimize`, `maximize` or a number");
                continue;
            }
        };
        if let Some(group) = &objective.group {
            let is_target = matches!(objective.goal, Goal::Target(_));
            if *groups.entry(group.clone()).or_insert(is_target) != is_target {
                let message = format!("the group `{group}` has objectives with and without a target");
                report.add(entry.name.at, message, "give all of the group a target, or none");
            }
        }
        objectives.push(objective);
    }
    objectives
}

fn set(settings: &Spanned<ObjectiveSettings>, report: &mut Report) -> Option<(Goal, f64, Option<String>)> {
    let Spanned { value: settings, at, whole } = settings;
    let goal = match (settings.goal, settings.target) {
        (Some(goal), None) => direction(goal),
        (None, Some(target)) => Goal::Target(target),
        (Some(_), Some(_)) => {
            report.add(*at, "the objective has a direction and a target", "keep `goal` or `target`");
            return None;
        }
        (None, None) if report.touches(*whole) => return None,
        (None, None) => {
            report.add(
                *at,
                "nothing says what is better",
                "add `goal: minimize`, `goal: maximize` or `target: NUMBER`",
            );
            return None;
        }
    };
    let scale = settings.scale.as_ref().map_or(1.0, |scale| scale.value);
    if let Some(written) = settings.scale.as_ref().filter(|scale| scale.value <= 0.0) {
        report.add(written.at, "a scale must be positive", "write for example the size of a usual difference");
    }
    if let Some(group) = settings.group.as_ref().filter(|group| group.value.is_empty()) {
        report.add(group.at, "the group has no name", "write one, or leave `group` out");
    }
    Some((goal, scale, settings.group.as_ref().map(|group| group.value.clone())))
}

fn direction(goal: file::Goal) -> Goal {
    match goal {
        file::Goal::Minimize => Goal::Minimize,
        file::Goal::Maximize => Goal::Maximize,
    }
}

pub(super) fn constraints(
    written: &Named<Option<file::Constraint>>,
    outputs: &[Output],
    report: &mut Report,
) -> Vec<Constraint> {
    let mut constraints = Vec::new();
    for entry in &written.0 {
        let Some(output) = output(&entry.name, outputs, report) else { continue };
        let (min, max) = entry.value.map_or((None, None), |of| (of.min, of.max));
        let (least, greatest) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
        if min.is_none() && max.is_none() {
            report.add(entry.name.at, "the constraint has no limit", "write `{max: NUMBER}` or `{min: NUMBER}`");
        } else if least > greatest {
            report.add(entry.name.at, "`min` is above `max`", "exchange them");
        }
        constraints.push(Constraint { output, min: least, max: greatest });
    }
    constraints
}

/// The output with this name, if it gives one value.
fn output(name: &Spanned<String>, outputs: &[Output], report: &mut Report) -> Option<usize> {
    let Some(index) = outputs.iter().position(|output| output.name == name.value) else {
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        report.add(name.at, format!("there is no output `{}`", name.value), suggest(&name.value, &names));
        return None;
    };
    if matches!(outputs[index].pick, Pick::Series(_)) {
        report.add(
            name.at,
            "this output is a time series, which has no one value",
            "write `column:` for its last value",
        );
    }
    Some(index)
}

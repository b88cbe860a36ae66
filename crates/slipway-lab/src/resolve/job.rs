//! The lab's own job and the figure that is picked from it.

use std::path::PathBuf;

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::program;
use crate::file::{Better, Figure as WrittenFigure, Job as Written};
use crate::id::NodeId;
use crate::model::{Figure, Job, Lab, Pick};

pub(super) fn job(written: &Written, lab: &Lab, report: &mut Report) -> Option<Job> {
    if let Some(ranks) = &written.ranks {
        if written.mpi.is_none() {
            report.add(ranks.at, "ranks without MPI", "add `mpi: openmpi` or `mpi: mpich`, or leave `ranks` out");
        } else if !(1..=1_000_000).contains(&ranks.value) {
            report.add(ranks.at, format!("a job cannot have {} ranks", ranks.value), "write 1 to 1000000");
        }
    }
    if let Some(timeout) = written.timeout.as_ref().filter(|timeout| timeout.value.0 <= 0.0) {
        report.add(timeout.at, "a job that ends before it begins", "write a longer time, or leave `timeout` out");
    }
    let workdir = written.workdir.as_ref();
    if let Some(workdir) = workdir.filter(|dir| !dir.value.starts_with('/') || dir.value.contains('\0')) {
        report.add(workdir.at, "a working directory must be absolute", "write a path that starts with `/`");
    }
    let nodes = nodes(written.nodes.as_deref(), lab, report);
    let env = program::env(&written.env, report);
    let figure = written.figure.as_ref().and_then(|written| figure(written, report));
    Some(Job {
        command: program::words(&written.command, report)?,
        mpi: written.mpi,
        ranks: written.ranks.as_ref().map(|ranks| ranks.value),
        nodes,
        timeout: written.timeout.as_ref().map(|timeout| timeout.value),
        workdir: workdir.map(|dir| PathBuf::from(&dir.value)),
        env,
        figure,
    })
}

fn nodes(written: Option<&[Spanned<String>]>, lab: &Lab, report: &mut Report) -> Vec<NodeId> {
    let Some(written) = written else { return lab.nodes.ids().collect() };
    let mut good = Vec::new();
    for name in written {
        match lab.select(std::slice::from_ref(&name.value)) {
            Ok(_) => good.push(name.value.clone()),
            Err(error) => report.add(name.at, error.to_string(), error.help()),
        }
    }
    lab.select(&good).unwrap_or_default()
}

fn figure(written: &Spanned<WrittenFigure>, report: &mut Report) -> Option<Figure> {
    let Spanned { value: figure, at, whole } = written;
    // The missing value may be one that an error was reported for.
    let in_doubt = report.touches(*whole);
    let pick = pick(figure, *at, report)?;
    let wall = pick == Pick::WallTime;
    let missing =
        [("name", figure.name.is_none()), ("unit", figure.unit.is_none()), ("better", figure.better.is_none())];
    for (key, _) in missing.iter().filter(|(_, missing)| *missing && !wall && !in_doubt) {
        let example = match *key {
            "name" => "`name: throughput`",
            "unit" => "`unit: Gb/s`",
            _ => "`better: higher` or `better: lower`",
        };
        report.add(*at, format!("the figure has no `{key}`"), format!("add for example {example}"));
    }
    Some(Figure {
        name: figure.name.clone().unwrap_or_else(|| "wall time".into()),
        unit: figure.unit.clone().unwrap_or_else(|| "s".into()),
        higher_is_better: figure.better == Some(Better::Higher),
        pick,
    })
}

/// The one way of the three that is written.
fn pick(figure: &WrittenFigure, at: Span, report: &mut Report) -> Option<Pick> {
    let wall_time = figure.wall_time.as_ref().filter(|wall| wall.value);
    let pick = match (&figure.regex, &figure.json_path, wall_time) {
        (Some(regex), None, None) => {
            check_regex(regex, report);
            Pick::Regex(regex.value.clone())
        }
        (None, Some(path), None) => {
            if serde_json_path::JsonPath::parse(&path.value).is_err() {
                report.add(
                    path.at,
                    "this is no JSON path",
                    "write one such as `$.end.sum_received.bits_per_second` (RFC 9535)",
                );
            }
            Pick::JsonPath(path.value.clone())
        }
        (None, None, Some(_)) => Pick::WallTime,
        (None, None, None) => {
            report.add(at, "nothing says where the figure is", "add `regex`, `json_path`, or `wall_time: true`");
            return None;
        }
        _ => {
            report.add(at, "the figure is in more than one place", "keep one of `regex`, `json_path` and `wall_time`");
            return None;
        }
    };
    Some(pick)
}

fn check_regex(regex: &Spanned<String>, report: &mut Report) {
    match regex::Regex::new(&regex.value) {
        Ok(compiled) if compiled.captures_len() < 2 => {
            let help = "put the number in parentheses, such as `time ([0-9.]+) s`";
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

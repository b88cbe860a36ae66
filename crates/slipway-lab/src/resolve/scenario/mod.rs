//! Scenarios: who is meant, what happens, and whether it can.

mod amount;
mod effect;
mod entry;
mod event;
mod target;
mod time;
mod trace;

use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::Report;

use crate::file::{Members, Scenario as Written};
use crate::id::NodeId;
use crate::model::{DriverWord, Lab};
use crate::scenario::{Due, Scenario};

/// The context for reading an entry.
pub(super) struct Context<'a> {
    lab: &'a Lab,
    /// The scenario's own names for nodes.
    groups: Vec<(String, Vec<NodeId>)>,
    /// The end of the scenario.
    length: Option<Due>,
    /// Relative paths begin here.
    base_dir: &'a Path,
    /// The driver that all networks were given from outside of the file.
    replaced: Option<DriverWord>,
}

pub(super) fn scenario(
    written: &Written,
    lab: &Lab,
    base_dir: &Path,
    replaced: Option<DriverWord>,
    report: &mut Report,
) -> Scenario {
    let length = written.length.as_ref().and_then(|length| time::due(length, report));
    if let Some(wrong) = written.length.as_ref().filter(|length| length.value.0 <= 0.0) {
        report.add(wrong.at, "a scenario that is over before it begins", "write a longer time, or leave `length` out");
    }
    let mut context = Context { lab, groups: Vec::new(), length, base_dir, replaced };
    for entry in &written.groups.0 {
        let nodes = context.group(&entry.name, &entry.value, report);
        context.groups.push((entry.name.value.clone(), nodes));
    }
    let mut entries = Vec::new();
    for (number, event) in written.events.iter().enumerate() {
        entries.extend(entry::entry(number, event, &context, report));
    }
    check_names(&written.events, report);
    Scenario { seed: written.seed, length, entries }
}

impl Context<'_> {
    fn group(&self, name: &Spanned<String>, members: &Members, report: &mut Report) -> Vec<NodeId> {
        let text = name.value.as_str();
        let plain = text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !plain || !text.starts_with(|c: char| c.is_ascii_alphabetic()) || text == effect::REST {
            let help = "write at most 32 letters, digits and `-`, a letter first; `rest` is taken";
            report.add(name.at, "this name cannot be used", help);
        }
        let of_lab = self.lab.nodes.iter().any(|node| node.name == name.value || node.group == name.value);
        if of_lab {
            let message = format!("`{}` is a node or a group of the lab already", name.value);
            report.add(name.at, message, "choose another name");
        }
        if members.words().is_empty() && !report.touches(name.whole) {
            report.add(name.at, "a group of nobody", "name its nodes: `[n1, n2]`");
        }
        target::nodes(members.words(), self, report)
    }
}

/// Entries of one name would draw the same.
fn check_names(events: &[Spanned<crate::file::Event>], report: &mut Report) {
    let names: Vec<_> = events.iter().filter_map(|event| event.value.name.as_ref()).collect();
    for (i, name) in names.iter().enumerate() {
        let is_number = !name.value.is_empty() && name.value.bytes().all(|byte| byte.is_ascii_digit());
        if name.value.is_empty() || is_number {
            report.add(name.at, "entries without a name have their number for one", "write a word");
        } else if names[..i].iter().any(|other| other.value == name.value) {
            report.add(name.at, "two entries of one name would draw the same numbers", "choose another");
        }
    }
}

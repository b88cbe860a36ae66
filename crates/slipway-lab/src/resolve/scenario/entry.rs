//! One entry of a scenario's events.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::Context;
use super::effect::effect;
use super::time::{Rhythm, hold, timing};
use crate::file::Event;
use crate::scenario::Entry;

/// Kinds of events, and the keys that belong to each.
const ACTIONS: [(&str, &[&str]); 15] = [
    (
        "set",
        &["every", "times", "for", "together", "nodes", "interfaces", "network", "between", "from", "to", "direction"],
    ),
    ("kill", &["every", "times", "for", "together", "how", "grace"]),
    ("stop", &["every", "times", "for", "together", "grace"]),
    ("start", &["every", "times", "together"]),
    ("restart", &["every", "times", "together", "grace"]),
    ("freeze", &["every", "times", "for", "together"]),
    ("thaw", &["every", "times", "together"]),
    ("cut", &["every", "times", "for", "together", "network"]),
    ("heal", &["every", "times", "together", "network"]),
    ("partition", &["every", "times", "for"]),
    ("join", &["every", "times"]),
    ("flap", &["times", "together", "network", "up", "down"]),
    ("churn", &["times", "together", "how", "grace", "availability", "unavailability"]),
    ("run", &["every", "times", "together"]),
    ("trace", &["nodes", "interfaces", "network", "between", "from", "to", "direction", "how", "grace"]),
];
/// Keys that all have.
const COMMON: [&str; 3] = ["name", "at", "until"];

pub(super) fn entry(number: usize, written: &Spanned<Event>, context: &Context, report: &mut Report) -> Option<Entry> {
    let event = &written.value;
    let in_doubt = report.touches(written.whole);
    let (action, at) = action(written, in_doubt, report)?;
    let rhythm = match action {
        "flap" | "churn" => Rhythm::Endless,
        "trace" => Rhythm::File,
        _ => Rhythm::Due,
    };
    let when = timing(event, at, rhythm, in_doubt, context, report);
    let hold = hold(event, context, report);
    let effect = effect(event, at, context, report)?;
    let name = event.name.as_ref().map_or_else(|| (number + 1).to_string(), |name| name.value.clone());
    let together = event.together.as_ref().is_some_and(|together| together.value);
    Some(Entry { name, when, hold, together, effect })
}

/// The one thing that happens, and where it is written; keys that say nothing about it are reported.
fn action(written: &Spanned<Event>, in_doubt: bool, report: &mut Report) -> Option<(&'static str, Span)> {
    let keys = written.value.keys();
    let find = |key: &str| ACTIONS.iter().find(|(action, _)| *action == key);
    let mut actions = keys.iter().filter_map(|(key, at)| find(key).map(|(action, more)| (*action, *more, *at)));
    let Some((action, more, at)) = actions.next() else {
        if !in_doubt {
            let known: Vec<_> = ACTIONS.iter().map(|(action, _)| *action).collect();
            report.add(written.at, "an event in which nothing happens", format!("add one of {}", known.join(", ")));
        }
        return None;
    };
    if let Some((other, _, at)) = actions.next() {
        let message = format!("`{action}` and `{other}` in one event");
        report.add(at, message, "write two events with the same time");
        return None;
    }
    for (key, at) in &keys {
        if *key == action || more.contains(key) || COMMON.contains(key) {
            continue;
        }
        if *key == "for" {
            let help = "leave `for` out, and write what comes later as an event of its own";
            report.add(*at, format!("nothing takes `{action}` back"), help);
        } else {
            let help = format!("leave it out; with `{action}` go {}", [&COMMON[..], more].concat().join(", "));
            report.add(*at, format!("`{key}` says nothing about `{action}`"), help);
        }
    }
    Some((action, at))
}

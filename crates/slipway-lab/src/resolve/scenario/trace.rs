//! Files that say what happens when.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;
use slipway_document::units::Seconds;

use super::Context;
use super::event::{direction, how, only_nodes};
use super::target::{Whose, links};
use crate::change::Keys;
use crate::condition::{Limits, LinkConditions};
use crate::file::{Event, Trace};
use crate::resolve::mount::path;
use crate::scenario::{Effect, Format, LinkAct, NodeAct, PairAct, TraceFile};

/// Over how long packet deliveries are counted where it is not said.
const WINDOW: Seconds = Seconds(0.1);
/// Source: `mm-link(1)`, whose times are whole milliseconds.
const LEAST_WINDOW: Seconds = Seconds(1e-3);
/// Nodes that are up, down, frozen, thawed.
const STATE: &str = "state";

pub(super) fn replay(
    trace: &Spanned<Trace>,
    event: &Event,
    at: Span,
    context: &Context,
    report: &mut Report,
) -> Option<Effect> {
    let file = file(&trace.value, context, report)?;
    let of_nodes = file.of == STATE || Limits::NAMES.contains(&file.of.as_str());
    if file.of != STATE {
        let of_ends = [event.how.as_ref().map(|how| how.at), event.grace.as_ref().map(|grace| grace.at)];
        for at in of_ends.into_iter().flatten() {
            report.add(at, "this is about nodes that end", "leave it out; it goes with `of: state`");
        }
    }
    if of_nodes {
        let on = only_nodes(event, at, context, report)?;
        let how = how(event, &on, context, report);
        return Some(Effect::Nodes { on, act: NodeAct::Trace { trace: file, how } });
    }
    Some(match links(event, at, context, report)? {
        Whose::Ports(on) => Effect::Links { on, act: LinkAct::Trace { direction: direction(event), trace: file } },
        Whose::Pairs(pairs) => Effect::Pairs { pairs, act: PairAct::Trace(file) },
    })
}

fn file(trace: &Trace, context: &Context, report: &mut Report) -> Option<TraceFile> {
    let path = path(&trace.file, context.base_dir, report);
    let of = key(&trace.of, report);
    if let (Format::Mahimahi, Some(of)) = (trace.format, &of)
        && of != "rate"
    {
        report.add(trace.of.at, "a Mahimahi trace says when packets pass: a rate", "write `of: rate`");
    }
    if let Some(window) = &trace.window {
        if trace.format != Format::Mahimahi {
            report.add(window.at, "only packet deliveries are counted over a window", "leave `window` out");
        } else if window.value < LEAST_WINDOW {
            report.add(window.at, "a Mahimahi trace counts in milliseconds", "write `1ms` or more");
        }
    }
    if let Some(unit) = trace.unit.as_ref().filter(|_| trace.format != Format::Csv) {
        report.add(unit.at, "values of this format have their own unit", "leave `unit` out");
    }
    let window = trace.window.as_ref().map_or(WINDOW, |window| window.value);
    let unit = trace.unit.as_ref().map(|unit| unit.value.clone());
    Some(TraceFile { path: path?, format: trace.format, of: of?, unit, window })
}

/// The key that a trace is about; Distem's names are understood too.
fn key(written: &Spanned<String>, report: &mut Report) -> Option<String> {
    let word = match written.value.as_str() {
        "churn" => STATE,
        "power" => "cpu",
        "bandwidth" => "rate",
        "latency" => "delay",
        word => word,
    };
    let can_change = |key: &&str| Limits::FIXED.iter().all(|(fixed, _)| fixed != key);
    let keys = LinkConditions::NAMES.iter().chain(Limits::NAMES).copied().filter(can_change);
    let keys: Vec<&str> = [STATE].into_iter().chain(keys).collect();
    if !keys.contains(&word) {
        let message = format!("a trace cannot be of `{}`", word.chars().take(60).collect::<String>());
        report.add(written.at, message, suggest(word, &keys));
        return None;
    }
    Some(word.to_owned())
}

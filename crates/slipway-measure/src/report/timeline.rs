//! A played scenario as one HTML page of the same kind as the comparison's. It shows every node's state over time,
//! every event where it took effect, and its delay.

use askama::Template;

use slipway_lab::id::{List, NodeId};

use super::axes::{Frame, tick_label};
use super::checks::Checks;
use super::scale::Scale;
use super::svg::{Anchor, Svg, shorten};
use crate::check;
use crate::play::{Change, Event, Line, Outcome, Played, Summary};

/// Wider than the comparison's plots: time has more to say.
const WIDTH: f64 = 1060.0;
const ROW: f64 = 22.0;
const LEFT: f64 = 110.0;
/// More rows than these are no picture.
const MOST_ROWS: usize = 200;
/// More events than these are not listed one by one.
const MOST_LISTED: usize = 2_000;

/// A row of the list of events.
struct Row {
    number: usize,
    due: String,
    begun: String,
    late: String,
    what: String,
    outcome: String,
}

#[derive(Template)]
#[template(path = "timeline.html")]
struct Page<'a> {
    played: &'a Played,
    summary: &'a Summary,
    why: &'a str,
    lateness: String,
    warnings: Vec<String>,
    checks: Option<Checks>,
    picture: String,
    late: String,
    rows: Vec<Row>,
    more: usize,
    facts: Vec<(&'static str, String)>,
}

/// The page for a scenario that was played.
///
/// # Panics
/// Never: rendering into a string has no way to fail.
#[must_use]
pub fn timeline(played: &Played) -> String {
    let so_far = Summary::of(played.lines.iter(), Vec::new());
    let end = played.end();
    let summary = end.map_or(&so_far, |end| &end.summary);
    let events: Vec<&Event> = played.events().collect();
    let begin = &played.begin;
    let facts = vec![
        ("lab", begin.lab.clone()),
        ("scenario", begin.scenario.clone()),
        ("its SHA-256", begin.scenario_sha256.clone()),
        ("seed", begin.seed.to_string()),
        ("schedule's SHA-256", begin.schedule_sha256.clone()),
        ("began", begin.started.clone()),
        ("version", begin.version.clone()),
        ("command", begin.command.join(" ")),
    ];
    let rows = events.iter().take(MOST_LISTED).map(|event| row(event)).collect();
    let page = Page {
        played,
        summary,
        why: end.map_or("cut short: its player was killed, or still plays", |end| &end.why),
        lateness: lateness(summary),
        warnings: summary.alarms.iter().cloned().chain(check::warnings(&begin.checks)).collect(),
        checks: Checks::of(&begin.checks),
        picture: picture(&begin.nodes, &played.lines),
        late: late(&events, length(&played.lines)),
        rows,
        more: events.len().saturating_sub(MOST_LISTED),
        facts,
    };
    page.render().expect("rendering into a string cannot fail")
}

fn row(event: &Event) -> Row {
    let time = |at: Option<u64>| at.map_or_else(String::new, |at| format!("{:.3}", at as f64 / 1e9));
    let outcome = match &event.outcome {
        Outcome::Done { note } => note.clone().unwrap_or_default(),
        Outcome::Failed { reason } => format!("failed to {reason}"),
        Outcome::Skipped { reason } => format!("nothing to do: {reason}"),
        Outcome::Unplayed { reason } => format!("not played: {reason}"),
    };
    Row {
        number: event.number,
        due: time(Some(event.due)),
        begun: time(event.begun),
        late: event.late.map_or_else(String::new, milliseconds),
        what: event.what.clone(),
        outcome,
    }
}

/// How late events were, in words.
pub(super) fn lateness(summary: &Summary) -> String {
    summary.lateness.map_or_else(
        || "no event took effect".to_owned(),
        |late| {
            let [p50, p99, max] = [late.p50, late.p99, late.max].map(milliseconds);
            format!("late by {p50} ms (median), {p99} ms (99 %), {max} ms (most)")
        },
    )
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.2}", nanoseconds as f64 / 1e6)
}

/// The state of a node for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Frozen,
    Gone,
}

/// Every node's states in turn: from when, and which.
fn states(count: usize, lines: &[Line]) -> List<NodeId, Vec<(u64, State)>> {
    let mut nodes: List<NodeId, _> = vec![vec![(0, State::Runs)]; count].into();
    let mut become_ = |node: NodeId, at: u64, state: State| {
        if let Some(states) = nodes.get_mut(node).filter(|states| states.last().is_none_or(|(_, last)| *last != state))
        {
            states.push((at, state));
        }
    };
    let kinds: std::collections::BTreeMap<usize, &str> =
        events(lines).map(|event| (event.number, event.kind.as_str())).collect();
    for line in lines {
        match line {
            Line::Event(event) if matches!(event.outcome, Outcome::Done { .. }) => {
                let at = event.done.unwrap_or(event.due);
                // A restore is about what it takes back.
                let kind = event.restores.and_then(|of| kinds.get(&of)).map_or(event.kind.as_str(), |of| match *of {
                    "kill" => "start",
                    "freeze" => "thaw",
                    "start" => "kill",
                    other => other,
                });
                let state = match kind {
                    "kill" => State::Gone,
                    "freeze" => State::Frozen,
                    "start" | "thaw" => State::Runs,
                    _ => continue,
                };
                event.nodes.iter().for_each(|&node| become_(node, at, state));
            }
            Line::Node(news) if matches!(news.change, Change::Died | Change::Stopped) => {
                become_(news.node, news.at, State::Gone);
            }
            _ => {}
        }
    }
    nodes
}

/// How much time the plots show. Of a scenario that was cut short, what was played of it.
fn length(lines: &[Line]) -> u64 {
    lines.iter().filter_map(Line::at).max().unwrap_or(0).max(1)
}

fn events(lines: &[Line]) -> impl Iterator<Item = &Event> {
    lines.iter().filter_map(|line| if let Line::Event(event) = line { Some(event) } else { None })
}

/// A row for each node that the scenario is about, a mark for each event.
pub(super) fn picture(names: &List<NodeId, String>, lines: &[Line]) -> String {
    let about: std::collections::BTreeSet<NodeId> = events(lines)
        .flat_map(|event| event.nodes.iter().copied())
        .chain(lines.iter().filter_map(|line| if let Line::Node(news) = line { Some(news.node) } else { None }))
        .collect();
    let nodes: Vec<NodeId> = about.into_iter().filter(|&node| names.get(node).is_some()).take(MOST_ROWS).collect();
    let end = length(lines);
    let height = nodes.len() as f64 * ROW + 76.0;
    let mut svg = Svg::new(WIDTH, height, "every node's state over time, and every event");
    let frame = Frame { left: LEFT, right: WIDTH - 10.0, top: 16.0, bottom: 16.0 + nodes.len() as f64 * ROW };
    let scale = Scale::fit(&[0.0, end as f64 / 1e9], frame.left, frame.right);
    let x = |at: u64| scale.at(at as f64 / 1e9);
    frame.x_axis(&mut svg, &scale, &scale.ticks(), tick_label);
    frame.x_title(&mut svg, "seconds of the scenario's clock");
    let states = states(names.len(), lines);
    for (row, &node) in nodes.iter().enumerate() {
        let middle = frame.top + (row as f64 + 0.5) * ROW;
        svg.text("axis", (frame.left - 8.0, middle + 4.0), Anchor::End, &shorten(&names[node], 14));
        for (place, &(from, state)) in states[node].iter().enumerate() {
            let to = states[node].get(place + 1).map_or(end, |(to, _)| *to);
            let class = match state {
                State::Runs => "alive",
                State::Frozen => "frozen",
                State::Gone => continue,
            };
            svg.rect(class, (x(from), middle - 4.0), ((x(to) - x(from)).max(0.5), 8.0), 1.5);
        }
    }
    for event in events(lines) {
        let Some(at) = event.done.or(event.begun) else { continue };
        let class = match (&event.outcome, event.kind.as_str()) {
            (Outcome::Failed { .. }, _) => "mark c4",
            (_, "kill") => "mark c0",
            (_, "start" | "thaw" | "freeze") => "mark c3",
            (_, "cut" | "heal" | "partition" | "join") => "mark c5",
            (_, "restore") => "mark hollow c1",
            (_, "run") => "mark c6",
            _ => "mark c1",
        };
        let hint = format!("{:.3} s: {}", at as f64 / 1e9, event.what);
        for node in &event.nodes {
            let Some(row) = nodes.iter().position(|one| one == node) else { continue };
            let middle = frame.top + (row as f64 + 0.5) * ROW;
            svg.shape(class, (x(at), middle), "M0 -6L5 0L0 6L-5 0Z", &hint);
        }
    }
    svg.finish()
}

/// How late each event was, in the order of the schedule.
fn late(events: &[&Event], end: u64) -> String {
    let values: Vec<(u64, f64)> =
        events.iter().filter_map(|event| Some((event.due, event.late? as f64 / 1e6))).collect();
    if values.is_empty() {
        return String::new();
    }
    let height = 190.0;
    let mut svg = Svg::new(WIDTH, height, "how late each event was");
    let frame = Frame { left: LEFT, right: WIDTH - 10.0, top: 30.0, bottom: height - 44.0 };
    let across = Scale::fit(&[0.0, end as f64 / 1e9], frame.left, frame.right);
    let lateness: Vec<f64> = values.iter().map(|(_, late)| late.max(0.01)).collect();
    let up = Scale::log(&lateness, frame.bottom - 4.0, frame.top + 4.0);
    frame.x_axis(&mut svg, &across, &across.ticks(), tick_label);
    frame.y_axis(&mut svg, &up);
    frame.x_title(&mut svg, "due, seconds");
    frame.y_title(&mut svg, "late, ms · logarithmic axis");
    for ((due, late), value) in values.iter().zip(lateness) {
        let at = (across.at(*due as f64 / 1e9), up.at(value));
        svg.shape("mark c1", at, "M-2.2 0A2.2 2.2 0 1 0 2.2 0A2.2 2.2 0 1 0 -2.2 0Z", &format!("{late:.2} ms"));
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_and_files_are_called_stays_text() {
        let log = r#"{"type":"begin","format":"slipway-play/1","version":"0","lab":"<b>","nodes":["n1","n2"],"scenario":"<script>","scenario_sha256":"","schedule_sha256":"","seed":1,"events":3,"length":2000000000,"command":["<i>"],"machine":null,"started":""}
{"type":"event","number":0,"due":100,"begun":110,"done":120,"late":20,"what":"kill <n1>","nodes":[0],"kind":"kill","outcome":"done"}
{"type":"event","number":1,"due":300,"begun":310,"done":320,"late":20,"what":"start","nodes":[0],"kind":"restore","restores":0,"outcome":"done"}
{"type":"node","at":400,"node":1,"name":"n2","change":"died"}
{"type":"event","number":2,"due":500,"begun":null,"done":null,"late":null,"what":"freeze n2","nodes":[1],"kind":"freeze","outcome":"skipped","reason":"not running: <n2>"}
"#;
        let played = Played::read(log).expect("a log");
        let states = states(2, &played.lines);
        assert_eq!(states[NodeId(0)].iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 120, 320], "dead, then back");
        assert_eq!(states[NodeId(1)].last().map(|(at, _)| *at), Some(400), "dead by itself");
        let html = timeline(&played);
        assert!(html.contains("cut short") && html.contains("kill &lt;n1&gt;"), "{html}");
        assert!(!html.contains("<script>") && !html.contains("<i>") && !html.contains("<n2>"), "{html}");
    }
}

//! When: first, from each to the next, until when, and for how long.

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::units::Seconds;

use super::Context;
use super::amount::duration;
use crate::file::{Amount, Event};
use crate::scenario::{Due, Generator, MOST_EVENTS, Timing, nanoseconds};

/// A moment of a scenario.
pub(super) fn due(written: &Spanned<Seconds>, report: &mut Report) -> Option<Due> {
    let due = nanoseconds(Some(written.value.0)).map(Due);
    if due.is_none() {
        report.add(written.at, "no scenario lasts as long as that", "write a shorter time");
    }
    due
}

/// Events that an entry causes without an `every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rhythm {
    /// Once, at its time.
    Due,
    /// It comes and goes until an end.
    Endless,
    /// It lasts as long as its file.
    File,
}

/// `in_doubt`: something is wrong with the event, so that what is not there may have been written.
pub(super) fn timing(
    event: &Event,
    at: Span,
    rhythm: Rhythm,
    in_doubt: bool,
    context: &Context,
    report: &mut Report,
) -> Timing {
    let until = event.until.as_ref().and_then(|until| due(until, report));
    let first = event.at.as_ref().and_then(|first| when(first, context, report));
    let every = event.every.as_ref().and_then(|every| when(every, context, report));
    let times = event.times.as_ref().map(|times| times.value);
    if let Some(times) = event.times.as_ref().filter(|times| times.value == 0) {
        report.add(times.at, "an event that never happens", "write 1 or more, or take it out");
    }
    if let (Some(Generator::Constant(first)), Some(length), Some(written)) = (&first, context.length, &event.at)
        && *first * 1e9 > length.0 as f64
    {
        let message = format!("due after the scenario is over, which lasts {length}");
        report.add(written.at, message, "write an earlier time, or make the scenario's `length` greater");
    }
    if rhythm == Rhythm::Due && event.at.is_none() && event.every.is_none() && !in_doubt {
        report.add(at, "an event without a time", "add `at: 30s`, or `every: 10s`");
    }
    if rhythm == Rhythm::Due && event.every.is_none() && !in_doubt {
        for (key, at) in event.keys().into_iter().filter(|(key, _)| matches!(*key, "until" | "times")) {
            report.add(
                at,
                format!("`{key}` ends nothing here: the event happens once"),
                "add `every`, or leave it out",
            );
        }
    }
    let goes_on = event.every.is_some() || rhythm == Rhythm::Endless;
    let ends = event.until.is_some() || event.times.is_some() || context.length.is_some();
    if goes_on && !ends && !in_doubt {
        let help = "add `until: 5min` or `times: 10`, or give the scenario a `length`";
        report.add(event.every.as_ref().map_or(at, |every| every.at), "this goes on without an end", help);
    }
    let timing = Timing { at: first, every, until, times };
    check_count(&timing, event, context, report);
    timing
}

/// A time that is not without an end.
fn when(written: &Spanned<Amount>, context: &Context, report: &mut Report) -> Option<Generator> {
    match duration(written, context, report)? {
        Generator::Always => {
            report.add(written.at, "an event that never comes", "write a time, such as `30s`");
            None
        }
        generator => Some(generator),
    }
}

/// How long something lasts that is then taken back.
pub(super) fn hold(event: &Event, context: &Context, report: &mut Report) -> Option<Generator> {
    let written = event.hold.as_ref()?;
    match duration(written, context, report)? {
        Generator::Always => {
            report.add(written.at, "`for` without an end says nothing", "leave it out");
            None
        }
        Generator::Constant(0.0) => {
            report.add(written.at, "taken back at once", "write a longer time");
            None
        }
        generator => Some(generator),
    }
}

/// Refuses what is known to be too much before anything is drawn.
fn check_count(timing: &Timing, event: &Event, context: &Context, report: &mut Report) {
    let (Some(Generator::Constant(every)), Some(written)) = (&timing.every, &event.every) else { return };
    if *every <= 0.0 {
        report.add(written.at, "the next event is due with this one, and so on", "write a longer time, such as `1s`");
        return;
    }
    let begin = match timing.at {
        Some(Generator::Constant(at)) => at * 1e9,
        _ => 0.0,
    };
    let last = [timing.until, context.length].into_iter().flatten().min();
    let by_time = last.map_or(f64::INFINITY, |last| (last.0 as f64 - begin) / (every * 1e9));
    let by_count = timing.times.map_or(f64::INFINITY, |times| times as f64);
    let count = by_time.min(by_count);
    if count.is_finite() && count > MOST_EVENTS as f64 {
        let message = format!("some {count:.0} events, more than a scenario can have ({MOST_EVENTS})");
        report.add(written.at, message, "write a longer time, or end it by `until` or `times`");
    }
}

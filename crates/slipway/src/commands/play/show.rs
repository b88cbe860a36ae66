//! A playing as it goes on: a line that changes on a terminal, lines elsewhere.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use slipway_engine::scenario::Outcome;
use slipway_measure::play::{self, Change, Line};

use crate::context::Global;
use crate::meter::bar;
use crate::view;

/// Shows the log on standard error as it is written.
pub(super) struct Show {
    way: Way,
    /// Kept where it is the answer.
    log: Option<Vec<Line>>,
}

enum Way {
    Silent,
    Lines,
    Bar(ProgressBar),
}

impl Show {
    /// As the flags and standard error want it. Output of a job `beside` the scenario would tear a line that changes.
    pub(super) fn new(global: &Global, beside: bool) -> Self {
        let way = if global.quiet || global.json {
            Way::Silent
        } else if let Some(bar) = bar().filter(|_| !beside) {
            let style = ProgressStyle::with_template("{pos}/{len} {wide_msg}").expect("the template is right");
            Way::Bar(bar.with_style(style))
        } else {
            Way::Lines
        };
        Self { way, log: global.json.then(Vec::new) }
    }

    /// Takes note of a line of the log.
    pub(super) fn line(&mut self, line: &Line) {
        if let Some(log) = &mut self.log {
            log.push(line.clone());
        }
        let said = words(line);
        match &self.way {
            Way::Silent => {}
            Way::Lines => said.iter().for_each(|said| eprintln!("{}", slipway_document::text::printable(said))),
            Way::Bar(bar) => {
                if let Line::Begin(begin) = line {
                    bar.set_length(begin.events as u64);
                }
                if let Line::Event(_) = line {
                    bar.inc(1);
                }
                let Some(said) = said else { return };
                // The bar shows an event that went well only for a moment; other lines stay.
                if matches!(line, Line::Event(play::Event { outcome: play::Outcome::Done { .. }, .. })) {
                    bar.set_message(said);
                } else {
                    bar.println(said);
                }
            }
        }
    }

    /// Takes the line that changes away.
    pub(super) fn finish(&self) {
        if let Way::Bar(bar) = &self.way {
            bar.finish_and_clear();
        }
    }

    /// The logged lines, where those are the answer.
    pub(super) fn into_log(self) -> Vec<Line> {
        self.log.unwrap_or_default()
    }
}

fn seconds(at: u64) -> String {
    format!("{:>9.3} s ", at as f64 / 1e9)
}

/// A line of the log for people; `None` for those that they need not see.
fn words(line: &Line) -> Option<String> {
    match line {
        Line::Begin(begin) => Some(format!(
            "playing {}: {} in {:.1} s, seed {}",
            begin.scenario,
            view::count(begin.events, "event"),
            begin.length as f64 / 1e9,
            begin.seed
        )),
        Line::Event(event) => {
            let at = seconds(event.begun.unwrap_or(event.due));
            let what = &event.what;
            Some(match &event.outcome {
                play::Outcome::Done { note: None } => format!("{at} {what}"),
                play::Outcome::Done { note: Some(note) } => format!("{at} {what} ({note})"),
                play::Outcome::Failed { reason } => format!("{at} {what}: failed to {reason}"),
                play::Outcome::Skipped { reason } => format!("{at} {what}: left out, {reason}"),
                play::Outcome::Unplayed { .. } => return None,
            })
        }
        Line::Node(news) => {
            let how = match news.change {
                Change::Died => "died by itself",
                Change::Stopped => "was ended by hand",
            };
            Some(format!("{} node {} {how}", seconds(news.at), news.name))
        }
        Line::Clock(clock) => Some(format!("{} {}", seconds(clock.at), clock.why)),
        Line::Program(program) if program.code != 0 => Some(format!(
            "{} the program of event {} ended with code {} in {}",
            seconds(program.at),
            program.number,
            program.code,
            program.node
        )),
        Line::Restored(play::Restored { at, number, failed: Some(why), .. }) => {
            Some(format!("{} event {number} could not be taken back: failed to {why}", seconds(*at)))
        }
        Line::Begun(_)
        | Line::Program(_)
        | Line::Restored(_)
        | Line::Load(_)
        | Line::Clocks(_)
        | Line::End(_)
        | Line::Unknown => None,
    }
}

/// Describes the outcome in a sentence or two.
pub(super) fn last_words(played: &Outcome, folder: &Path) -> String {
    let summary = &played.summary;
    let mut counts = vec![format!("{} took effect", view::count(summary.done, "event"))];
    if summary.failed > 0 {
        counts.push(format!("{} failed", summary.failed));
    }
    if summary.skipped > 0 {
        counts.push(format!("{} had nothing to do", summary.skipped));
    }
    if summary.unplayed > 0 {
        counts.push(format!("{} not played", summary.unplayed));
    }
    let late = summary.lateness.map_or_else(String::new, |late| {
        let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        format!(
            "; late by {:.2} ms (median), {:.2} ms (99 %), {:.2} ms (most)",
            ms(late.p50),
            ms(late.p99),
            ms(late.max)
        )
    });
    format!("{}: {}{late}; log in {}", played.why, counts.join(", "), folder.display())
}

//! Events of a study as text: bars and lines on standard error.

use slipway_coordinator::Progress as Points;
use slipway_document::text::printable;
use slipway_document::units::Seconds;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Action, Order, Schedule};
use slipway_measure::check::{self, CheckedPath, Tally};
use slipway_python::Step;
use slipway_study::Event;

use crate::context::Global;
use crate::done::warn_of_hosts_network;
use crate::meter::{Meter, Progress};
use crate::{short, view};

use std::collections::BTreeSet;

/// Warnings that are shown one by one.
const MOST_SHOWN: usize = 5;

/// For commands that run something on a lab and keep records of it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Verify {
    /// First measure whether links meet their conditions, for at most about TIME [10s where it is left out]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    pub(crate) verify: Option<Seconds>,
}

/// Shows how labs come up and how links are measured.
pub(crate) struct Steps<'a> {
    global: &'a Global,
    meter: Option<Meter>,
}

impl<'a> Steps<'a> {
    /// As the flags and standard error want it.
    pub(crate) fn new(global: &'a Global) -> Self {
        Self { global, meter: None }
    }

    /// Shows one event; those of programs, scenarios and comparisons are their commands' to show.
    pub(crate) fn show(&mut self, event: Event<'_>) {
        match event {
            Event::LabProgress(progress) => self.meter().show(progress),
            Event::CheckStarting { paths, lasts } => {
                let about = lasts.as_secs_f64().ceil();
                self.meter().say(&format!("measuring {}, for about {about} s", view::count(paths, "path")));
            }
            Event::CheckProgress(done) => self.meter().show(Progress::Measuring(done)),
            Event::Points(Points { counts, .. }) => {
                let done = counts.done + counts.failed;
                self.meter().show(Progress::Points { done, total: counts.points });
            }
            Event::Python(Step::Making { requirements: [] }) => say(self.global, "making a Python environment"),
            Event::Python(Step::Making { requirements }) => {
                say(self.global, &format!("fetching Python packages, once: {}", requirements.join(", ")));
            }
            Event::Python(Step::Waiting) => {
                say(self.global, "waiting for another process that makes the same environment");
            }
            Event::WeatherElsewhere { model, weather, km } if !self.global.quiet => {
                tracing::warn!("the weather file is of {weather}, {km:.0} km from the model's own place, {model}");
            }
            Event::LabDone | Event::CheckDone => self.finish(),
            Event::Checked { under, paths } => self.checked(under, paths),
            Event::NothingToCheck { lab } if !self.global.quiet => {
                tracing::warn!("lab {lab} has no link under conditions: there was nothing to verify");
            }
            _ => {}
        }
    }

    fn meter(&mut self) -> &mut Meter {
        self.meter.get_or_insert_with(|| Meter::new(self.global))
    }

    /// Leaves the terminal as it was.
    pub(crate) fn finish(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.finish();
        }
    }

    fn checked(&self, under: &str, paths: &[CheckedPath]) {
        if self.global.quiet || self.global.json {
            return;
        }
        let under = if under.is_empty() { String::new() } else { format!(" under {under}") };
        eprintln!("links{under}: {}", Tally::of(paths));
        let warnings = check::warnings(paths);
        for warning in warnings.iter().take(MOST_SHOWN) {
            tracing::warn!("{warning}");
        }
        if let Some(more @ 1..) = warnings.len().checked_sub(MOST_SHOWN) {
            tracing::warn!("{more} more are not as asked; the records have all");
        }
    }
}

/// A line of news for people.
pub(crate) fn say(global: &Global, news: &str) {
    if !global.quiet && !global.json {
        eprintln!("{}", printable(news));
    }
}

/// Warns of events of a scenario that do less, or more, than they say.
pub(crate) fn warn_of_events(lab: &Lab, scenario: &str, schedule: &Schedule) {
    let short = schedule.events.iter().flat_map(|event| short::of_event(lab, &event.action));
    for warning in short.collect::<BTreeSet<String>>() {
        tracing::warn!("the scenario of {scenario}: {warning}");
    }
    let ended = schedule.events.iter().flat_map(|event| match &event.action {
        Action::Order(Order::Kill { nodes, .. } | Order::Freeze { nodes }) => nodes.as_slice(),
        _ => &[],
    });
    let ended: BTreeSet<NodeId> = ended.copied().collect();
    warn_of_hosts_network(lab, &ended.into_iter().collect::<Vec<_>>());
}

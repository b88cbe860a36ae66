//! `slipway campaign watch`

use std::thread::sleep;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use slipway_campaign::model::Campaign;
use slipway_document::text::printable;
use slipway_study::campaign::{Standing, Study};

use super::{Which, best};
use super::status::{pace, state, word_of};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter;
use crate::view;

/// Time between two looks at the queue, which tells nobody of its changes.
const LOOK: Duration = Duration::from_millis(500);
/// Shortest time between two lines, where there is no terminal.
const LINE: Duration = Duration::from_secs(5);

/// Show how far a campaign is, until it ends
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ctrl-C ends the view; the campaign goes on. Where standard error is no terminal,
it is a line every five seconds in which something happened. With --json, each
line is what `status` says, once a change. The exit code is 5 where points failed
or the campaign was interrupted.")]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let mut shown = Shown::new(context, &study.campaign);
        let last = follow(&study, &mut shown)?;
        shown.end(&last)?;
        Ok(if last.is_over() && last.counts.failed == 0 { Exit::Success } else { Exit::Strained })
    }
}

/// Shows a campaign until no coordinator runs it.
fn follow(study: &Study, shown: &mut Shown<'_>) -> Result<Standing, Failure> {
    loop {
        let now = Standing::of(study)?;
        if !now.runs {
            return Ok(now);
        }
        shown.show(now)?;
        sleep(LOOK);
    }
}

struct Shown<'a> {
    context: &'a Context,
    campaign: &'a Campaign,
    bar: Option<ProgressBar>,
    last: Option<(Instant, Standing)>,
}

impl<'a> Shown<'a> {
    fn new(context: &'a Context, campaign: &'a Campaign) -> Self {
        let bar = if context.global.json { None } else { meter::bar() };
        if let Some(bar) = &bar {
            bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len}\n{msg}").expect("a right template"));
        }
        Self { context, campaign, bar, last: None }
    }

    fn show(&mut self, now: Standing) -> Result<(), Failure> {
        let Counts { points, ended } = Counts::of(&now);
        if let Some(bar) = &self.bar {
            bar.set_length(points);
            bar.set_position(ended);
            bar.set_message(printable(&lines(self.campaign, &now)));
            return Ok(());
        }
        let shortest = if self.context.global.json { Duration::ZERO } else { LINE };
        if self.last.as_ref().is_some_and(|(at, last)| at.elapsed() < shortest || is_alike(last, &now)) {
            return Ok(());
        }
        self.line(&now)?;
        self.last = Some((Instant::now(), now));
        Ok(())
    }

    fn line(&self, now: &Standing) -> Result<(), Failure> {
        if self.context.global.json {
            let line = serde_json::to_string(now).map_err(|error| Failure::io("write JSON")(error.into()))?;
            return self.context.print(&format!("{line}\n"));
        }
        self.context.print(&printable(&format!("{}\n", first(self.campaign, now))))
    }

    /// Leaves the terminal with the campaign's last state.
    fn end(self, last: &Standing) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            return self.context.print(&printable(&format!("{}\n", lines(self.campaign, last))));
        }
        self.line(last)
    }
}

/// Points, and those that have ended.
struct Counts {
    points: u64,
    ended: u64,
}

impl Counts {
    fn of(standing: &Standing) -> Self {
        Self { points: standing.counts.points, ended: standing.counts.done + standing.counts.failed }
    }
}

/// Whether nothing happened between the two.
fn is_alike(last: &Standing, now: &Standing) -> bool {
    (last.counts, last.state, last.workers, last.step) == (now.counts, now.state, now.workers, now.step)
}

/// `sweep: running, 40 of 1000 points done, 2 failed, 4 workers at work, 3.1 points/s, about 5 min left`, and a search's last step.
fn first(campaign: &Campaign, now: &Standing) -> String {
    let counts = &now.counts;
    let mut words = vec![state(now).to_owned(), format!("{} of {} points done", counts.done, counts.points)];
    if counts.failed > 0 {
        words.push(format!("{} failed", counts.failed));
    }
    if now.runs {
        words.push(format!("{} at work", view::count(now.workers, "worker")));
    }
    words.extend(pace(now));
    words.extend(now.step.and_then(|step| best::step(campaign, &step)));
    format!("{}: {}", now.campaign, words.join(", "))
}

/// The same, and the latest failures.
fn lines(campaign: &Campaign, now: &Standing) -> String {
    let failures = now.failures.iter().map(|point| {
        let kind = point.failure.map_or_else(String::new, word_of);
        format!("\n  point {}, {kind}: {}", point.point, point.reason())
    });
    std::iter::once(first(campaign, now)).chain(failures).collect()
}

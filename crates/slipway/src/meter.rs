//! How far a command is: bars on a terminal, plain lines elsewhere.
//!
//! Bars are drawn as events come, never by a thread: anchors and programs are cloned from this process, which takes one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use slipway_document::units::Bytes;
use slipway_engine::lab;
use slipway_transfer::send::Bottleneck;

use crate::context::Global;

/// Progress of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A lab's coming up.
    Up(lab::Progress),
    /// A copy, bytes.
    Copy {
        /// So far.
        done: u64,
        /// In all, where that is known.
        total: Option<u64>,
    },
    /// A transfer, bytes.
    Transfer {
        /// So far.
        done: u64,
        /// Listed so far.
        total: u64,
        /// Streams of data.
        streams: u32,
        /// The bottleneck so far.
        limit: Bottleneck,
    },
    /// Measuring, per mille.
    Measuring(u16),
    /// Points of a campaign.
    Points {
        /// Those that ended.
        done: u64,
        /// All.
        total: u64,
    },
}

impl From<lab::Progress> for Progress {
    fn from(progress: lab::Progress) -> Self {
        Self::Up(progress)
    }
}

/// Shows progress on standard error.
pub(crate) struct Meter {
    way: Way,
    stage: Option<&'static str>,
}

enum Way {
    Silent,
    Lines,
    Bar(ProgressBar),
}

/// A bar on standard error; `None` where that is no terminal, or one on which nothing can be drawn (`TERM`).
pub(crate) fn bar() -> Option<ProgressBar> {
    let target = ProgressDrawTarget::stderr();
    (!target.is_hidden()).then(|| ProgressBar::with_draw_target(None, target))
}

impl Meter {
    /// As the flags and standard error want it.
    pub(crate) fn new(global: &Global) -> Self {
        let way = if global.quiet || global.json { Way::Silent } else { bar().map_or(Way::Lines, Way::Bar) };
        Self { way, stage: None }
    }

    /// Says something before it begins, above what is drawn later.
    pub(crate) fn say(&self, line: &str) {
        if !matches!(self.way, Way::Silent) {
            eprintln!("{line}");
        }
    }

    /// Takes note of how far it is.
    pub(crate) fn show(&mut self, progress: impl Into<Progress>) {
        let progress = progress.into();
        let (stage, template) = match progress {
            Progress::Up(lab::Progress::Image { .. }) => ("unpacking images", "{msg} {wide_bar} {bytes}/{total_bytes}"),
            Progress::Up(lab::Progress::Nodes { .. }) => ("starting nodes", "{msg} {wide_bar} {pos}/{len}"),
            Progress::Copy { total: Some(_), .. } => ("copying", "{msg} {wide_bar} {bytes}/{total_bytes}"),
            Progress::Copy { total: None, .. } => ("copying", "{msg} {spinner} {bytes}"),
            Progress::Transfer { .. } => {
                ("transferring", "{prefix} {wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left{msg}")
            }
            Progress::Points { .. } => ("running points", "{msg} {wide_bar} {pos}/{len}  {per_sec}, {eta} left"),
            Progress::Measuring(_) => ("measuring", "{msg} {wide_bar} {percent} %"),
        };
        let (done, total) = progress.position();
        let fresh = self.stage.replace(stage) != Some(stage);
        match &self.way {
            Way::Lines if fresh => eprintln!("{stage}{}", progress.amount()),
            Way::Silent | Way::Lines => {}
            Way::Bar(bar) => {
                if fresh {
                    bar.set_style(ProgressStyle::with_template(template).expect("the templates above are right"));
                }
                if let Some(total) = total.filter(|&total| bar.length() != Some(total)) {
                    bar.set_length(total);
                }
                if fresh {
                    bar.set_message(stage);
                }
                if let Progress::Transfer { streams, limit, .. } = progress {
                    bar.set_prefix(stage);
                    bar.set_message(format!("; {streams} streams, limited by {limit}"));
                }
                bar.set_position(total.map_or(done, |total| done.min(total)));
            }
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn finish(self) {
        if let Way::Bar(bar) = self.way {
            bar.finish_and_clear();
        }
    }
}

impl Progress {
    /// The position, and the end where it is known.
    fn position(self) -> (u64, Option<u64>) {
        match self {
            Self::Up(lab::Progress::Image { done, total })
            | Self::Points { done, total }
            | Self::Transfer { done, total, .. } => (done, Some(total)),
            Self::Up(lab::Progress::Nodes { done, total }) => (done as u64, Some(total as u64)),
            Self::Copy { done, total } => (done, total),
            Self::Measuring(done) => (done.into(), Some(1000)),
        }
    }

    /// In words, for a line; nothing where it is not known.
    fn amount(self) -> String {
        match self {
            Self::Up(lab::Progress::Nodes { total, .. }) => format!(" ({total})"),
            Self::Up(lab::Progress::Image { total, .. }) | Self::Copy { total: Some(total), .. } => {
                format!(" ({})", crate::view::size(Bytes(total)))
            }
            Self::Points { done, total } => format!(" ({done} of {total} done)"),
            Self::Copy { total: None, .. } | Self::Transfer { .. } | Self::Measuring(_) => String::new(),
        }
    }
}

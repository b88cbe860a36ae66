//! How far `up` is: bars on a terminal, plain lines elsewhere.
//!
//! Bars are drawn as events come, never by a thread: the anchor is cloned from this process while it has one thread.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use slipway_engine::lab::Progress;
use slipway_lab::units::Bytes;

use crate::context::Global;

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

impl Meter {
    /// As the flags and standard error want it.
    pub(crate) fn new(global: &Global) -> Self {
        let way = if global.quiet || global.json {
            Way::Silent
        } else if io::stderr().is_terminal() {
            Way::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))
        } else {
            Way::Lines
        };
        Self { way, stage: None }
    }

    /// Takes note of how far it is.
    pub(crate) fn show(&mut self, progress: Progress) {
        let (stage, done, total, template) = match progress {
            Progress::Image { done, total } => {
                ("unpacking images", done, total, "{msg} {wide_bar} {bytes}/{total_bytes}")
            }
            Progress::Nodes { done, total } => {
                ("starting nodes", done as u64, total as u64, "{msg} {wide_bar} {pos}/{len}")
            }
        };
        let fresh = self.stage.replace(stage) != Some(stage);
        match &self.way {
            Way::Lines if fresh => eprintln!("{stage} ({})", amount(progress)),
            Way::Silent | Way::Lines => {}
            Way::Bar(bar) => {
                if fresh {
                    bar.set_style(ProgressStyle::with_template(template).expect("the templates above are right"));
                    bar.set_message(stage);
                }
                if bar.length() != Some(total) {
                    bar.set_length(total);
                }
                bar.set_position(done);
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

fn amount(progress: Progress) -> String {
    match progress {
        Progress::Image { total, .. } => crate::view::size(Bytes(total)),
        Progress::Nodes { total, .. } => total.to_string(),
    }
}

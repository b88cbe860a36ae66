//! Context of every command: the folder of labs, and the form of answers.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::ColorChoice;
use serde::Serialize;
use slipway_document::text::{printable, printable_json};
use slipway_engine::state::StateRoot;
use slipway_image::Store;
use slipway_study::{Machine, Output};

use crate::failure::{Failure, unwritten};

/// The folder of results that no option places. `SLIPWAY_RESULTS` names another folder.
const RESULTS: &str = "slipway-results";

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Answer with one JSON document on standard output (errors: on standard error)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print the answer alone: no progress, no advice
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log steps on standard error; twice, in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// This machine's part alone, of labs over several machines
    #[arg(long, global = true, hide = true)]
    pub(crate) part: bool,
    /// Colour
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto, hide_possible_values = true)]
    #[arg(help = "Colour: auto, always or never")]
    pub(crate) color: ColorChoice,
}

impl Global {
    /// Whether standard error may be coloured (<https://no-color.org>).
    pub(crate) fn colors(&self) -> bool {
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
            }
        }
    }
}

/// For commands that change something.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct DryRun {
    /// Print the changes, and make none
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The context of a command.
#[derive(Debug)]
pub(crate) struct Context {
    /// The whole command line, for completion and manual pages.
    pub(crate) command: fn() -> clap::Command,
    /// The global options, as given.
    pub(crate) global: Global,
    /// The folder with the state of labs.
    pub(crate) root: StateRoot,
}

impl Context {
    /// All that bringing labs up takes: this program is the agent of their nodes.
    pub(crate) fn machine(&self) -> Result<Machine, Failure> {
        let agent = slipway_sys::exe::path().map_err(Failure::io("find this program's own file"))?;
        Ok(Machine { labs: self.root.clone(), images: Store::open()?, agent })
    }

    /// Answers: `answer` as JSON where that was asked for, else what `text` makes of it.
    pub(crate) fn answer<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if !self.global.json {
            return self.print(&printable(&text(answer)));
        }
        let mut json = serde_json::to_string_pretty(answer)
            .map_err(|error| Failure::io("write the answer as JSON")(error.into()))?;
        json.push('\n');
        self.print(&printable_json(&json))
    }

    /// As [`answer`](Self::answer), for what is news rather than an answer: `--quiet` leaves the text out.
    pub(crate) fn tell<T: Serialize>(&self, news: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.global.quiet && !self.global.json { Ok(()) } else { self.answer(news, text) }
    }

    /// Writes `text` to standard output as it is.
    #[expect(clippy::unused_self, reason = "all that a command says goes through its context")]
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }
}

/// The folder for results: the one of `--out`, or one in [`RESULTS`].
pub(crate) fn output(out: Option<&Path>) -> Output {
    match out {
        Some(folder) => Output::At(folder.to_owned()),
        None => Output::Within(std::env::var_os("SLIPWAY_RESULTS").map_or_else(|| RESULTS.into(), PathBuf::from)),
    }
}

/// The words of this command, for records.
pub(crate) fn words() -> Vec<String> {
    std::env::args().collect()
}

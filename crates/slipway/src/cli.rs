//! From the process's arguments to a command, and from its outcome to an exit code.

use std::fmt::Write as _;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser};
use slipway_document::text::printable;
use slipway_engine::state::StateRoot;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::commands::{Command, GROUPS};
use crate::context::{Context, Global};
use crate::exit::Exit;
use crate::failure::Failure;

/// Real distributed applications on a virtual cluster of Linux containers, over the network you choose
#[derive(Debug, Parser)]
#[command(name = "slipway", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  slipway init                      write a commented lab file, slipway.yaml
  slipway up                        bring it up
  slipway exec n1 -- ping -c1 n2    run a program in a node
  slipway down                      take it down";

const ENVIRONMENT: &str = "\
Environment:
  SLIPWAY_STATE      folder of running labs (/run/slipway)
  SLIPWAY_IMAGES     folder of unpacked images (/var/lib/slipway/images)
  SLIPWAY_IMAGE_MAX  size that an image may unpack to (20GiB)
  SLIPWAY_SCRATCH    folder of the nodes' /scratch (/var/lib/slipway/scratch)
  SLIPWAY_RESULTS    folder of results that --out does not place (./slipway-results)
  SLIPWAY_LOG        filter of the log on standard error (warn), as in debug or slipway_engine=trace";

/// Runs what the process's arguments say.
pub(crate) fn run() -> Exit {
    let Cli { global, command } = match parse() {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    log(&global);
    let context = Context { root: StateRoot::default(), global, command: self::command };
    match command.run(&context) {
        Ok(exit) => exit,
        Err(failure) => {
            failure.report(context.global.json, context.global.colors());
            failure.exit()
        }
    }
}

fn parse() -> Result<Cli, Exit> {
    if let Some(cli) = parse_alone() {
        return Ok(cli);
    }
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        let own_words = std::env::args_os().take_while(|word| word != "--");
        if !asked && own_words.into_iter().any(|word| word == "--json") {
            let text = error.render().to_string();
            let wrong = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").trim();
            Failure::usage(format!("read the arguments: {wrong}\nHint: --help shows them")).report(true, false);
        } else {
            // Where nobody reads it, the exit code remains.
            let _ = error.print();
        }
        if asked { Exit::Success } else { Exit::Usage }
    })
}

/// Parses the arguments of the subcommand that comes first, without the parsers of all others: to make these takes most of the time of a
/// short command. `None` where the arguments are wrong, or ask for help. Then the whole parser explains.
fn parse_alone() -> Option<Cli> {
    let word = std::env::args_os().nth(1)?;
    let (parser, read) = Command::alone(word.to_str()?)?;
    let matches = Global::augment_args(clap::Command::new("slipway")).subcommand(parser).try_get_matches().ok()?;
    let (_, of_command) = matches.subcommand()?;
    Some(Cli { global: Global::from_arg_matches(&matches).ok()?, command: read(of_command).ok()? })
}

/// The whole command line: for parsing, completion and manual pages.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command().after_help(format!("{EXAMPLES}\n\nExit codes:\n{}\n\n{ENVIRONMENT}", Exit::table()));
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{}\nGlobal options:\n{{options}}{{after-help}}\n",
        groups(&command)
    );
    command.help_template(template)
}

/// Subcommands under headings, which clap has not.
fn groups(command: &clap::Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "\n{heading}:");
        for name in *names {
            let name = name.to_lowercase();
            let about = command.find_subcommand(&name).and_then(clap::Command::get_about);
            let _ = writeln!(text, "  {name:<11} {}", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    text
}

/// Logs on standard error: warnings always, since whoever trusts a result should have seen them; more on request, with the
/// duration of each span as it closes. A lab's processes inherit this, each with its own standard error.
fn log(global: &Global) {
    let asked = std::env::var("SLIPWAY_LOG").ok().filter(|filter| !filter.is_empty());
    let is_more = asked.is_some() || global.verbose > 0;
    let usual = ["warn", "info", "debug"][usize::from(global.verbose.min(2))];
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(asked.as_deref().unwrap_or(usual)))
        .with_writer(|| Visible(std::io::stderr()))
        // The lab's processes write to files.
        .with_ansi(false)
        .with_target(is_more)
        .with_timer(Clock { command: std::process::id(), in_command: is_more })
        .with_span_events(if is_more { FmtSpan::CLOSE } else { FmtSpan::NONE })
        .init();
}

/// The time of day, which a plain warning of the command does without.
struct Clock {
    /// The command's process.
    command: u32,
    /// Whether the command itself writes times too.
    in_command: bool,
}

impl FormatTime for Clock {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        if self.in_command || std::process::id() != self.command { SystemTime.format_time(to) } else { Ok(()) }
    }
}

/// Writes what is hidden in a line out, whoever put it there.
struct Visible(std::io::Stderr);

impl std::io::Write for Visible {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(printable(&String::from_utf8_lossy(buffer)).as_bytes())?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

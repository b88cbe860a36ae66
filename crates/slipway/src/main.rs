//! The slipway command: arguments in, engine calls, answers out.

mod cli;
mod commands;
mod context;
mod exit;
mod failure;
mod labs;
mod meter;
mod user;
mod view;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // What nodes find at /run/slipway/agent is this program too.
    if Path::new(&name).file_name().is_some_and(|name| name == "agent")
        && let Some(code) = slipway_engine::copy::agent(arguments)
    {
        return ExitCode::from(code);
    }
    ExitCode::from(cli::run().code())
}

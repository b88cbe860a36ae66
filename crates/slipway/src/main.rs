//! The slipway command: arguments in, engine calls, answers out.

mod cli;
mod commands;
mod conditions;
mod context;
mod datapath;
mod done;
mod events;
mod exit;
mod failure;
mod labs;
mod machines;
mod meter;
mod parts;
mod short;
mod targets;
mod user;
mod view;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    // Nodes find this program at /run/slipway/agent too.
    let is_agent = Path::new(&program).file_name().is_some_and(|name| name == "agent");
    if is_agent {
        return ExitCode::from(agent());
    }
    if let Err(error) = slipway_sys::exe::shield() {
        eprintln!("slipway: failed to execute itself out of reach of the nodes: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = slipway_sys::process::remember_inherited() {
        eprintln!("slipway: failed to look at its own descriptors: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(cli::run().code())
}

/// The part that runs inside a node: a campaign's worker, an end of a transfer, copying, or launching what MPI asks for.
fn agent() -> u8 {
    match std::env::args_os().nth(1) {
        Some(word) if word == "worker" => {
            let is_far = std::env::args_os().nth(2).is_some_and(|word| word == "far");
            return slipway_study::campaign::worker(is_far);
        }
        Some(word) if word == slipway_transfer::agent::OPTION => return slipway_transfer::agent::main(),
        _ => {}
    }
    slipway_engine::copy::agent(std::env::args_os().skip(1)).unwrap_or_else(|| {
        let argv: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        slipway_engine::job::agent::agent_main(&argv)
    })
}

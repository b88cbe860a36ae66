//! Makes a report again from its records: `cargo run -p slipway-measure --example report records.jsonl > report.html`.

use std::process::ExitCode;

use slipway_measure::{record::Comparison, report};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: report records.jsonl > report.html");
        return ExitCode::from(2);
    };
    let made = std::fs::read_to_string(&path)
        .map_err(|error| format!("read {}: {error}", path.display()))
        .and_then(|text| Comparison::read(&text).map_err(|error| error.to_string()));
    match made {
        Ok(comparison) => {
            print!("{}", report::html(&comparison));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed to {error}");
            ExitCode::FAILURE
        }
    }
}

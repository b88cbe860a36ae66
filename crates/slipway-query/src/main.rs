//! The program `slipway-query`, which `slipway campaign` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(slipway_query::cli::main())
}

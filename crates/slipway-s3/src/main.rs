//! The program `slipway-s3`, which `slipway` and `slipway-query` start: it speaks S3 for them.
//!
//! [`slipway_results::objects::service`] describes the protocol. Nobody else needs to start it.

mod bucket;
mod fault;
mod key;
mod serve;
mod upload;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "--version") {
        println!("slipway-s3 {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| {
        let ended = tokio::task::LocalSet::new().block_on(&runtime, serve::serve());
        // The caller is gone: nobody waits for what is under way.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipway-s3: failed to answer requests: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The page's words for benchmarks and comparisons.

use crate::record::Begin;

/// The page's question.
pub(super) fn question(begin: &Begin) -> &'static str {
    match begin.bench.as_ref().map(|bench| bench.kind.as_str()) {
        None => "What did the network cost?",
        Some("transfer") => "What does a transfer make of path and disk?",
        Some("disk") => "What does the disk give?",
        Some(_) => "What does the path give?",
    }
}

/// The words before the name of the lab or folder.
pub(super) fn subject(begin: &Begin) -> String {
    match &begin.bench {
        None => "slipway compare · lab".to_owned(),
        Some(bench) => format!("slipway bench {} ·", bench.kind),
    }
}

//! The answer of a transfer.

use std::fmt::Write as _;

use serde::Serialize;
use slipway_document::units::Bytes;
use slipway_transfer::send::{Choice, Named, Report};

use crate::view;

#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) destination: String,
    /// The network of the lab between two nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<String>,
    /// True where data went by TLS.
    pub(super) tls: bool,
    pub(super) verified_only: bool,
    #[serde(flatten)]
    pub(super) report: Report,
}

/// The answer for people.
pub(super) fn text(answer: &Answer) -> String {
    let report = &answer.report;
    let done = if answer.verified_only { "compared" } else { "transferred" };
    let rate = report.bytes as f64 * 8.0 / report.seconds.max(1e-9) / 1e9;
    let mut text = format!(
        "{done} {}, {} in {:.1} s ({rate:.2} Gbit/s)\n",
        view::count(report.files, "file"),
        view::size(Bytes(report.bytes)),
        report.seconds,
    );
    if !answer.verified_only {
        let protected = if answer.tls { "TLS 1.3" } else { "in clear" };
        let network = answer.network.as_ref().map(|name| format!("network {name}, ")).unwrap_or_default();
        text += &view::facts(&[
            ("sent", format!("{}; {} were there", view::size(Bytes(report.sent)), view::size(Bytes(report.kept)))),
            ("path", format!("{network}{}, {}, {protected}, {:.1} ms round trip", view::count(report.streams, "stream"), report.congestion_control, report.rtt * 1e3)),
            ("limited by", report.limited_by.to_string()),
        ]);
        for Choice { setting, value, rule, why } in &report.choices {
            let rule = rule.as_ref().map(|rule| format!(" (rule {rule})")).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{setting}: {value}{rule}: {why}");
        }
    }
    // Writing to a string cannot fail.
    let mut named = |what: &str, list: &[Named]| {
        for Named { path, why } in list {
            let _ = writeln!(text, "{what}: {path}: {why}");
        }
    };
    named("changed", &report.changed);
    named("failed", &report.failed);
    named("different", &report.different);
    for path in &report.extra {
        let _ = writeln!(text, "only at the destination: {path}");
    }
    if !report.skipped.is_empty() {
        let _ = writeln!(text, "left out (sockets, FIFOs, devices): {}", view::listed(&report.skipped));
    }
    text
}

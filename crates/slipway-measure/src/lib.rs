//! What did the network cost? Probes, statistics, records, and the comparison report.
//!
//! This crate starts nothing and asks the machine nothing. It names the programs to run, reads their output, and turns
//! records into tables and a page. So tests run it from files, and another machine can make a report again.
//!
//! ```text
//! Probe::steps ──▶ (the caller runs them) ──▶ Probe::read ──▶ Measurement ──▶ records.jsonl
//!                                                                                  │
//!                            text table, Markdown ◀── Summary ◀── Comparison::read ┤
//!                                                        report.html ◀─────────────┘
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`probe`] | measuring jobs: what to run on which of two nodes, and readers of iperf3, `NetPIPE`, ping, and any command |
//! | [`record`] | the format of `records.jsonl`, its writer and reader |
//! | [`play`] | the format of `events.jsonl`: what playing a scenario did, and when |
//! | [`check`] | what was measured of links beside what was asked: the format, tables, warnings |
//! | [`bottleneck`] | the resource that was saturated, from counters, in words |
//! | [`stats`] | median, bootstrap interval, paired ratio; the method and its sources |
//! | [`summary`] | figure × driver: rows, verdicts, Markdown |
//! | [`report`] | one self-contained HTML page with SVG plots |
//! | [`format`](mod@format) | numbers as people read them |
//!
//! # From a measurement to a report
//! ```
//! use std::time::Duration;
//! use slipway_measure::{probe::{Output, Probe}, record, report, summary::Summary};
//!
//! let probe = Probe::builtin("ping").expect("a built-in probe");
//! let steps = probe.steps("10.64.0.2".parse()?);
//! assert_eq!(steps[0].client.join(" "), "ping -n -c 100 -w 31 -i 0.01 10.64.0.2");
//!
//! // The caller runs the step in a node, under each driver in turn, and hands over what it wrote.
//! let stdout = b"100 packets transmitted, 100 received, 0% packet loss, time 1596ms
//! rtt min/avg/max/mdev = 0.005/0.042/0.467/0.044 ms\n".to_vec();
//! let output = Output { stdout, stderr: Vec::new(), code: 0, wall: Duration::from_millis(1600) };
//! let samples = probe.read(&[output])?;
//!
//! let begin = record::Begin {
//!     format: record::FORMAT.into(), version: "0.1.0".into(), lab: "demo".into(), lab_sha256: "…".into(),
//!     drivers: vec!["host".into()], jobs: Vec::new(), repeat: 1, warm_up: 0, seed: 1,
//!     command: vec!["slipway".into(), "compare".into()], machine: serde_json::json!({"kernel": "6.18"}),
//!     started: "2026-11-21T12:00:00Z".into(), checks: Vec::new(), scenario: None, bench: None,
//! };
//! let measurement = record::Measurement {
//!     round: 1, warm_up: false, driver: "host".into(), job: probe.name().into(), mechanism: "none".into(),
//!     started: "2026-11-21T12:00:01Z".into(), seconds: 1.6, samples, error: None,
//!     played: Vec::new(), counters: None,
//! };
//! let mut file = Vec::new();
//! record::Writer::begin(&mut file, &begin)?.measurement(&measurement)?;
//!
//! let comparison = record::Comparison::read(std::str::from_utf8(&file)?)?;
//! let figure = &Summary::new(&comparison).figures[0];
//! assert_eq!((figure.name.as_str(), figure.rows[0].value.median), ("ping round trip, average", 0.042));
//! assert!(report::html(&comparison).contains("What did the network cost?"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Out of scope
//! Running programs and making labs (the engine's), tables for terminals (the command's), and emulated clocks: times
//! are those of the machine that measured.

pub mod bottleneck;
pub mod check;
pub mod format;
mod markdown;
pub mod play;
pub mod probe;
pub mod record;
pub mod report;
pub mod stats;
pub mod summary;

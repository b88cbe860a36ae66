//! Whether links are what they are asked to be: packets with a number and a time are sent from node to node, and what
//! arrives is held against the conditions in force.
//!
//! All sockets are this process's own, opened inside the nodes' network namespaces, so that one clock stamps both ends and
//! nothing has to be installed in a node. Packets pass through everything that a program's would.

mod expect;
mod flood;
mod judge;
mod path;
mod train;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use expect::Expected;
pub use judge::{Check, Verdict};
pub use path::Route;

use crate::condition::LinkReport;
use crate::lab::{LabError, Running};

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A node cannot be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The kernel refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What.
        doing: String,
        /// Why.
        source: std::io::Error,
    },
    /// Two nodes without a network in common.
    #[error("find a way from {from} to {to}: they have no network in common\nHint: choose nodes of one network")]
    NoRoute {
        /// Sender.
        from: String,
        /// Receiver.
        to: String,
    },
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Packets from each node to each other one.
    pub packets: u32,
    /// Between two packets of a path.
    pub interval: Duration,
    /// How long a rate is measured.
    pub rate_time: Duration,
}

impl Default for Effort {
    /// A thousand packets a path, a millisecond apart, and half a second for a rate.
    fn default() -> Self {
        Self { packets: 1000, interval: Duration::from_millis(1), rate_time: Duration::from_millis(500) }
    }
}

/// What was asked of one path, and what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From where to where.
    #[serde(flatten)]
    pub route: Route,
    /// What makes its conditions, sender's egress and receiver's ingress.
    pub mechanism: String,
    /// One for each condition, and always loss.
    pub checks: Vec<Check>,
    /// One-way delays of the packets that arrived; `None` where none did.
    pub delays: Option<Spread>,
}

/// Where values lie, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half are no greater.
    pub median: f64,
    /// 99 of 100 are no greater.
    pub p99: f64,
    /// None is greater.
    pub worst: f64,
}

impl Outcome {
    /// False where something is not as asked.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Off)
    }
}

/// Measures `routes`, all at once for delay and loss, one after the other for rates. `progress` is told how far it is, per
/// mille.
pub fn verify(
    running: &Running,
    links: &LinkReport,
    routes: &[Route],
    effort: Effort,
    progress: &mut dyn FnMut(u16),
) -> Result<Vec<Outcome>, VerifyError> {
    let expected: Vec<Expected> = routes.iter().map(|route| Expected::of(links, route)).collect();
    let paths = routes.iter().map(|route| path::Path::open(running, route)).collect::<Result<Vec<_>, _>>()?;
    let limited = expected.iter().filter(|expected| expected.rate.is_some()).count();
    // The trains, then each rate, are taken to last as long as each other.
    let share = 1.0 / (1.0 + limited as f64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let mut tell = |done: f64| progress((done * 1000.0).clamp(0.0, 1000.0) as u16);
    let patience = expected.iter().map(|expected| expected.delay + 5.0 * expected.jitter).fold(0.0, f64::max);
    let interval = train::interval(&expected, effort);
    let trains = train::run(&paths, effort.packets, interval, Duration::from_secs_f64(patience + 0.5), &mut |part| {
        tell(part * share);
    })?;
    let mut done = share;
    let mut outcomes = Vec::with_capacity(routes.len());
    for (((route, expected), path), train) in routes.iter().zip(&expected).zip(&paths).zip(trains) {
        let mut checks = judge::train(expected, &train);
        let delays = train.spread();
        if let Some(rate) = expected.rate {
            checks.push(judge::rate(rate, flood::run(path, expected, effort.rate_time)?));
            done += share;
            tell(done);
        }
        outcomes.push(Outcome { route: route.clone(), mechanism: expected.mechanism.clone(), checks, delays });
    }
    Ok(outcomes)
}

fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> VerifyError {
    let doing = doing.into();
    move |source| VerifyError::Io { doing, source }
}

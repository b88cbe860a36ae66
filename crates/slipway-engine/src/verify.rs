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

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use slipway_measure::check::CheckedPath;

pub use path::Route;

use expect::Expected;

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
    /// The caller broke it off.
    #[error("measure the links: interrupted")]
    Interrupted,
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
    /// About how long all of it may take: fewer packets are sent where that many do not fit in, and rates are left out whose
    /// turn does not come.
    pub most: Option<Duration>,
}

impl Default for Effort {
    /// A thousand packets a path, a millisecond apart, and half a second for a rate.
    fn default() -> Self {
        Self { packets: 1000, interval: Duration::from_millis(1), rate_time: Duration::from_millis(500), most: None }
    }
}

/// Whether anything is asked of a path: a condition, a cut or a partition.
#[must_use]
pub fn is_conditioned(links: &LinkReport, route: &Route) -> bool {
    Expected::of(links, route).is_anything()
}

/// Measures `routes`, all at once for delay and loss, one after the other for rates. `progress` is told how far it is, per
/// mille, and says whether to go on.
///
/// # Errors
/// When a node cannot be entered, the kernel refuses something, or `progress` breaks it off.
#[tracing::instrument(level = "info", skip_all, err(level = "debug"))]
pub fn verify(
    running: &Running,
    links: &LinkReport,
    routes: &[Route],
    effort: Effort,
    progress: &mut dyn FnMut(u16) -> ControlFlow<()>,
) -> Result<Vec<CheckedPath>, VerifyError> {
    let deadline = effort.most.map(|most| Instant::now() + most);
    let expected: Vec<Expected> = routes.iter().map(|route| Expected::of(links, route)).collect();
    let paths = routes.iter().map(|route| path::Path::open(running, route)).collect::<Result<Vec<_>, _>>()?;
    let limited = expected.iter().filter(|expected| expected.rate.is_some()).count();
    // The trains, then each rate, are taken to last as long as each other.
    let share = 1.0 / (1.0 + limited as f64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let mut tell = |done: f64| match progress((done * 1000.0).clamp(0.0, 1000.0) as u16) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(VerifyError::Interrupted),
    };
    let patience = expected.iter().map(|expected| expected.delay + 5.0 * expected.jitter).fold(0.0, f64::max);
    let interval = train::interval(&expected, effort);
    let packets = train::packets(interval, effort);
    let trains =
        train::run(&paths, packets, interval, Duration::from_secs_f64(patience + 0.5), &mut |part| tell(part * share))?;
    let mut done = share;
    let mut checked = Vec::with_capacity(routes.len());
    for (((route, expected), path), train) in routes.iter().zip(&expected).zip(&paths).zip(trains) {
        let mut checks = judge::train(expected, &train);
        if let Some(rate) = expected.rate {
            let over =
                deadline.is_some_and(|deadline| Instant::now() + flood::lasts(path, expected, effort) > deadline);
            checks.push(if over {
                judge::rate_left_out(rate)
            } else {
                judge::rate(rate, flood::run(path, expected, effort.rate_time)?)
            });
            done += share;
            tell(done)?;
        }
        let node = |(node, _): (usize, usize)| &running.lab.nodes[node];
        checked.push(CheckedPath {
            under: String::new(),
            from: node(route.from).name.clone(),
            to: node(route.to).name.clone(),
            network: running.lab.networks[node(route.from).interfaces[route.from.1].network].name.clone(),
            mechanism: expected.mechanism.clone(),
            packets,
            checks,
            delays: train.spread(),
        });
    }
    Ok(checked)
}

fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> VerifyError {
    let doing = doing.into();
    move |source| VerifyError::Io { doing, source }
}

//! Measures whether links meet their conditions. It sends packets with a number and a time from node to node, and
//! compares arrivals with the mechanism's model of the conditions in force.
//!
//! All sockets are this process's own, opened inside the nodes' network namespaces, so that one clock stamps both ends and
//! nothing has to be installed in a node. Packets pass through everything that a program's would.
//!
//! A simulation gives the expected values. The same packets, sent at the same times, pass models of the mechanisms on
//! their way ([`world`], [`model`]). They do so as often as it takes to know how far chance alone may go ([`expect`],
//! [`chance`]).

mod chance;
mod expect;
mod flood;
mod judge;
mod model;
mod path;
#[cfg(test)]
mod tests;
mod timetable;
mod train;
mod world;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use slipway_lab::id::NodeId;
use slipway_measure::check::CheckedPath;

pub use path::Route;

use timetable::Timetable;
use world::World;

use slipway_engine::condition::LinkReport;
use slipway_engine::lab::{LabError, Running};

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A node cannot be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The kernel refused something.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action.
        doing: String,
        /// The error of the action.
        source: std::io::Error,
    },
    /// A node is on another machine.
    #[error(
        "measure a path of {node}, which is on machine {machine}: one clock has to see both ends\nHint: choose nodes of one machine, and give the command there"
    )]
    Elsewhere {
        /// The node.
        node: String,
        /// Its machine.
        machine: String,
    },
    /// The caller broke it off.
    #[error("measure the links: interrupted")]
    Interrupted,
    /// The lab does not say which way packets take.
    #[error(
        "find the way from {from} to {to}: programs of {by} route by themselves\nHint: choose nodes of one network, such as {by} and its neighbour"
    )]
    Unknown {
        /// Sender.
        from: String,
        /// Receiver.
        to: String,
        /// A node with `routes: none`.
        by: String,
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

/// The size of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Packets of each path. `None`: a thousand, or as many as it takes to tell what is asked, as far as there is time.
    pub packets: Option<u32>,
    /// Between two packets of a path. `None`: a millisecond, or less for many packets. It is longer where a rate or many
    /// paths need it.
    pub interval: Option<Duration>,
    /// How long a rate is measured; longer where it is low.
    pub rate_time: Duration,
    /// About how long all of it may take. Fewer packets are sent where so many do not fit in. Rates whose turn does not
    /// come are left out. `None`: some ten seconds a path.
    pub time: Option<Duration>,
}

impl Default for Effort {
    fn default() -> Self {
        Self { packets: None, interval: None, rate_time: Duration::from_millis(500), time: None }
    }
}

/// Whether anything is asked of a path: a condition, a cut or a partition.
#[must_use]
pub fn is_conditioned(links: &LinkReport, route: &Route) -> bool {
    let world = World::of(links, std::slice::from_ref(route), &|_| 1500);
    world.ways.iter().any(|way| way.closed || !way.asked.is_empty())
}

/// The paths to measure, and the packets to send.
#[derive(Debug)]
pub struct Plan {
    world: World,
    timetable: Timetable,
    paths: Vec<path::Path>,
    labels: Vec<CheckedPath>,
    effort: Effort,
}

impl Plan {
    /// Prepares to measure `routes`: all at once for delay and loss, one after the other for rates.
    ///
    /// # Errors
    /// When a node cannot be entered, or the kernel refuses something.
    pub fn new(running: &Running, links: &LinkReport, routes: &[Route], effort: Effort) -> Result<Self, VerifyError> {
        let lab = &running.lab;
        let mut nodes = routes.iter().flat_map(|route| &route.hops).flat_map(|hop| [hop.from.0, hop.to.0]);
        if let Some(node) = nodes.find(|&node| !lab.has_here(node)) {
            let machine = lab.machines[lab.machine_of(node)].name.clone();
            return Err(VerifyError::Elsewhere { node: lab.nodes[node].name.clone(), machine });
        }
        let world = World::of(links, routes, &|place| path::mtu(running, place));
        let paths = routes.iter().map(|route| path::Path::open(running, route)).collect::<Result<Vec<_>, _>>()?;
        let mtus: Vec<usize> = paths.iter().map(|path| path.mtu).collect();
        let timetable = Timetable::of(&world, &mtus, effort);
        let label = |((route, way), train): ((&Route, &world::Way), &timetable::Train)| {
            let node = |node: NodeId| running.lab.nodes[node].name.clone();
            let network = |hop: &path::Hop| {
                let (node, slot) = hop.from;
                running.lab.networks[running.lab.nodes[node].interfaces[slot].network].name.clone()
            };
            CheckedPath {
                under: String::new(),
                from: node(route.from().0),
                to: node(route.to().0),
                via: route.hops.iter().skip(1).map(|hop| node(hop.from.0)).collect(),
                network: route.hops.iter().map(network).collect::<Vec<_>>().join(", "),
                mechanism: way.mechanism.clone(),
                packets: train.packets,
                checks: Vec::new(),
                delays: None,
            }
        };
        let labels = routes.iter().zip(&world.ways).zip(&timetable.trains).map(label).collect();
        Ok(Self { world, timetable, paths, labels, effort })
    }

    /// About how long it takes.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.timetable.lasts(self.effort)
    }

    /// Measures. `progress` is told how far it is, per mille, and says whether to go on.
    ///
    /// # Errors
    /// When the kernel refuses something, or `progress` breaks it off.
    #[tracing::instrument(name = "verify", level = "info", skip_all, err(level = "debug"))]
    pub fn run(mut self, progress: &mut dyn FnMut(u16) -> ControlFlow<()>) -> Result<Vec<CheckedPath>, VerifyError> {
        let deadline = self.effort.time.map(|time| Instant::now() + time);
        let all = self.lasts().as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let mut tell = |seconds: f64| match progress((seconds / all * 1000.0).clamp(0.0, 1000.0) as u16) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(VerifyError::Interrupted),
        };
        let Self { world, timetable, paths, labels, .. } = &mut self;
        let mut sent = timetable.packets();
        let lengths: Vec<u32> = timetable.trains.iter().map(|train| train.packets).collect();
        let mut done = timetable.trains_last().as_secs_f64();
        let trains = train::run(paths, &lengths, &mut sent, timetable.patience, &mut |part| tell(part * done))?;
        let expected = expect::expect(world, &sent);
        for (at, label) in labels.iter_mut().enumerate() {
            label.checks = judge::train(&expected[at], &trains[at], timetable.trains[at].needed);
            label.delays = trains[at].spread();
        }
        for (at, flood) in timetable.floods.iter().enumerate() {
            let Some(flood) = flood else { continue };
            let over = deadline.is_some_and(|deadline| Instant::now() + flood.lasts() > deadline);
            if over {
                labels[at].checks.push(judge::rate_left_out(flood.rate));
            } else {
                let (expected, through) = expect::rate(world, &flood.packets, &|arrivals| flood.reckon(arrivals));
                let lasts = flood.lasts().as_secs_f64();
                let flooded = flood.run(&paths[at], through, &mut |part| tell(done + part * lasts))?;
                done += lasts;
                labels[at].checks.push(judge::rate(expected, flood.rate, flooded));
                let standing = flood.queue().and_then(|_| expect::standing(world, flood));
                labels[at].checks.extend(judge::queue(standing, flood, flooded));
            }
        }
        Ok(self.labels)
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> VerifyError {
    let doing = doing.into();
    move |source| VerifyError::Io { doing, source }
}

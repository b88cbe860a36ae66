//! Measures whether links meet their conditions. It sends packets with a number and a time from node to node, and
//! compares arrivals with the mechanism's model of the conditions in force.
//!
//! All sockets are this process's own, opened inside the nodes' network namespaces, so that one clock stamps both ends and
//! nothing has to be installed in a node. Packets pass through everything that a program's would. Where the ends are on
//! different machines, each has such a process ([`Part`]), and the difference of their clocks is taken off ([`Carrier`]).
//!
//! A simulation gives the expected values. The same packets, sent at the same times, pass models of the mechanisms on
//! their way ([`world`], [`model`]). They do so as often as it takes to know how far chance alone may go ([`expect`],
//! [`chance`]).

mod chance;
mod expect;
mod flood;
mod judge;
mod model;
mod part;
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

pub use part::{Carrier, Outcome, Part, Ports, Task};
pub use path::Route;

use part::{Doing, Done};
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
    /// A task is about a path that was not opened.
    #[error("measure a path: it is none of those that were opened")]
    NoPath,
    /// A machine's part did something else.
    #[error("measure the links: a machine's answer does not fit the task")]
    OtherAnswer,
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
    labels: Vec<CheckedPath>,
    effort: Effort,
}

impl Plan {
    /// Prepares to measure `routes`: all at once for delay and loss, one after the other for rates. `links` are those of all
    /// machines that the routes lead over.
    #[must_use]
    pub fn new(running: &Running, links: &LinkReport, routes: &[Route], effort: Effort) -> Self {
        let world = World::of(links, routes, &|place| path::mtu(running, place));
        let mtus: Vec<usize> = routes.iter().map(|route| path::mtu_of(running, route)).collect();
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
        Self { world, timetable, labels, effort }
    }

    /// About how long it takes.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.timetable.lasts(self.effort)
    }

    /// Measures. `progress` is told how far it is, per mille, and says whether to go on.
    ///
    /// # Errors
    /// When the carrier cannot, or `progress` breaks it off.
    #[tracing::instrument(name = "verify", level = "info", skip_all)]
    pub fn run<C: Carrier>(
        mut self,
        carrier: &mut C,
        progress: &mut dyn FnMut(u16) -> ControlFlow<()>,
    ) -> Result<Vec<CheckedPath>, C::Error> {
        let deadline = self.effort.time.map(|time| Instant::now() + time);
        let all = self.lasts().as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let mut tell = |seconds: f64| match progress((seconds / all * 1000.0).clamp(0.0, 1000.0) as u16) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(VerifyError::Interrupted),
        };
        let Self { world, timetable, labels, .. } = &mut self;
        let mut done = timetable.trains_last().as_secs_f64();
        let task = Task(Doing::Trains(timetable.trains.clone(), timetable.patience));
        let Done::Trains { sent: times, trains } = carrier.perform(&task, &mut |part| tell(part * done))?.0 else {
            return Err(VerifyError::OtherAnswer.into());
        };
        let mut sent = timetable::packets(&timetable.trains);
        for packet in &mut sent {
            let time = times.get(packet.way).and_then(Option::as_ref);
            packet.at = time.and_then(|time| time.get(packet.number as usize)).copied().unwrap_or(packet.at);
        }
        // The model takes packets in the order in which they left.
        sent.sort_unstable();
        let expected = expect::expect(world, &sent);
        for (at, label) in labels.iter_mut().enumerate() {
            let Some(Some(train)) = trains.get(at) else { return Err(VerifyError::OtherAnswer.into()) };
            label.checks = judge::train(&expected[at], train, timetable.trains[at].needed, carrier.slack(at));
            label.delays = train.spread();
        }
        for (at, flood) in timetable.floods.iter().enumerate() {
            let Some(flood) = flood else { continue };
            let over = deadline.is_some_and(|deadline| Instant::now() + flood.lasts() > deadline);
            if over {
                labels[at].checks.push(judge::rate_left_out(flood.rate));
            } else {
                let packets = flood.packets(at);
                let (expected, through) = expect::rate(world, &packets, &|arrivals| flood.reckon(arrivals));
                let lasts = flood.lasts().as_secs_f64();
                let task = Task(Doing::Flood(at, flood.clone(), through));
                let Done::Flood(flooded) = carrier.perform(&task, &mut |part| tell(done + part * lasts))?.0 else {
                    return Err(VerifyError::OtherAnswer.into());
                };
                done += lasts;
                labels[at].checks.push(judge::rate(expected, flood.rate, flooded));
                let standing = flood.queue().and_then(|_| expect::standing(world, &packets, flood));
                labels[at].checks.extend(judge::queue(standing, flood, flooded, carrier.slack(at)));
            }
        }
        Ok(self.labels)
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> VerifyError {
    let doing = doing.into();
    move |source| VerifyError::Io { doing, source }
}

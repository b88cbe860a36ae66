//! Measuring where the ends of paths are: a machine's part of a task, and what all parts say together.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slipway_engine::lab::Running;

use super::flood::{Flood, Flooded};
use super::path::{Path, Route};
use super::timetable::{self, Train as Plan};
use super::train::{self, Train};
use super::{VerifyError, failed};

/// The UDP ports of a path's ends, the sender's first. `None` for an end on another machine.
pub type Ports = [Option<u16>; 2];

/// The packets to be sent and received. All machines have the same task at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task(pub(super) Doing);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Doing {
    /// Trains over all paths at once, and how long to wait after the last packet.
    Trains(Vec<Plan>, Duration),
    /// A flood of one path, by its position, and when its last packet is through.
    Flood(usize, Flood, Duration),
}

/// The result of a machine's part of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome(pub(super) Done);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Done {
    Trains {
        /// When each packet of each path was sent, nanoseconds since the beginning. `None` where another machine sends.
        sent: Vec<Option<Vec<u64>>>,
        /// The packets that arrived on each path. `None` where another machine receives.
        trains: Vec<Option<Train>>,
    },
    Flood(Flooded),
}

/// Has all machines perform tasks.
pub trait Carrier {
    /// An error of the machines, or of measuring.
    type Error: From<VerifyError>;

    /// Performs a task: all parts, put together. `progress` hears the share that is done, and breaks it off by an error.
    ///
    /// # Errors
    /// When a part fails, or `progress` breaks it off.
    fn perform(
        &mut self,
        task: &Task,
        progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
    ) -> Result<Outcome, Self::Error>;

    /// How far a measured delay of a path may be from the truth because two clocks tell it, seconds.
    fn slack(&self, path: usize) -> f64;
}

/// This machine's ends of paths.
#[derive(Debug)]
pub struct Part {
    paths: Vec<Path>,
}

impl Part {
    /// Opens sockets for the ends that are in nodes of this machine.
    ///
    /// # Errors
    /// When a node cannot be entered, or the kernel refuses something.
    pub fn open(running: &Running, routes: &[Route]) -> Result<Self, VerifyError> {
        let paths = routes.iter().map(|route| Path::open(running, route)).collect::<Result<_, _>>()?;
        Ok(Self { paths })
    }

    /// The same, with both ends of each path on this machine, joined.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn whole(running: &Running, routes: &[Route]) -> Result<Self, VerifyError> {
        let part = Self::open(running, routes)?;
        let ports = part.ports()?;
        part.join(&ports)?;
        Ok(part)
    }

    /// The ports of its ends, path by path.
    ///
    /// # Errors
    /// When the kernel does not tell them.
    pub fn ports(&self) -> Result<Vec<Ports>, VerifyError> {
        self.paths.iter().map(Path::ports).collect::<Result<_, _>>().map_err(failed("see the port of a socket"))
    }

    /// Joins its ends with the others, which have these ports.
    ///
    /// # Errors
    /// When a path has no port at an end, or the kernel refuses something.
    pub fn join(&self, ports: &[Ports]) -> Result<(), VerifyError> {
        let ports = self.paths.iter().zip(ports);
        let joined = ports.map(|(path, ports)| path.join(*ports)).collect::<Result<Vec<()>, _>>();
        joined.map(drop).map_err(failed("join two sockets"))
    }

    /// Performs its part of a task that begins at `begun`.
    ///
    /// # Errors
    /// When the kernel refuses something, or `progress` breaks it off.
    pub fn perform(
        &self,
        task: &Task,
        begun: Instant,
        progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
    ) -> Result<Outcome, VerifyError> {
        // All machines begin at one time. There is nothing else to wait for.
        std::thread::sleep(begun.saturating_duration_since(Instant::now()));
        match &task.0 {
            Doing::Trains(plans, _) if plans.len() != self.paths.len() => Err(VerifyError::NoPath),
            Doing::Trains(plans, patience) => {
                let mut packets = timetable::packets(plans);
                let lengths: Vec<u32> = plans.iter().map(|plan| plan.packets).collect();
                let trains = train::run(&self.paths, &lengths, &mut packets, *patience, begun, progress)?;
                let mut sent: Vec<Option<Vec<u64>>> = self
                    .paths
                    .iter()
                    .zip(&lengths)
                    .map(|(path, &length)| path.sender.is_some().then(|| vec![0; length as usize]))
                    .collect();
                for packet in packets {
                    if let Some(Some(sent)) = sent.get_mut(packet.way) {
                        sent[packet.number as usize] = packet.at;
                    }
                }
                let trains = self.paths.iter().zip(trains);
                let trains = trains.map(|(path, train)| path.receiver.is_some().then_some(train)).collect();
                Ok(Outcome(Done::Trains { sent, trains }))
            }
            Doing::Flood(at, flood, through) => {
                let path = self.paths.get(*at).ok_or(VerifyError::NoPath)?;
                flood.run(path, *through, begun, progress).map(Done::Flood).map(Outcome)
            }
        }
    }
}

impl Carrier for Part {
    type Error = VerifyError;

    fn perform(
        &mut self,
        task: &Task,
        progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
    ) -> Result<Outcome, VerifyError> {
        Part::perform(self, task, Instant::now(), progress)
    }

    fn slack(&self, _: usize) -> f64 {
        0.0
    }
}

impl Task {
    /// Puts what came of all parts together. `ahead` says how far the clock that a path's receiver reads is ahead of its
    /// sender's, seconds.
    ///
    /// # Errors
    /// When a part answers another task than this.
    pub fn join(&self, parts: Vec<Outcome>, ahead: &dyn Fn(usize) -> f64) -> Result<Outcome, VerifyError> {
        match &self.0 {
            Doing::Trains(plans, _) => {
                let mut sent = vec![None; plans.len()];
                let mut trains: Vec<Option<Train>> = vec![None; plans.len()];
                for part in parts {
                    let Done::Trains { sent: its_sent, trains: its_trains } = part.0 else {
                        return Err(VerifyError::OtherAnswer);
                    };
                    fill(&mut sent, its_sent);
                    fill(&mut trains, its_trains);
                }
                for (path, train) in trains.iter_mut().enumerate() {
                    if let Some(train) = train {
                        train.sooner(ahead(path));
                    }
                }
                let fits = plans.iter().zip(&sent).zip(&trains).all(|((plan, sent), train)| {
                    let length = plan.packets as usize;
                    let sent = sent.as_ref().is_some_and(|sent: &Vec<u64>| sent.len() == length);
                    sent && train.as_ref().is_some_and(|train| train.delays.len() == length)
                });
                if fits { Ok(Outcome(Done::Trains { sent, trains })) } else { Err(VerifyError::OtherAnswer) }
            }
            Doing::Flood(path, ..) => {
                let mut all = Flooded::default();
                for part in parts {
                    let Done::Flood(part) = part.0 else { return Err(VerifyError::OtherAnswer) };
                    all = all.with(part);
                }
                all.took = all.took.map(|took| took - ahead(*path));
                Ok(Outcome(Done::Flood(all)))
            }
        }
    }
}

/// Takes what a part has of each path.
fn fill<T>(all: &mut [Option<T>], part: Vec<Option<T>>) {
    for (all, part) in all.iter_mut().zip(part) {
        if part.is_some() {
            *all = part;
        }
    }
}

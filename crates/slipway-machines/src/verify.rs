//! Measuring paths whose ends are on different machines.
//!
//! Each machine opens sockets in its own nodes, sends and receives there, and says when. The coordinator compares clocks, as
//! for scenarios, and takes their difference off each delay. Half of the best round trip is the most by which it can err,
//! and the judge of delays allows for that.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use slipway_engine::condition::LinkReport;
use slipway_engine::lab::{LabError, Running};
use slipway_engine::rsh::Rsh;
use slipway_engine::state::StateRoot;
use slipway_lab::id::{MachineId, NodeId};
use slipway_lab::model::Lab;
use slipway_verify::{Carrier, Outcome, Part, Ports, Route, Task, VerifyError};

use crate::ask::{self, all, each, open};
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order, receive, send};
use crate::play::clock::{Filter, Trip, now};

const DOING: &str = "measure the links";
/// From the order until a task begins: it has to reach every machine. Nanoseconds.
const LEAD: u64 = 250_000_000;
/// Round trips of each comparison of clocks.
const TRIPS: u32 = 16;
/// Between two words of a part that measures.
const TOLD: Duration = Duration::from_millis(100);

/// The links of all machines of a lab, and its nodes that run, each as its own machine sees them.
///
/// # Errors
/// All machines that could not say.
pub fn look(rsh: &Rsh, running: &Running) -> Result<(LinkReport, BTreeSet<NodeId>), MachineError> {
    let lab = &running.lab;
    let (mut links, mut alive) = here(running).map_err(MachineError::Lab)?;
    let others = ask::others(&lab.machines, lab.part.machine);
    let ids = lab.machines.ids().filter(|&machine| machine != lab.part.machine);
    let answers = ask::order(rsh, &others, "look at the links", &Order::Links { lab: lab.name.clone() });
    for (machine, answer) in ids.zip(all(answers)?) {
        let Answer::Links { report, alive: there } = answer else { continue };
        let is_its = |node: NodeId| lab.nodes.get(node).is_some() && lab.machine_of(node) == machine;
        links.join(*report, is_its);
        alive.extend(there.into_iter().filter(|&node| is_its(node)));
    }
    Ok((links, alive))
}

/// The links and running nodes of this machine's part.
///
/// # Errors
/// When the anchor cannot be asked.
pub fn here(running: &Running) -> Result<(LinkReport, BTreeSet<NodeId>), LabError> {
    let alive = running.lab.nodes_here().into_iter().filter(|&node| running.init(node).is_ok());
    Ok((running.links()?, alive.collect()))
}

/// The machines of a lab, with the ends of paths open.
#[derive(Debug)]
pub struct Machines {
    seats: Vec<Seat>,
    /// The machines of each path's ends, the sender's first.
    ends: Vec<(MachineId, MachineId)>,
}

#[derive(Debug)]
struct Seat {
    channel: Channel,
    clock: Filter,
    /// Its wall clock less its monotonic one, nanoseconds: packets carry the wall clock.
    wall: i64,
}

impl Seat {
    /// Compares its clock with this machine's.
    fn compare(&mut self) -> Result<(), MachineError> {
        for _ in 0..TRIPS {
            let sent = now();
            self.channel.give(&Order::Clock)?;
            match self.channel.answer()? {
                Answer::Clock { now: there } => self.clock.add(Trip { sent, there, received: now() }),
                other => return Err(self.channel.lost(format!("it answered {other:?}"))),
            }
        }
        Ok(())
    }
}

impl Machines {
    /// Opens the ends of all routes, each on its machine, and joins them.
    ///
    /// # Errors
    /// All machines that could not.
    pub fn open(rsh: &Rsh, lab: &Lab, routes: &[Route]) -> Result<Self, MachineError> {
        let seats = open(rsh, lab)?.into_iter().map(|channel| Seat { channel, clock: Filter::default(), wall: 0 });
        let order = Order::Paths { lab: lab.name.clone(), routes: routes.to_vec() };
        let opened = all(each(seats.collect(), |mut seat: Seat| {
            let ports = match seat.channel.have_done(DOING, &order, &mut |_| ())? {
                Answer::Ports { ports } if ports.len() == routes.len() => ports,
                other => return Err(seat.channel.lost(format!("it answered {other:?}"))),
            };
            Ok((seat, ports))
        }))?;
        let mut ports: Vec<Ports> = vec![[None; 2]; routes.len()];
        for (_, its) in &opened {
            for (all, its) in ports.iter_mut().zip(its) {
                *all = [all[0].or(its[0]), all[1].or(its[1])];
            }
        }
        let order = Order::Join { ports };
        let joined = each(opened, |(mut seat, _)| {
            seat.channel.have_done(DOING, &order, &mut |_| ())?;
            seat.compare()?;
            Ok(seat)
        });
        let ends = routes.iter().map(Route::ends).map(|(from, to)| (lab.machine_of(from), lab.machine_of(to)));
        Ok(Self { seats: all(joined)?, ends: ends.collect() })
    }

    /// How far a machine's wall clock is ahead of this one's monotonic clock, nanoseconds, and how far that may err.
    fn ahead(&self, machine: MachineId) -> (i64, u64) {
        let Some(seat) = self.seats.get(machine.index()) else { return (0, 0) };
        let held = seat.clock.at(now());
        held.map_or((0, u64::MAX), |held| (held.offset.wrapping_add(seat.wall), held.uncertainty))
    }
}

impl Carrier for Machines {
    type Error = MachineError;

    fn perform(
        &mut self,
        task: &Task,
        progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
    ) -> Result<Outcome, MachineError> {
        let start = now() + LEAD;
        let stop = AtomicBool::new(false);
        let (tell, told) = mpsc::channel();
        let seats: Vec<&mut Seat> = self.seats.iter_mut().collect();
        let (outcomes, broken) = std::thread::scope(|scope| {
            let stop = &stop;
            let measuring = scope.spawn(move || {
                each(seats, |seat| {
                    let tell = tell.clone();
                    let at = seat.clock.at(now()).map_or(start, |held| start.wrapping_add_signed(held.offset));
                    measure(seat, task, at, &mut |share| {
                        // Nobody listens any more once it is broken off.
                        let _ = tell.send(share);
                        !stop.load(Ordering::Relaxed)
                    })
                })
            });
            // It ends with the last sender.
            let mut broken = Ok(());
            for share in told {
                if broken.is_ok() {
                    broken = progress(share);
                    stop.store(broken.is_err(), Ordering::Relaxed);
                }
            }
            (measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), broken)
        });
        broken?;
        let outcomes = all(outcomes)?;
        let ahead = |path: usize| {
            let Some(&(from, to)) = self.ends.get(path).filter(|(from, to)| from != to) else { return 0.0 };
            self.ahead(to).0.wrapping_sub(self.ahead(from).0) as f64 / 1e9
        };
        Ok(task.join(outcomes, &ahead)?)
    }

    fn slack(&self, path: usize) -> f64 {
        let Some(&(from, to)) = self.ends.get(path).filter(|(from, to)| from != to) else { return 0.0 };
        self.ahead(to).1.saturating_add(self.ahead(from).1) as f64 / 1e9
    }
}

/// Has a machine perform its part of a task, and compares its clock afterwards. `go_on` hears how far it is.
fn measure(seat: &mut Seat, task: &Task, at: u64, go_on: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, MachineError> {
    seat.channel.give(&Order::Measure { task: Box::new(task.clone()), at })?;
    let (outcome, wall) = loop {
        match seat.channel.answer()? {
            Answer::Measuring { share } if go_on(share) => {}
            Answer::Measuring { .. } => {
                // Its part hears of it by its next word, which nobody reads.
                seat.channel.abandon();
                return Err(VerifyError::Interrupted.into());
            }
            Answer::Measured { outcome, wall } => break (outcome, wall),
            Answer::Failed { message } => {
                return Err(MachineError::Refused { doing: DOING, machine: seat.channel.machine.clone(), message });
            }
            other => return Err(seat.channel.lost(format!("it answered {other:?}"))),
        }
    };
    seat.wall = wall;
    seat.compare()?;
    Ok(*outcome)
}

/// Serves a machine's part: the ends of these routes that are here.
///
/// # Errors
/// When the coordinator cannot be answered, or sends what is no order.
pub(crate) fn serve(
    labs: &StateRoot,
    lab: &str,
    routes: &[Route],
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> io::Result<()> {
    let opened = Running::open(labs, lab).map_err(VerifyError::from).and_then(|running| {
        if !routes.iter().all(|route| route.fits(&running.lab)) {
            return Err(VerifyError::NoPath);
        }
        let part = Part::open(&running, routes)?;
        let ports = part.ports()?;
        Ok((part, ports))
    });
    let (part, ports) = match opened {
        Ok(opened) => opened,
        Err(error) => return send(to, &Answer::Failed { message: error.to_string() }),
    };
    send(to, &Answer::Ports { ports })?;
    while let Some(order) = receive::<Order>(from)? {
        let outcome = match order {
            Order::Clock => Ok(Answer::Clock { now: now() }),
            Order::Join { ports } => part.join(&ports).map(|()| Answer::done()),
            Order::Measure { task, at } => {
                let begun = Instant::now() + Duration::from_nanos(at.saturating_sub(now()));
                let mut told = Instant::now();
                let mut tell = |share: f64| {
                    if told.elapsed() < TOLD {
                        return Ok(());
                    }
                    told = Instant::now();
                    // A coordinator that is gone wants nothing measured.
                    send(to, &Answer::Measuring { share }).map_err(|_| VerifyError::Interrupted)
                };
                let measured = part.perform(&task, begun, &mut tell);
                measured.map(|outcome| Answer::Measured { outcome: Box::new(outcome), wall: wall() })
            }
            other => return Err(io::Error::other(format!("{other:?} is no order to one that measures"))),
        };
        send(to, &outcome.unwrap_or_else(|error| Answer::Failed { message: error.to_string() }))?;
    }
    Ok(())
}

/// The wall clock less the monotonic one, nanoseconds.
fn wall() -> i64 {
    let wall = clock_gettime(ClockId::Realtime);
    let wall = wall.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(wall.tv_nsec);
    wall.wrapping_sub(now().cast_signed())
}

//! A machine's part: it carries out the orders of a coordinator.

use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::time::Duration;

use slipway_engine::facts::{Check, Facts, Verdict};
use slipway_engine::lab::{Passing, Progress, Running, down, up_in_passing};
use slipway_engine::machine::Machine;
use slipway_engine::scenario::{self, Folder};
use slipway_lab::model::{Lab, Part, Secret};
use slipway_measure::play::Line;
use slipway_sys::signals::Taken;

use crate::away::Away;
use crate::hold;
use crate::images::{self, place};
use crate::input::Input;
use crate::message::{Answer, Order, VERSION, receive, send};
use crate::packed::Packed;
use crate::play::clock::{date, now};
use crate::play::part;
use crate::probe::{self, Ear};
use crate::shared;
use crate::verify;

/// Serves until the coordinator closes its end. A part that the coordinator did not keep goes down again. With signals,
/// one that it kept has this process for as long as it lives, and goes down once a signal comes. The process must have one
/// thread only, since anchors are cloned from it.
///
/// # Errors
/// When the coordinator cannot be answered, or sends what is no order.
pub fn serve(
    machine: &Machine,
    signals: Option<&Taken>,
    mut from: Input,
    to: &mut (impl Write + Send),
) -> io::Result<()> {
    send(to, &Answer::Hello { protocol: VERSION, version: env!("CARGO_PKG_VERSION").to_owned() })?;
    signals.map_or(Ok(()), |signals| from.end_by(signals))?;
    let (mut made, mut kept) = (None, None);
    let served = orders(machine, signals.is_some(), &mut BufReader::new(from), to, &mut made, &mut kept);
    let undone = made.map_or(Ok(()), Passing::down).map_err(io::Error::other);
    let stayed = kept.zip(signals).map_or(Ok(()), |(kept, signals)| kept.stay(signals)).map_err(io::Error::other);
    served.and(undone).and(stayed)
}

fn orders(
    machine: &Machine,
    stay: bool,
    from: &mut BufReader<Input>,
    to: &mut (impl Write + Send),
    made: &mut Option<Passing>,
    kept: &mut Option<Passing>,
) -> io::Result<()> {
    let mut ear = None;
    while let Some(order) = receive::<Order>(from)? {
        let outcome = match order {
            Order::Find { path } => Ok(shared::find(&path)),
            Order::Image { path, name, identity } => {
                images::look(&machine.images, &path, &name, &identity).map_err(|error| error.to_string())
            }
            Order::Make { lab, part, images, secret } => {
                unpack(&lab, &part, &images, secret).and_then(|lab| make(machine, &lab, to)).map(|passing| {
                    // One that ends by itself leaves nothing to wait for.
                    from.get_mut().end_with(passing.anchor().ok().flatten());
                    *made = Some(passing);
                    Answer::done()
                })
            }
            Order::Keep => keep(machine, made).map(|passing| {
                // Without it, the guard that would take the part down goes too.
                *kept = passing.filter(|_| stay);
                from.get_mut().end_with(None);
                Answer::done()
            }),
            Order::Vacant { first, count, address } => slipway_engine::network::is_vacant(first, count, address)
                .map(|vacant| Answer::Done { was_there: vacant, connections: 0, notes: Vec::new() })
                .map_err(|error| error.to_string()),
            Order::Down { lab, number, patience, note } => take_down(machine, &lab, number, patience, note),
            Order::Forget { lab, number } => Away::below(machine.labs.path())
                .forget(&lab, number)
                .map(|()| Answer::done())
                .map_err(|error| format!("forget a note of lab {lab}: {error}")),
            Order::Policy { lab, rules } => Running::open(&machine.labs, &lab)
                .and_then(|running| running.set_policy(&rules))
                .map(|connections| Answer::Done { was_there: true, connections, notes: Vec::new() })
                .map_err(|error| error.to_string()),
            Order::Give { lab, order } => Running::open(&machine.labs, &lab)
                .and_then(|running| running.give(*order))
                .map(|given| Answer::Done { was_there: true, connections: given.connections, notes: given.notes })
                .map_err(|error| error.to_string()),
            play @ (Order::Play { .. } | Order::Follow { .. }) => return part::relay(&machine.labs, &play, from, to),
            Order::Date => Ok(Answer::Clock { now: date() }),
            Order::Look => Ok(Answer::Looked { checks: lacking() }),
            Order::Listen { number } => Ear::open(number)
                .map(|opened| {
                    ear = Some(opened);
                    Answer::done()
                })
                .map_err(|error| format!("listen for probes: {error}")),
            Order::Probe { number, from: own, to: others } => probe::send(number, own, &others)
                .map(|()| Answer::done())
                .map_err(|error| format!("send from {own}: {error}")),
            Order::Heard => ear
                .take()
                .map_or_else(|| Ok(Vec::new()), Ear::heard)
                .map(|packets| Answer::Heard { packets })
                .map_err(|error| format!("listen for probes: {error}")),
            Order::Clock => Ok(Answer::Clock { now: now() }),
            Order::Log { lab } => log(machine, &lab, to),
            Order::Links { lab } => Running::open(&machine.labs, &lab)
                .and_then(|running| verify::here(&running))
                .map(|(report, alive)| Answer::Links { report: Box::new(report), alive })
                .map_err(|error| error.to_string()),
            Order::Hold { lab, changes } => return hold::serve(&machine.labs, &lab, &changes, from, to),
            Order::Restore { lab } => restore(machine, &lab),
            Order::Paths { lab, routes } => return verify::serve(&machine.labs, &lab, &routes, from, to),
            Order::Join { .. } | Order::Measure { .. } => Err("measure the links: no path is open".to_owned()),
            Order::Release => Err("take conditions back: none are held".to_owned()),
            Order::Begin { .. } | Order::JobEnded | Order::Stop => Err("play a scenario: none is prepared".to_owned()),
        };
        send(to, &outcome.unwrap_or_else(|message| Answer::Failed { message }))?;
    }
    Ok(())
}

fn keep(machine: &Machine, made: &mut Option<Passing>) -> Result<Option<Passing>, String> {
    if let Some(passing) = made {
        let running = Running::open(&machine.labs, passing.name());
        running.and_then(|running| running.keep()).map_err(|error| error.to_string())?;
    }
    Ok(made.take())
}

fn restore(machine: &Machine, lab: &str) -> Result<Answer, String> {
    let running = Running::open(&machine.labs, lab).map_err(|error| error.to_string())?;
    scenario::restore(&running, true).map(|_| Answer::done()).map_err(|error| error.to_string())
}

fn log(machine: &Machine, lab: &str, to: &mut impl Write) -> Result<Answer, String> {
    let played = Folder::of(&machine.labs.lab(lab)).log().map_err(|error| error.to_string())?;
    let lines = played.into_iter().flat_map(|played| std::iter::once(Line::Begin(played.begin)).chain(played.lines));
    for line in lines {
        send(to, &Answer::Played { line: Box::new(line) }).map_err(|error| error.to_string())?;
    }
    Ok(Answer::done())
}

fn take_down(machine: &Machine, lab: &str, number: u64, patience: u64, note: bool) -> Result<Answer, String> {
    let done = |was_there| Answer::Done { was_there, connections: 0, notes: Vec::new() };
    // Remains of which nothing can be read may be the lab's.
    match machine.labs.lab(lab).read_lab() {
        Ok(there) if there.part.number != number => return Ok(done(false)),
        // Before the list of machines is gone with this part.
        Ok(there) if note => {
            Away::below(machine.labs.path())
                .note(&there)
                .map_err(|error| format!("keep note of lab {lab}: {error}"))?;
        }
        _ => {}
    }
    let removed = down(&machine.labs, lab, Duration::from_secs(patience));
    removed.map(|removed| done(removed.is_some())).map_err(|error| error.to_string())
}

/// Checks of this machine that are not wholly good.
fn lacking() -> Vec<Check> {
    Facts::gather().checks().into_iter().filter(|check| check.verdict != Verdict::Good).collect()
}

/// The lab, as this machine has it.
fn unpack(lab: &Packed, part: &Part, images: &[PathBuf], secret: Secret) -> Result<Lab, String> {
    let mut lab = lab.lab().map_err(|error| format!("read the lab: {error}"))?;
    lab.part = Part { secret: Some(secret), ..*part };
    place(&mut lab, images);
    Ok(lab)
}

fn make(machine: &Machine, lab: &Lab, to: &mut (impl Write + Send)) -> Result<Passing, String> {
    // A coordinator that is gone is seen once the part is made.
    let mut tell = |progress| {
        if let Progress::Nodes { done, .. } = progress {
            let _ = send(to, &Answer::Ready { nodes: done });
        }
    };
    up_in_passing(machine, lab, &mut tell).map(|(_, passing)| passing).map_err(|error| error.to_string())
}

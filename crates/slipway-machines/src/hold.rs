//! Conditions and limits that hold on all machines of a lab.
//!
//! Each other machine holds them for as long as its connection to the coordinator. So a coordinator that is killed leaves
//! none behind.

use std::io::{self, BufRead, Write};

use slipway_engine::lab::Running;
use slipway_engine::rsh::Rsh;
use slipway_engine::state::StateRoot;
use slipway_lab::model::Machine;

use crate::ask::{all, each, others};
use crate::changes::Changes;
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order, receive, send};

const DOING: &str = "put the lab under conditions";

/// Puts a lab under these changes for as long as `action` takes, on all of its machines.
///
/// # Errors
/// When a machine cannot make them, or cannot take them back.
pub fn hold<T>(running: &Running, changes: &Changes, action: impl FnOnce() -> T) -> Result<T, MachineError> {
    if !running.lab.is_spread() || changes.is_empty() {
        return Ok(changes.hold_here(running, action)?);
    }
    let (rsh, lab) = (Rsh::from_env()?, &running.lab);
    let order = Order::Hold { lab: lab.name.clone(), changes: Box::new(changes.clone()) };
    let open = |machine: &Machine| {
        let mut channel = Channel::open(&rsh, machine)?;
        channel.have_done(DOING, &order, &mut |_| ())?;
        Ok(channel)
    };
    // Where one fails, the others' connections end, and they take theirs back.
    let channels = all(each(others(&lab.machines, lab.part.machine), open))?;
    let outcome = changes.hold_here(running, action)?;
    let release = |mut channel: Channel| channel.have_done(DOING, &Order::Release, &mut |_| ());
    all(each(channels, release))?;
    Ok(outcome)
}

/// Holds changes of this machine's part of a lab until the coordinator releases them, or is gone.
pub(crate) fn serve(
    labs: &StateRoot,
    lab: &str,
    changes: &Changes,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> io::Result<()> {
    let until_released = || {
        send(to, &Answer::done())?;
        receive::<Order>(from)
    };
    match Running::open(labs, lab).and_then(|running| changes.hold_here(&running, until_released)) {
        Ok(Ok(Some(Order::Release))) => send(to, &Answer::done()),
        Ok(Ok(Some(other))) => Err(io::Error::other(format!("{other:?} is no order to release"))),
        Ok(ended) => ended.map(drop),
        Err(error) => send(to, &Answer::Failed { message: error.to_string() }),
    }
}

//! Labs over several machines: the parts of a command that other machines carry out.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;

use serde::de::DeserializeOwned;
use slipway_engine::lab::{Given, Running};
use slipway_lab::id::{MachineId, NodeId};
use slipway_lab::model::{Lab, Machine, Part};
use slipway_lab::scenario::Order;
use slipway_machines::ask;
use slipway_machines::rsh::Rsh;

use crate::context::Context;
use crate::failure::Failure;

/// The machine of a lab that this one is.
fn here(lab: &Lab) -> Result<MachineId, Failure> {
    Ok(slipway_machines::up::here(lab)?)
}

/// A lab as its file has it, with this machine's part.
pub(crate) fn with_part(lab: Lab) -> Result<Lab, Failure> {
    if lab.machines.is_empty() {
        return Ok(lab);
    }
    Ok(Lab { part: Part { machine: here(&lab)?, ..Part::default() }, ..lab })
}

/// The other machines of a running lab that a command has to ask.
pub(crate) fn others<'a>(context: &Context, lab: &'a Lab) -> Vec<&'a Machine> {
    if context.global.part { Vec::new() } else { ask::others(&lab.machines, lab.part.machine) }
}

/// Gives an order to a running lab, on all of its machines at once.
pub(crate) fn give(context: &Context, running: &Running, order: Order) -> Result<Given, Failure> {
    let others = others(context, &running.lab);
    if others.is_empty() {
        return Ok(running.give(order)?);
    }
    let rsh = Rsh::from_env()?;
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| ask::give(&rsh, &others, &running.lab.name, &order));
        let here = running.give(order.clone());
        (here, there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut given, there) = (here?, there?);
    given.connections += there.connections;
    given.notes.extend(there.notes);
    Ok(given)
}

/// Executes this program with these words on the machine of a node, in the place of this process. Returns only where that
/// fails.
pub(crate) fn instead(running: &Running, node: NodeId, tty: bool, words: Vec<OsString>) -> Failure {
    let machine = &running.lab.machines[running.lab.hosts[running.lab.nodes[node].host].machine];
    let error = match Rsh::from_env() {
        Ok(rsh) => rsh.slipway(machine, tty, words).exec(),
        Err(error) => return error.into(),
    };
    Failure::io(format!("reach machine {}", machine.name))(error)
}

/// The answers of a command's parts on other machines, in the machines' order. `words` are the command's own.
pub(crate) fn answers<T: DeserializeOwned + Send>(
    context: &Context,
    lab: &Lab,
    words: &[&str],
) -> Result<Vec<T>, Failure> {
    let others = others(context, lab);
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let rsh = Rsh::from_env()?;
    let answer = |machine: &Machine| -> io::Result<T> {
        let output = rsh.slipway(machine, false, [&["--json", "--part"], words].concat()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(io::Error::other(if said.is_empty() { output.status.to_string() } else { said }));
        }
        serde_json::from_slice(&output.stdout).map_err(io::Error::from)
    };
    let ask = |machine: &Machine| {
        answer(machine).map_err(|error| Failure::io(format!("ask machine {}", machine.name))(error))
    };
    ask::each(others, ask).into_iter().collect()
}

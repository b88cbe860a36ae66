//! Labs over several machines: the parts of a command that other machines carry out.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde::de::DeserializeOwned;
use slipway_engine::lab::{Given, LabError, Running};
use slipway_lab::id::{MachineId, NodeId};
use slipway_lab::model::{Lab, Machine, Part};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::Order;
use slipway_machines::rsh::Rsh;
use slipway_machines::{MachineError, ask};

use crate::context::Context;
use crate::failure::Failure;

/// A lab as its file has it, with this machine's part.
pub(crate) fn with_part(lab: Lab) -> Result<Lab, Failure> {
    if lab.machines.is_empty() {
        return Ok(lab);
    }
    Ok(Lab { part: Part { machine: slipway_machines::up::here(&lab)?, ..Part::default() }, ..lab })
}

/// The other machines of a running lab that a command has to ask.
pub(crate) fn others<'a>(context: &Context, lab: &'a Lab) -> Vec<&'a Machine> {
    if context.global.part { Vec::new() } else { ask::others(&lab.machines, lab.part.machine) }
}

/// Gives an order to a running lab, on all of its machines at once.
pub(crate) fn give(context: &Context, running: &Running, order: &Order) -> Result<Given, Failure> {
    let there = |rsh: &Rsh, others: &[&Machine]| ask::give(rsh, others, &running.lab.name, order);
    everywhere(context, &running.lab, || running.give(order.clone()), there)
}

/// Puts rules in the place of a running lab's policy, on all of its machines at once. Gives how many fast connections ended.
pub(crate) fn set_policy(context: &Context, running: &Running, rules: &[Rule]) -> Result<u64, Failure> {
    let here = || running.set_policy(rules).map(|connections| Given { connections, ..Given::default() });
    let there = |rsh: &Rsh, others: &[&Machine]| ask::set_policy(rsh, others, &running.lab.name, rules);
    everywhere(context, &running.lab, here, there).map(|given| given.connections)
}

/// Does the same here and on a lab's other machines, at once.
fn everywhere(
    context: &Context,
    lab: &Lab,
    here: impl FnOnce() -> Result<Given, LabError>,
    there: impl FnOnce(&Rsh, &[&Machine]) -> Result<Given, MachineError> + Send,
) -> Result<Given, Failure> {
    let others = others(context, lab);
    if others.is_empty() {
        return Ok(here()?);
    }
    let rsh = Rsh::from_env()?;
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| there(&rsh, &others));
        (here(), there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (mut given, there) = (here?, there?);
    given.connections += there.connections;
    given.notes.extend(there.notes);
    Ok(given)
}

/// A command of Slipway about one node, for the machine where that node is.
#[derive(Debug)]
pub(crate) struct Elsewhere<'a> {
    rsh: Rsh,
    machine: &'a Machine,
    words: Vec<OsString>,
    tty: bool,
}

impl<'a> Elsewhere<'a> {
    /// The command `name` with these options about a node. `None`: the node is on this machine.
    pub(crate) fn find(
        running: &'a Running,
        node: NodeId,
        name: &str,
        options: Vec<OsString>,
    ) -> Result<Option<Self>, Failure> {
        let lab = &running.lab;
        if lab.has_here(node) {
            return Ok(None);
        }
        let mut words: Vec<OsString> = vec![name.into()];
        words.extend(options);
        words.extend([lab.name.clone().into(), lab.nodes[node].name.clone().into()]);
        let machine = &lab.machines[lab.machine_of(node)];
        Ok(Some(Self { rsh: Rsh::from_env()?, machine, words, tty: false }))
    }

    /// The same command, with a terminal on that machine.
    pub(crate) fn on_terminal(self, tty: bool) -> Self {
        Self { tty, ..self }
    }

    /// The name of the machine.
    pub(crate) fn machine(&self) -> &str {
        &self.machine.name
    }

    /// The command, with these words at its end.
    pub(crate) fn command(&self, last: impl IntoIterator<Item = OsString>) -> Command {
        self.rsh.slipway(self.machine, self.tty, self.words.iter().cloned().chain(last))
    }

    /// Executes it with these words at its end, in the place of this process. Returns only where that fails.
    pub(crate) fn instead(self, last: impl IntoIterator<Item = OsString>) -> Failure {
        Failure::io(format!("reach machine {}", self.machine.name))(self.command(last).exec())
    }
}

/// An option with its value, where it has one.
pub(crate) fn option(name: &str, value: Option<impl Into<OsString>>) -> Vec<OsString> {
    value.map_or_else(Vec::new, |value| vec![name.into(), value.into()])
}

/// The answers of a command's parts on other machines, in the machines' order. `words` are the command's own.
pub(crate) fn answers<T: DeserializeOwned + Send>(
    context: &Context,
    lab: &Lab,
    words: &[&str],
) -> Result<Vec<(MachineId, T)>, Failure> {
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
    let machines = lab.machines.ids().filter(|&machine| machine != lab.part.machine);
    machines.zip(ask::each(others, ask)).map(|(machine, answer)| Ok((machine, answer?))).collect()
}

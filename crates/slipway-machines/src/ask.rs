//! The same of every machine at once.

use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

use slipway_engine::lab::Given;
use slipway_engine::rsh::Rsh;
use slipway_lab::id::{List, MachineId};
use slipway_lab::model::{Lab, Machine};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::Order as LabOrder;

use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// Acts on each, each in a thread of its own, and gives what came of it in their order.
pub fn each<T: Send, C: Send>(over: Vec<C>, act: impl Fn(C) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = over.into_iter().map(|one| scope.spawn(|| act(one))).collect();
        let join = |thread: ScopedJoinHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// All that succeeded, if all did. Else everything is dropped, and so taken down.
pub(crate) fn all<T>(outcomes: Vec<Result<T, MachineError>>) -> Result<Vec<T>, MachineError> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(one) => good.push(one),
            Err(error) => bad.push(error),
        }
    }
    MachineError::of(bad).map(|()| good)
}

/// The machines of a lab but this one.
#[must_use]
pub fn others(machines: &List<MachineId, Machine>, here: MachineId) -> Vec<&Machine> {
    machines.enumerate().filter(|&(number, _)| number != here).map(|(_, machine)| machine).collect()
}

/// Has other machines carry out their part of an order to a lab.
///
/// # Errors
/// All machines that could not. The others have.
pub fn give(rsh: &Rsh, machines: &[&Machine], lab: &str, order: &LabOrder) -> Result<Given, MachineError> {
    let order = Order::Give { lab: lab.to_owned(), order: Box::new(order.clone()) };
    have_done(rsh, machines, "change the lab", &order)
}

/// Puts these rules in the place of a lab's policy, on other machines.
///
/// # Errors
/// All machines that could not. The others have.
pub fn set_policy(rsh: &Rsh, machines: &[&Machine], lab: &str, rules: &[Rule]) -> Result<Given, MachineError> {
    have_done(rsh, machines, "set the policy", &Order::Policy { lab: lab.to_owned(), rules: rules.to_vec() })
}

/// Resets links and limits of a lab to its file on other machines, and starts their nodes that are stopped or dead.
///
/// # Errors
/// All machines that could not. The others have.
pub fn restore(rsh: &Rsh, machines: &[&Machine], lab: &str) -> Result<(), MachineError> {
    have_done(rsh, machines, "restore the lab", &Order::Restore { lab: lab.to_owned() }).map(drop)
}

/// A channel to each machine of a lab.
///
/// # Errors
/// All machines that could not be reached, or are of another version.
pub(crate) fn open(rsh: &Rsh, lab: &Lab) -> Result<Vec<Channel>, MachineError> {
    all(each(lab.machines.iter().collect(), |machine| Channel::open(rsh, machine)))
}

/// Has machines carry out an order, and gives their answers in their order.
pub(crate) fn order(
    rsh: &Rsh,
    machines: &[&Machine],
    doing: &'static str,
    order: &Order,
) -> Vec<Result<Answer, MachineError>> {
    each(machines.to_vec(), |machine| Channel::open(rsh, machine)?.have_done(doing, order, &mut |_| ()))
}

fn have_done(rsh: &Rsh, machines: &[&Machine], doing: &'static str, order: &Order) -> Result<Given, MachineError> {
    let (mut given, mut failures) = (Given::default(), Vec::new());
    for outcome in self::order(rsh, machines, doing, order) {
        match outcome {
            Ok(Answer::Done { connections, notes, .. }) => {
                given.connections += connections;
                given.notes.extend(notes);
            }
            Ok(_) => {}
            Err(error) => failures.push(error),
        }
    }
    MachineError::of(failures).map(|()| given)
}

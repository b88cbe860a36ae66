//! Taking the parts of a lab down.

use std::time::Duration;

use slipway_engine::rsh::Rsh;
use slipway_lab::model::Machine;

use crate::ask::each;
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// Takes a lab's parts down on these machines, and gives for each whether there was one, in their order.
#[must_use]
pub fn down(rsh: &Rsh, machines: &[&Machine], lab: &str, patience: Duration) -> Vec<Result<bool, MachineError>> {
    each(machines.to_vec(), |machine| {
        let mut channel = Channel::open(rsh, machine)?;
        channel.greet()?;
        let order = Order::Down { lab: lab.to_owned(), patience: patience.as_secs() };
        let answer = channel.have_done("take the lab down", &order, &mut |_| ())?;
        Ok(matches!(answer, Answer::Done { was_there: true, .. }))
    })
}

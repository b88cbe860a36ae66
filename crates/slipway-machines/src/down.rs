//! Taking the parts of a lab down.

use std::time::Duration;

use slipway_engine::rsh::Rsh;
use slipway_lab::model::Machine;

use crate::ask::each;
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// Takes the parts down that the lab of this name and number has on these machines. Gives for each whether there was one, in
/// their order.
pub(crate) fn down(
    rsh: &Rsh,
    machines: &[&Machine],
    lab: &str,
    number: u64,
    patience: Duration,
) -> Vec<Result<bool, MachineError>> {
    each(machines.to_vec(), |machine| {
        let mut channel = Channel::open(rsh, machine)?;
        channel.greet()?;
        let order = Order::Down { lab: lab.to_owned(), number, patience: patience.as_secs() };
        let answer = channel.have_done("take the lab down", &order, &mut |_| ())?;
        Ok(matches!(answer, Answer::Done { was_there: true, .. }))
    })
}

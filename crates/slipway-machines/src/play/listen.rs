//! Answers of the machines of a scenario, as they come.

use std::io::{PipeWriter, Write as _};
use std::sync::mpsc::Sender;

use slipway_lab::id::MachineId;

use super::clock::now;
use crate::channel::Words;
use crate::message::{Answer, receive};

/// An answer of a machine, and when it was here. `None`: there will be no more.
pub(super) type Heard = (MachineId, u64, Option<Answer>);

/// Passes a machine's answers on, each with the time when it was here.
pub(super) fn listen(machine: MachineId, mut words: Words, tell: &Sender<Heard>, mut wake: &PipeWriter) {
    loop {
        let answer = receive::<Answer>(&mut words).ok().flatten();
        let over = answer.is_none();
        // Where nobody listens any more, the playing is over.
        let passed = tell.send((machine, now(), answer)).is_ok() && wake.write_all(&[0]).is_ok();
        if over || !passed {
            return;
        }
    }
}

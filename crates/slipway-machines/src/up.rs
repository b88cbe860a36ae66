//! Bringing a lab up on its machines, all at once.

use std::sync::mpsc;

use rustix::rand::{GetRandomFlags, getrandom};
use slipway_engine::lab::Progress;
use slipway_engine::rsh::Rsh;
use slipway_lab::id::MachineId;
use slipway_lab::model::{Lab, Part, Secret};

use crate::ask::{all, each};
use crate::channel::Channel;
use crate::error::MachineError;
use crate::images::bring;
use crate::message::Order;
use crate::shared;

const DOING: &str = "bring the lab up";

/// Brings a lab up. All machines make their parts at the same time. A part stays once all are made; where one fails, none
/// does.
///
/// # Errors
/// Everything that machines refused. Then nothing of the lab is left on any that can be reached.
pub fn up(rsh: &Rsh, lab: &Lab, progress: &mut dyn FnMut(Progress)) -> Result<(), MachineError> {
    let (number, secret) = (u64::from_ne_bytes(draw()?), Secret(draw()?));
    let opened: Vec<_> = lab.machines.iter().map(|machine| Channel::open(rsh, machine)).collect();
    let channels = all(opened)?;
    // Before anything is made anywhere.
    let mut channels = all(each(channels, |mut channel| channel.greet().map(|()| channel)))?;
    shared::check(lab, &mut channels)?;
    let labs = bring(rsh, lab, &mut channels)?;
    let (tell, told) = mpsc::channel();
    let parts: Vec<_> = (0..).map(MachineId).zip(channels).zip(labs).collect();
    let total = lab.nodes.len();
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(move || {
            each(parts, |((machine, mut channel), lab)| {
                let lab = Lab { part: Part { machine, number, secret: None }, ..lab };
                let order = Order::Make { lab: Box::new(lab), secret };
                let tell = tell.clone();
                channel.have_done(DOING, &order, &mut |nodes| {
                    // Nobody listens any more once another machine has failed.
                    let _ = tell.send((machine, nodes));
                })?;
                Ok(channel)
            })
        });
        let mut ready = vec![0; lab.machines.len()];
        // It ends with the last sender.
        for (MachineId(machine), nodes) in told {
            ready[machine] = nodes;
            progress(Progress::Nodes { done: ready.iter().sum(), total });
        }
        making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let channels = all(made)?;
    let keep = |mut channel: Channel| channel.have_done(DOING, &Order::Keep, &mut |_| ()).map(|_| channel);
    all(each(channels, keep)).map(|channels| channels.into_iter().for_each(Channel::leave))
}

fn draw<const N: usize>() -> Result<[u8; N], MachineError> {
    let mut bytes = [0; N];
    // 256 bytes and less come whole (`getrandom(2)`).
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map(|_| bytes)
        .map_err(|source| MachineError::Here { doing: "draw a random number", source: source.into() })
}

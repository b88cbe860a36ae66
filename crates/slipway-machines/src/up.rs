//! Bringing a lab up on its machines, all at once.

use std::sync::mpsc;

use rustix::rand::{GetRandomFlags, getrandom};
use slipway_document::text::listed;
use slipway_engine::lab::Progress;
use slipway_engine::rsh::{Rsh, is_here};
use slipway_lab::id::MachineId;
use slipway_lab::model::{Lab, Part, Secret};

use crate::ask::{all, each, open};
use crate::channel::Channel;
use crate::error::MachineError;
use crate::images::bring;
use crate::message::{Answer, Order};
use crate::packed::Packed;
use crate::shared;

const DOING: &str = "bring the lab up";
const DOWN: &str = "take the lab down";
/// Time to wait for another process that holds the lab, seconds.
const PATIENCE: u64 = 30;

/// Times that numbers of tunnels are drawn. 16 million are there.
const MOST_DRAWN: usize = 16;

/// A lab that is up on all of its machines. Dropped, it goes down on all, and so it does where this process is killed.
#[derive(Debug)]
pub struct Made {
    lab: String,
    number: u64,
    /// In the machines' order.
    channels: Vec<Channel>,
    origin: MachineId,
}

impl Made {
    /// Leaves the lab standing. This machine's part comes last: it tells the others that all is well, and without it they end.
    ///
    /// # Errors
    /// Of machines that do not answer. The lab goes down then, on all that can be reached, and elsewhere by itself.
    pub fn keep(self) -> Result<(), MachineError> {
        let Self { lab, number, mut channels, origin } = self;
        let own = (origin.index() < channels.len()).then(|| channels.remove(origin.index()));
        let keep = |mut channel: Channel| {
            let kept = channel.have_done(DOING, &Order::Keep, &mut |_| ());
            (channel, kept.map(drop))
        };
        let (mut kept, mut failed) = (Vec::new(), Vec::new());
        for (channel, outcome) in each(channels, keep).into_iter().chain(own.map(|own| (own, Ok(())))) {
            failed.extend(outcome.err());
            kept.push(channel);
        }
        if failed.is_empty()
            && let Some(own) = kept.pop()
        {
            let (own, outcome) = keep(own);
            failed.extend(outcome.err());
            kept.push(own);
        }
        if failed.is_empty() {
            kept.into_iter().for_each(Channel::leave);
            return Ok(());
        }
        let down = Order::Down { lab, number, patience: PATIENCE, note: false };
        // Best effort: the first failure is the one to tell.
        drop(each(kept, |mut channel| channel.have_done(DOWN, &down, &mut |_| ())));
        MachineError::of(failed)
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// Everything that machines could not take down.
    pub fn down(self) -> Result<(), MachineError> {
        let Self { lab, number, channels, .. } = self;
        let order = Order::Down { lab, number, patience: PATIENCE, note: false };
        all(each(channels, |mut channel| channel.have_done(DOWN, &order, &mut |_| ()))).map(drop)
    }
}

/// Brings a lab up and leaves it standing. All machines make their parts at the same time. A part stays once all are made;
/// where one fails, none does.
///
/// # Errors
/// Everything that machines refused. Then nothing of the lab is left on any that can be reached.
pub fn up(rsh: &Rsh, lab: &Lab, progress: &mut dyn FnMut(Progress)) -> Result<(), MachineError> {
    make(rsh, lab, progress)?.keep()
}

/// The machine of a lab that this one is.
///
/// # Errors
/// When it is none of them.
pub fn here(lab: &Lab) -> Result<MachineId, MachineError> {
    lab.machines.position(is_here).ok_or_else(|| {
        let all: Vec<String> =
            lab.machines.iter().map(|machine| format!("{} ({})", machine.name, machine.address)).collect();
        MachineError::NotHere { lab: lab.name.clone(), all: listed(&all) }
    })
}

/// As [`up`], for as long as the caller keeps what this gives.
///
/// # Errors
/// As [`up`].
pub fn make(rsh: &Rsh, lab: &Lab, progress: &mut dyn FnMut(Progress)) -> Result<Made, MachineError> {
    let secret = Secret(draw()?);
    // Before anything is made anywhere.
    let mut channels = open(rsh, lab)?;
    let number = agree(lab, &mut channels)?;
    shared::check(lab, &mut channels)?;
    let images = bring(rsh, lab, &mut channels)?;
    let packed = Packed::new(lab).map_err(|source| MachineError::Here { doing: "pack the lab", source })?;
    let (tell, told) = mpsc::channel();
    let parts: Vec<_> = (0..).map(MachineId).zip(channels).zip(images).collect();
    let total = lab.nodes.len();
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(move || {
            each(parts, |((machine, mut channel), images)| {
                let part = Part { machine, origin: lab.part.machine, number, secret: None };
                let order = Order::Make { lab: packed.clone(), part, images, secret };
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
    Ok(Made { lab: lab.name.clone(), number, channels: all(made)?, origin: lab.part.machine })
}

/// A number for the lab: its tunnels have identifiers that no other tunnel of the machines has.
fn agree(lab: &Lab, channels: &mut [Channel]) -> Result<u64, MachineError> {
    for _ in 0..MOST_DRAWN {
        let number = u64::from_ne_bytes(draw()?);
        let part = Part { number, ..Part::default() };
        if !lab.is_spread() {
            return Ok(number);
        }
        let count = lab.tunnels();
        let first = part.first_vni(count);
        let pairs: Vec<_> = lab.machines.iter().zip(channels.iter_mut()).collect();
        let vacant = all(each(pairs, |(machine, channel)| {
            let order = Order::Vacant { first, count, address: machine.address };
            let answer = channel.have_done("find free tunnels", &order, &mut |_| ())?;
            Ok(matches!(answer, Answer::Done { was_there: true, .. }))
        }))?;
        if vacant.into_iter().all(|vacant| vacant) {
            return Ok(number);
        }
    }
    Err(MachineError::NoTunnels { lab: lab.name.clone() })
}

fn draw<const N: usize>() -> Result<[u8; N], MachineError> {
    let mut bytes = [0; N];
    // 256 bytes and less come whole (`getrandom(2)`).
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map(|_| bytes)
        .map_err(|source| MachineError::Here { doing: "draw a random number", source: source.into() })
}

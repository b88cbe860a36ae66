//! The peers of a link that have conditions of their own.

use std::collections::HashMap;
use std::net::IpAddr;

use slipway_lab::change::Keys as _;

use crate::line::Line;
use crate::packet::{Packet, PeerIndex, Queue};
use crate::process::{Chance, Delays, Losses, Reorder};
use crate::random::Kind;
use crate::spec::{Peer, Spec};
use crate::transmitter::Transmitter;

/// Random processes of one peer; where one is missing, the port's applies.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) loss: Option<Box<Losses>>,
    pub(crate) corrupt: Option<Box<Chance>>,
    pub(crate) duplicate: Option<Box<Chance>>,
    pub(crate) reorder: Option<Box<Reorder>>,
    pub(crate) delay: Option<Box<Delays>>,
    transmitter: Option<Box<Transmitter>>,
    /// Its packets that wait for the port's rate, where it has no rate of its own and they are to be few.
    line: Option<Box<Line>>,
    pub(crate) queue: Queue,
    pub(crate) is_limited: bool,
}

/// By address. A peer keeps its index, and with it what waits, whatever is set later; one that is no longer named has
/// nothing of its own.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    indices: HashMap<IpAddr, u32>,
    pairs: Vec<Pair>,
}

impl Peers {
    pub(crate) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<PeerIndex> {
        self.indices.get(&address.to_canonical()).map(|&index| PeerIndex(index))
    }

    pub(crate) fn get(&mut self, peer: Option<PeerIndex>) -> Option<&mut Pair> {
        self.pairs.get_mut(peer?.0 as usize)
    }

    /// As [`Transmitter::clear`].
    pub(crate) fn clear(&mut self) {
        for pair in &mut self.pairs {
            if let Some(transmitter) = &mut pair.transmitter {
                transmitter.clear();
            }
            if let Some(line) = &mut pair.line {
                line.clear();
            }
        }
    }

    pub(crate) fn set(&mut self, spec: &Spec) {
        let before = std::mem::take(&mut self.indices);
        let mut named = vec![false; self.pairs.len()];
        for peer in &spec.peers {
            let index = peer.addresses.iter().find_map(|address| before.get(&address.to_canonical()).copied());
            let index = index.unwrap_or_else(|| {
                self.pairs.push(Pair::default());
                named.push(false);
                // As many as there are addresses of nodes.
                u32::try_from(self.pairs.len() - 1).unwrap_or(u32::MAX)
            });
            for address in &peer.addresses {
                self.indices.insert(address.to_canonical(), index);
            }
            named[index as usize] = true;
            self.pairs[index as usize].set(peer, spec);
        }
        for (pair, named) in self.pairs.iter_mut().zip(named) {
            if !named {
                *pair = Pair { queue: std::mem::take(&mut pair.queue), ..Pair::default() };
            }
        }
    }
}

impl Pair {
    /// Whether a packet that comes at `now` may wait for the port's rate.
    pub(crate) fn has_room_before(&mut self, now: u64, packet: Packet) -> bool {
        self.line.as_mut().is_none_or(|line| line.has_room(now, packet))
    }

    /// As [`Transmitter::pass`], for a packet that the port will have `sent`; `None` where it finds no room to wait.
    pub(crate) fn pass(&mut self, from: u64, late: u64, sent: u64, packet: Packet) -> Option<u64> {
        if let Some(line) = &mut self.line {
            line.enter(sent, packet);
        }
        let Some(transmitter) = &mut self.transmitter else { return Some(from) };
        transmitter.has_room(from, packet).then(|| transmitter.pass(from, late, packet))
    }

    /// As [`Transmitter::again`]. The port will have sent it at the first of the times; it was done at the other.
    pub(crate) fn again(&mut self, now: u64, from: u64, (sent, done): (u64, u64), packet: Packet) -> u64 {
        if let Some(line) = self.line.as_mut().filter(|_| sent > now) {
            line.enter(sent, packet);
        }
        self.transmitter.as_mut().map_or(from, |transmitter| transmitter.again(now, from, done, packet))
    }

    fn set(&mut self, peer: &Peer, spec: &Spec) {
        let (own, all, seed) = (&peer.conditions, &spec.all, peer.seed);
        let held = own.over(all);
        keep(
            &mut self.loss,
            own.loss.is_some() || own.loss_correlation.is_some(),
            || Losses::new(seed),
            |loss| loss.set(&held),
        );
        keep(
            &mut self.corrupt,
            own.corrupt.is_some(),
            || Chance::new(seed, Kind::Corrupt),
            |corrupt| corrupt.set(held.corrupt),
        );
        keep(
            &mut self.duplicate,
            own.duplicate.is_some(),
            || Chance::new(seed, Kind::Duplicate),
            |duplicate| duplicate.set(held.duplicate),
        );
        keep(
            &mut self.reorder,
            own.reorder.is_some() || own.reorder_correlation.is_some() || own.gap.is_some(),
            || Reorder::new(seed),
            |reorder| reorder.set(&held),
        );
        let delays = own.delay.is_some()
            || own.jitter.is_some()
            || own.distribution.is_some()
            || own.delay_correlation.is_some();
        keep(&mut self.delay, delays, || Delays::new(seed), |delay| delay.set(&held));
        keep(&mut self.transmitter, own.rate.is_some(), Transmitter::default, |transmitter| {
            transmitter.set(own.rate, held.queue);
        });
        keep(&mut self.line, own.rate.is_none() && own.queue.is_some(), Line::default, |line| line.set(own.queue));
        self.is_limited = own.limit.is_some();
        self.queue.set(own.limit.unwrap_or(u32::MAX), spec.mtu);
    }
}

/// Makes, changes or removes a process.
fn keep<T>(process: &mut Option<Box<T>>, wanted: bool, new: impl FnOnce() -> T, set: impl FnOnce(&mut T)) {
    if wanted {
        set(process.get_or_insert_with(|| Box::new(new())));
    } else {
        *process = None;
    }
}

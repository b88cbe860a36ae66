//! A port: the device of one direction of one interface, and the link that its frames pass.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use slipway_sys::tap::{Tap, VnetHeader};

use crate::clock::now;
use crate::frame;
use crate::link::{Delivery, Link, Packet};
use crate::pool::Pool;
use crate::segment::{self, Part};
use crate::spec::Spec;
use crate::stats::{Lateness, PortStats};
use crate::wheel::Wheel;

/// A frame on its way, with the header that the device wants before it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) port: u32,
    packet: Packet,
    delivery: Delivery,
    frame: Vec<u8>,
}

/// All frames on their way, of all ports.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) wheel: Wheel<Waiting>,
    pub(crate) pool: Pool,
}

impl Store {
    /// Forgets the frames of a port that is gone.
    pub(crate) fn forget(&mut self, port: u32) {
        for waiting in self.take(port) {
            self.pool.give(waiting.frame);
        }
    }

    fn take(&mut self, port: u32) -> Vec<Waiting> {
        self.wheel.take(|waiting| waiting.port == port)
    }
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Frame,
    Nothing,
    /// The device is gone.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Port {
    number: u32,
    tap: Tap,
    link: Link,
    /// Due, but the device had no room.
    outbox: VecDeque<Waiting>,
    stats: PortStats,
    late: Lateness,
    /// Nothing was left in the device when it was last read.
    drained: bool,
    /// Empty; kept for its memory.
    parts: Vec<Part>,
}

impl Port {
    /// # Errors
    /// As [`set_segments`].
    pub(crate) fn new(number: u32, tap: Tap, spec: &Spec) -> io::Result<Self> {
        set_segments(&tap, spec)?;
        let stats = PortStats { port: number, alive: true, ..PortStats::default() };
        Ok(Self {
            number,
            tap,
            link: Link::new(spec),
            outbox: VecDeque::new(),
            stats,
            late: Lateness::default(),
            drained: true,
            parts: Vec::new(),
        })
    }

    /// # Errors
    /// As [`set_segments`]; then nothing changed.
    pub(crate) fn set(&mut self, spec: &Spec, store: &mut Store) -> io::Result<()> {
        set_segments(&self.tap, spec)?;
        let mut waiting = if self.link.changes_rates(spec) { store.take(self.number) } else { Vec::new() };
        self.link.set(now(), spec, waiting.iter_mut().map(|waiting| (waiting.packet, &mut waiting.delivery)));
        for waiting in waiting {
            store.wheel.insert(waiting.delivery.due, waiting);
        }
        Ok(())
    }

    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }

    /// True while frames wait for the device.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(crate) fn stats(&self) -> PortStats {
        let (counts, (waiting, waiting_bytes)) = (self.link.counts(), self.link.waiting());
        PortStats {
            lost: counts.lost,
            corrupted: counts.corrupted,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            over_limit: counts.over_limit + self.stats.over_limit,
            waiting,
            waiting_bytes,
            late: self.late.late(),
            ..self.stats
        }
    }

    /// Before frames are taken, which ought to have been looked for at `since`.
    pub(crate) fn look(&mut self, since: u64) {
        // Frames that were left came before that.
        if self.drained {
            self.link.waited_since(since);
        }
        self.drained = false;
    }

    /// Takes one frame from the device and sends it on its way, which may end here.
    pub(crate) fn read(&mut self, buffer: &mut [u8], store: &mut Store) -> Read {
        let length = match self.tap.read(buffer) {
            Ok(0) => return self.end(),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.drained = true;
                return Read::Nothing;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Read::Nothing,
            Err(_) => return self.end(),
        };
        if let Some(read) = buffer.get(..length) {
            self.pass(now(), read, store);
        }
        Read::Frame
    }

    fn end(&mut self) -> Read {
        self.stats.alive = false;
        Read::Gone
    }

    fn pass(&mut self, now: u64, read: &[u8], store: &mut Store) {
        let Some((header, frame)) = VnetHeader::parse(read) else { return };
        let packets = header.packets(frame);
        self.stats.received += packets as u64;
        let mut parts = std::mem::take(&mut self.parts);
        segment::pass(&mut self.link, now, &header, frame, &mut parts);
        for part in parts.drain(..) {
            let Part { packets: Range { start, end }, packet, delivery } = part;
            let range = start as usize..end as usize;
            if range.len() == packets {
                self.go(now, packet, delivery, read, store);
            } else if let Some(cut) = header.part(frame, range) {
                self.go(now, packet, delivery, &cut, store);
            } else {
                self.stats.malformed += u64::from(packet.packets);
                self.link.leave(packet);
            }
        }
        self.parts = parts;
    }

    /// Sends a frame that is due, keeps another.
    fn go(&mut self, now: u64, packet: Packet, delivery: Delivery, read: &[u8], store: &mut Store) {
        let at_once = delivery.due <= now && delivery.damage.is_none() && !self.is_blocked();
        if at_once && self.write(packet, read) == Written::Gone {
            return self.link.leave(packet);
        }
        let Some(mut frame) = store.pool.copy(read) else { return self.drop(packet) };
        if let Some(place) = delivery.damage {
            frame::damage(&mut frame, place);
        }
        let waiting = Waiting { port: self.number, packet, delivery, frame };
        if delivery.due > now {
            store.wheel.insert(delivery.due, waiting);
        } else {
            self.send(waiting, &mut store.pool);
        }
    }

    fn drop(&mut self, packet: Packet) {
        self.stats.over_limit += u64::from(packet.packets);
        self.link.leave(packet);
    }

    /// Sends a frame that has waited until `due`.
    pub(crate) fn deliver(&mut self, due: u64, waiting: Waiting, pool: &mut Pool) {
        self.late.add(now().saturating_sub(due));
        self.send(waiting, pool);
    }

    fn send(&mut self, waiting: Waiting, pool: &mut Pool) {
        if self.is_blocked() || self.write(waiting.packet, &waiting.frame) == Written::Blocked {
            self.outbox.push_back(waiting);
            return;
        }
        self.link.leave(waiting.packet);
        pool.give(waiting.frame);
    }

    /// Sends what waits for the device, as far as it has room now.
    pub(crate) fn flush(&mut self, pool: &mut Pool) {
        while let Some(waiting) = self.outbox.pop_front() {
            if self.write(waiting.packet, &waiting.frame) == Written::Blocked {
                self.outbox.push_front(waiting);
                return;
            }
            self.link.leave(waiting.packet);
            pool.give(waiting.frame);
        }
    }

    fn write(&mut self, packet: Packet, frame: &[u8]) -> Written {
        match self.tap.write(frame) {
            Ok(()) => self.stats.sent += u64::from(packet.packets),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Written::Blocked,
            Err(_) => self.stats.refused += u64::from(packet.packets),
        }
        Written::Gone
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Written {
    /// Out, or refused: no longer ours.
    Gone,
    Blocked,
}

/// Has large segments come whole or cut, as the conditions allow.
///
/// # Errors
/// As `ioctl(2)`. A descriptor that is no TAP device's has no segments to cut.
fn set_segments(tap: &Tap, spec: &Spec) -> io::Result<()> {
    match tap.set_offload(spec.takes_segments()) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(()),
        other => other,
    }
}

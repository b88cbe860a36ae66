//! The rate of a link.

use slipway_document::units::Rate;

use crate::line::Line;
use crate::packet::Packet;

const SECOND: u128 = 1_000_000_000;

/// A transmitter that sends one packet after the other.
#[derive(Debug, Default)]
pub(crate) struct Transmitter {
    /// Bits per second; 0 is no limit.
    rate: u64,
    /// The rate before the last [`Self::set`].
    rate_before: u64,
    /// When the last packet will have been sent, nanoseconds.
    free: u64,
    /// The rest that was rounded off `free`, in nanoseconds times `rate`: small packets at high rates last only a few
    /// nanoseconds.
    rest: u64,
    /// Packets that wait for it.
    line: Line,
}

impl Transmitter {
    /// Changes the rate, and how many packets may wait for it.
    pub(crate) fn set(&mut self, rate: Option<Rate>, queue: Option<u32>) {
        self.rate_before = self.rate;
        self.rate = rate.map_or(0, |rate| rate.0);
        self.line.set(queue);
    }

    /// Forgets the packets before, all of which are to pass [`Self::again`].
    pub(crate) fn clear(&mut self) {
        (self.free, self.rest) = (0, 0);
        self.line.clear();
    }

    /// Whether a packet that comes at `from` finds room to wait.
    pub(crate) fn has_room(&mut self, from: u64, packet: Packet) -> bool {
        self.rate == 0 || self.line.has_room(from, packet)
    }

    /// When a packet that comes at `from` will have been sent. It may have arrived up to `late` earlier, before anybody
    /// looked. The link makes up for the time in which it could have sent, so a late machine makes no link slower.
    pub(crate) fn pass(&mut self, from: u64, late: u64, packet: Packet) -> u64 {
        if self.rate == 0 {
            return from;
        }
        let earliest = from.saturating_sub(late);
        if earliest > self.free {
            (self.free, self.rest) = (earliest, 0);
        }
        let work = u128::from(packet.bytes) * 8 * SECOND + u128::from(self.rest);
        let (lasts, rest) = (work / u128::from(self.rate), work % u128::from(self.rate));
        self.free = self.free.saturating_add(u64::try_from(lasts).unwrap_or(u64::MAX));
        // A remainder is less than the rate, which is a u64.
        self.rest = u64::try_from(rest).unwrap_or(0);
        let done = self.free.max(from);
        self.line.enter(done, packet);
        done
    }

    /// When a packet will have been sent that by the rate before would have been at `done`. The part that is already
    /// sent stays sent. Otherwise a rate that changes more often than a packet lasts would never let one through.
    pub(crate) fn again(&mut self, now: u64, from: u64, done: u64, packet: Packet) -> u64 {
        if done <= now {
            return done;
        }
        let lasted = (u128::from(packet.bytes) * 8 * SECOND).checked_div(self.rate_before.into()).unwrap_or(0);
        if u128::from(done - now) >= lasted {
            return self.pass(from.max(now), 0, packet);
        }
        let left = (u128::from(done - now) * u128::from(self.rate_before)).checked_div(self.rate.into()).unwrap_or(0);
        (self.free, self.rest) = (now.saturating_add(u64::try_from(left).unwrap_or(u64::MAX)), 0);
        self.line.enter(self.free, packet);
        self.free
    }
}

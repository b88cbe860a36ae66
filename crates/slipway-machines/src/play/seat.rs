//! A machine as the coordinator of a scenario sees it.

use super::clock::{Filter, Offset, Trip, now};
use crate::channel::Channel;
use crate::message::Order;

/// The state of a machine in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// It prepares.
    Preparing,
    /// It waits for the beginning, or plays.
    Playing,
    /// It has told all.
    Over,
    /// The connection is gone. The part plays on.
    Lost,
}

/// A machine, and the channel to its part.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) channel: Channel,
    pub(super) stand: Stand,
    /// Lines of its log that have come.
    pub(super) lines: usize,
    clock: Filter,
    /// The offset by which it was told the beginning.
    zero: i64,
    /// When the question left that is not answered yet.
    asked: Option<u64>,
    /// Questions to put after that.
    more: u32,
    /// Answers so far.
    pub(super) trips: u32,
    /// The largest offset and uncertainty together.
    pub(super) worst: u64,
}

impl Seat {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            stand: Stand::Preparing,
            lines: 0,
            clock: Filter::default(),
            zero: 0,
            asked: None,
            more: 0,
            trips: 0,
            worst: 0,
        }
    }

    /// Whether words from it are still to come.
    pub(super) fn is_heard(&self) -> bool {
        matches!(self.stand, Stand::Preparing | Stand::Playing)
    }

    /// Asks its clock so many times, one after the other.
    pub(super) fn compare(&mut self, times: u32) {
        self.more = times;
        if self.asked.is_none() {
            self.ask();
        }
    }

    fn ask(&mut self) {
        let Some(more) = self.more.checked_sub(1) else { return };
        self.more = more;
        self.asked = Some(now());
        // A channel that is gone is heard of by its end.
        let _ = self.channel.give(&Order::Clock);
    }

    /// Takes note of its answer.
    pub(super) fn answered(&mut self, there: u64, received: u64) {
        if let Some(sent) = self.asked.take() {
            self.clock.add(Trip { sent, there, received });
            self.trips += 1;
            self.ask();
        }
    }

    /// For how long it has owed an answer, nanoseconds.
    pub(super) fn silent_for(&self, now: u64) -> u64 {
        self.asked.map_or(0, |asked| now.saturating_sub(asked))
    }

    /// A time of this machine's clock on its own, which its offset is counted from afterwards.
    pub(super) fn begin_at(&mut self, here: u64) -> u64 {
        self.zero = self.clock.at(now()).map_or(0, |held| held.offset);
        here.wrapping_add_signed(self.zero)
    }

    /// The offset by which it was told the beginning, nanoseconds.
    pub(super) fn zero(&self) -> i64 {
        self.zero
    }

    /// It plays, and was told the beginning by this offset.
    pub(super) fn plays_since(&mut self, zero: i64) {
        (self.zero, self.stand) = (zero, Stand::Playing);
    }

    /// How far its clock has moved since it was told the beginning.
    pub(super) fn moved(&mut self, now: u64) -> Option<Offset> {
        let held = self.clock.at(now)?;
        let moved = Offset { offset: held.offset.wrapping_sub(self.zero), ..held };
        self.worst = self.worst.max(moved.offset.unsigned_abs().saturating_add(moved.uncertainty));
        Some(moved)
    }
}

//! Expected against measured, with what chance and the machine allow.

use slipway_measure::check::{Check, Verdict};

use super::chance::Range;
use super::expect::{Expected, LATE, Reorder, Seen};
use super::flood::{Flood, Flooded};
use super::train::Train;

/// The machine's own addition to a delay, its path and a scheduler's wake-up: seconds, and seconds per second of delay.
const LATER: (f64, f64) = (LATE as f64 / 1e9, 0.01);
/// How much too early a delay may be: two clocks' reading, seconds, and per second of delay.
const EARLIER: (f64, f64) = (2e-6, 0.001);
/// Share of itself by which a jitter may differ, beyond [`LATER`].
const JITTER: f64 = 0.05;
/// Share of itself by which a rate may differ.
const RATE: f64 = 0.03;
/// Share of a delay by which clocks may be unknown, beyond [`LATER`], for a delay that is as asked to say so.
const CLOCKS: f64 = 0.1;
/// Delays that say something.
const FEWEST: f64 = 10.0;

fn check(what: &str, unit: &str, measured: f64, range: Range) -> Check {
    let verdict = if range.contains(measured) { Verdict::Met } else { Verdict::Off };
    let (asked, within) = (range.expected, (range.low, range.high));
    Check { what: what.into(), asked, measured, within, unit: unit.into(), verdict, note: None }
}

fn unknown(check: Check, note: impl Into<String>) -> Check {
    Check { verdict: Verdict::Unknown, note: Some(note.into()), ..check }
}

/// Judges the readings of a train. `needed` packets would tell everything. Two clocks that tell a delay may add `slack`
/// seconds, or take them off.
pub(super) fn train(expected: &Expected, train: &Train, needed: u32, slack: f64) -> Vec<Check> {
    let seen = Seen::of(train, expected.early);
    let mut checks = Vec::new();
    if seen.got > 0.0 || expected.loss.is_none_or(|loss| loss.low < 1.0) {
        delay(expected, &seen, slack, &mut checks);
    }
    let short = |check: Check, of: f64| tellable(check, of, needed);
    if let Some(loss) = expected.loss {
        checks.push(short(check("loss", "", 1.0 - seen.got / seen.sent.max(1.0), loss), seen.sent));
    }
    let got = seen.got.max(1.0);
    if let Some(duplicate) = expected.duplicate {
        checks.push(short(check("duplicate", "", seen.twice / got, duplicate), seen.got));
    }
    match expected.reorder {
        None => {}
        Some(Reorder::Share(reorder)) => checks.push(short(check("reorder", "", seen.early / got, reorder), seen.got)),
        Some(Reorder::TooClose) => {
            let check = check("reorder", "", 0.0, Range::exactly(0.0));
            checks.push(unknown(check, "overtaking saves less time than this machine can tell"));
        }
    }
    checks
}

/// Standard deviations by which 199 of 200 trains are above a value.
const ABOVE: f64 = 2.6;

/// A share that is as expected says so only where none at all, or twice as much, would not be: in 199 of 200 trains.
fn tellable(check: Check, of: f64, needed: u32) -> Check {
    let (low, high) = check.within;
    let is_sure = check.asked <= 0.0 || check.asked >= 1.0;
    let twice = (2.0 * check.asked).min(1.0);
    let tells = low > 0.0 && high < twice - ABOVE * (twice * (1.0 - twice) / of.max(1.0)).sqrt();
    // A share that nobody expected to see at all is told by its range alone.
    let is_unseen = check.asked <= 0.0 && high > 0.0;
    if check.verdict == Verdict::Off || (tells || is_sure) && !is_unseen {
        return check;
    }
    let more = if f64::from(needed) > of { format!("; {needed} would do (--packets)") } else { String::new() };
    let note = format!("{of} packets are too few to tell{more}");
    unknown(check, note)
}

fn delay(expected: &Expected, seen: &Seen, slack: f64, checks: &mut Vec<Check>) {
    if let Some(range) = expected.delay {
        let later = LATER.0 + LATER.1 * range.expected;
        let allowed = range.wider(EARLIER.0 + EARLIER.1 * range.expected + slack, later + slack);
        let check = check("delay", "s", seen.delay, allowed);
        let is_vague = check.verdict == Verdict::Met && slack > later + CLOCKS * range.expected;
        checks.push(match () {
            () if seen.delayed < FEWEST => unknown(check, "fewer than ten packets arrived"),
            () if is_vague => unknown(check, "the clocks of the two machines are not known well enough"),
            () => check,
        });
    }
    if let Some(range) = expected.jitter {
        let slack = LATER.0 + JITTER * range.expected;
        let check = check("jitter", "s", seen.spread, range.wider(slack, slack));
        checks.push(match () {
            () if seen.delayed < FEWEST => unknown(check, "fewer than ten packets arrived"),
            () if range.expected < LATER.0 => unknown(check, "it is less than this machine's own"),
            () => check,
        });
    }
}

/// The check of a rate, from a flood.
pub(super) fn rate(expected: Option<Range>, asked: f64, flooded: Flooded) -> Check {
    let range = rate_within(expected.unwrap_or(Range::exactly(asked)));
    let check = check("rate", "bit/s", flooded.received.unwrap_or(0.0), range);
    match flooded {
        _ if expected.is_none() => unknown(check, "too few packets get through in the time for measuring"),
        Flooded { offered, .. } if offered < asked * 1.05 => {
            unknown(check, "this machine could not send more than the rate")
        }
        Flooded { overflown: true, .. } => unknown(check, "this machine could not receive all that came"),
        _ => check,
    }
}

/// Whether a queue is as long as asked, told by how long packets take while it is full.
pub(super) fn queue(expected: Option<Range>, flood: &Flood, flooded: Flooded, slack: f64) -> Option<Check> {
    let (packet, empties) = flood.queue()?;
    let range = expected.unwrap_or(Range::exactly(empties));
    // A packet more or less may be under way at any time.
    let allowed = packet + LATER.0 + (LATER.1 + RATE) * range.expected + slack;
    let check = check("queue", "s", flooded.took.unwrap_or(0.0), range.wider(allowed, allowed));
    Some(match flooded {
        _ if expected.is_none() || !flood.fills() => unknown(check, "it does not fill in the time for measuring"),
        _ if allowed * 1.5 > empties => unknown(check, "it empties sooner than this machine can tell"),
        Flooded { offered, .. } if offered < flood.rate * 1.05 => {
            unknown(check, "this machine could not send more than the rate")
        }
        Flooded { overflown: true, .. } => unknown(check, "this machine could not receive all that came"),
        _ => check,
    })
}

/// A rate whose turn did not come.
pub(super) fn rate_left_out(asked: f64) -> Check {
    let check = check("rate", "bit/s", 0.0, rate_within(Range::exactly(asked)));
    unknown(check, "the time for measuring was over (--time)")
}

fn rate_within(range: Range) -> Range {
    range.wider(range.expected * RATE, range.expected * RATE)
}

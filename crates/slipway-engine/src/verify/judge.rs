//! Asked against measured, with what chance allows.

use slipway_measure::check::{Check, Verdict};
use slipway_measure::stats::median;

use super::expect::Expected;
use super::flood::Flood;
use super::train::Train;

/// What a share may differ by is what happens by chance in 99 of 100 measurements of a link that is as asked.
const CHANCE: f64 = 0.01;
/// What the machine itself may add to a delay: its own path and a scheduler's wake-up, seconds, and per second of delay.
const DELAY_ALLOWANCE: (f64, f64) = (0.0005, 0.01);
/// What a rate may differ by.
const RATE_ALLOWANCE: f64 = 0.02;

fn check(what: &str, unit: &str, asked: f64, measured: f64, within: (f64, f64)) -> Check {
    let met = within.0 <= measured && measured <= within.1;
    let verdict = if met { Verdict::Met } else { Verdict::Off };
    Check { what: what.into(), asked, measured, within, unit: unit.into(), verdict, note: None }
}

fn unknown(check: Check, note: &str) -> Check {
    Check { verdict: Verdict::Unknown, note: Some(note.to_owned()), ..check }
}

/// What a train says.
pub(super) fn train(expected: &Expected, train: &Train) -> Vec<Check> {
    let mut checks = Vec::new();
    let arrived: Vec<f64> = train.delays.iter().flatten().copied().collect();
    let (sent, got) = (f64::from(train.sent), arrived.len() as f64);
    // Packets that overtake are not delayed: they are counted, and left out of the delay.
    let overtook = |delay: f64| expected.reorder > 0.0 && delay < expected.delay / 2.0;
    let delayed: Vec<f64> = arrived.iter().copied().filter(|&delay| !overtook(delay)).collect();
    checks.extend(delay(expected, &delayed));
    let memory = (1.0 + expected.loss_correlation) / (1.0 - expected.loss_correlation);
    let asked = 1.0 - expected.intact;
    checks.push(check("loss", "", asked, 1.0 - got / sent, share_interval(asked, sent / memory)));
    if expected.duplicate > 0.0 {
        let measured = f64::from(train.twice) / got.max(1.0);
        checks.push(check("duplicate", "", expected.duplicate, measured, share_interval(expected.duplicate, got)));
    }
    if expected.reorder > 0.0 {
        let measured = (got - delayed.len() as f64) / got.max(1.0);
        let within = share_interval(expected.reorder, got);
        checks.push(check("reorder", "", expected.reorder, measured, within));
    }
    checks
}

fn delay(expected: &Expected, delays: &[f64]) -> Vec<Check> {
    if expected.delay == 0.0 || expected.intact == 0.0 {
        return Vec::new();
    }
    let allowance = DELAY_ALLOWANCE.0 + DELAY_ALLOWANCE.1 * expected.delay;
    if delays.len() < 10 {
        let none = check("delay", "s", expected.delay, 0.0, (0.0, 0.0));
        return vec![unknown(none, "fewer than ten packets arrived")];
    }
    // Without jitter the median: one packet that the machine held up says nothing of the link.
    if expected.jitter == 0.0 {
        let within = (expected.delay - 1e-6, expected.delay + allowance);
        return median(delays).map(|median| check("delay", "s", expected.delay, median, within)).into_iter().collect();
    }
    let n = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / n;
    let deviation = (delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let memory = ((1.0 + expected.delay_correlation) / (1.0 - expected.delay_correlation.min(0.999))).sqrt();
    let by_chance = 3.0 * expected.jitter * memory / n.sqrt();
    let within = (expected.delay - by_chance - allowance / 2.0, expected.delay + by_chance + allowance);
    let mut checks = vec![check("delay", "s", expected.delay, mean, within)];
    // A correlated or one-sided jitter is narrower or wider than written; then only its mean is judged.
    if expected.delay_correlation == 0.0 && expected.delay > 3.0 * expected.jitter {
        let slack = expected.jitter * 0.15 + allowance;
        let within = (expected.jitter - slack, expected.jitter + slack);
        checks.push(check("jitter", "s", expected.jitter, deviation, (within.0.max(0.0), within.1)));
    }
    checks
}

/// What a flood says.
pub(super) fn rate(asked: f64, flood: Flood) -> Check {
    let check = check("rate", "bit/s", asked, flood.received, rate_within(asked));
    if flood.offered < asked * 1.05 {
        return unknown(check, "this machine could not send more than the rate");
    }
    check
}

/// A rate whose turn did not come.
pub(super) fn rate_left_out(asked: f64) -> Check {
    unknown(check("rate", "bit/s", asked, 0.0, rate_within(asked)), "not measured: the time for measuring was over")
}

fn rate_within(asked: f64) -> (f64, f64) {
    (asked * (1.0 - RATE_ALLOWANCE), asked * (1.0 + RATE_ALLOWANCE))
}

/// The shares that `n` packets show in 99 of 100 trains where each has this `share`: from the binomial distribution, its
/// tails summed exactly.
fn share_interval(share: f64, n: f64) -> (f64, f64) {
    let n = n.round().max(1.0);
    if share <= 0.0 || share >= 1.0 {
        return (share.clamp(0.0, 1.0), share.clamp(0.0, 1.0));
    }
    let log_choose = |k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let chance = |k: f64| (log_choose(k) + k * share.ln() + (n - k) * (1.0 - share).ln()).exp();
    let (mut below, mut low) = (chance(0.0), 0.0);
    while below < CHANCE / 2.0 && low < n {
        low += 1.0;
        below += chance(low);
    }
    let (mut above, mut high) = (chance(n), n);
    while above < CHANCE / 2.0 && high > 0.0 {
        high -= 1.0;
        above += chance(high);
    }
    (low / n, high / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_the_binomial_s() {
        // R: qbinom(c(0.005, 0.995), 1000, 0.1) is 76, 125.
        let (low, high) = share_interval(0.1, 1000.0);
        assert_eq!(((low * 1000.0).round(), (high * 1000.0).round()), (76.0, 125.0));
        assert_eq!(share_interval(0.0, 1000.0), (0.0, 0.0));
    }

    fn train_of(delays: Vec<Option<f64>>, twice: u32) -> Train {
        Train { sent: u32::try_from(delays.len()).expect("few"), delays, twice }
    }

    fn verdicts(checks: &[Check]) -> Vec<(&str, Verdict)> {
        checks.iter().map(|check| (check.what.as_str(), check.verdict)).collect()
    }

    #[test]
    fn a_link_as_asked_is_met_and_another_is_not() {
        let asked = Expected { delay: 0.02, intact: 0.9, ..Expected::default() };
        let delays = |lost: usize| (0..1000).map(|i| (i >= lost).then_some(0.0201)).collect::<Vec<_>>();
        assert_eq!(
            verdicts(&train(&asked, &train_of(delays(100), 0))),
            [("delay", Verdict::Met), ("loss", Verdict::Met)]
        );
        assert_eq!(verdicts(&train(&asked, &train_of(delays(200), 0)))[1], ("loss", Verdict::Off));
        let late = Expected { delay: 0.01, ..asked };
        assert_eq!(verdicts(&train(&late, &train_of(delays(100), 0)))[0], ("delay", Verdict::Off));
    }

    #[test]
    fn a_single_loss_on_a_link_without_loss_is_off() {
        let asked = Expected { intact: 1.0, ..Expected::default() };
        let mut delays = vec![Some(0.0001); 1000];
        assert_eq!(verdicts(&train(&asked, &train_of(delays.clone(), 0))), [("loss", Verdict::Met)]);
        delays[7] = None;
        assert_eq!(verdicts(&train(&asked, &train_of(delays, 0))), [("loss", Verdict::Off)]);
    }

    #[test]
    fn what_the_machine_cannot_send_is_not_judged() {
        assert_eq!(rate(1e9, Flood { offered: 0.9e9, received: 0.9e9 }).verdict, Verdict::Unknown);
        assert_eq!(rate(1e7, Flood { offered: 1.5e7, received: 1.01e7 }).verdict, Verdict::Met);
        assert_eq!(rate(1e7, Flood { offered: 1.5e7, received: 1.3e7 }).verdict, Verdict::Off);
    }
}

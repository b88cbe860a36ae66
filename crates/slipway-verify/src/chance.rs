//! The room that chance leaves: the range of the next measurement of a right link, told from simulated ones.

/// One check of so many of a right link comes out wrong: with five of a link, one link of 200.
const CHANCE: f64 = 0.001;
/// How many standard deviations that is, both ways.
const WIDTH: f64 = 3.2905;

/// The expected value of a share or a time, and the range in which a measurement may lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub(super) expected: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Range {
    /// Exactly one value.
    pub(super) fn exactly(value: f64) -> Self {
        Self { expected: value, low: value, high: value }
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Wider by so much below and above, not below zero.
    pub(super) fn wider(self, below: f64, above: f64) -> Self {
        Self { low: (self.low - below).max(0.0), high: self.high + above, ..self }
    }

    fn with(self, low: f64, high: f64) -> Self {
        Self { low: self.low.min(low), high: self.high.max(high), ..self }
    }
}

/// Where the share of the next train lies, of whose packets so many are counted as in the trains `counts` of `of`. Events
/// that come in bursts, and so differ from train to train by more than independent ones, count as fewer.
pub(super) fn share(counts: &[f64], of: &[f64]) -> Option<Range> {
    let runs = counts.len() as f64;
    let all: f64 = of.iter().sum();
    if counts.is_empty() || all <= 0.0 {
        return None;
    }
    let n = all / runs;
    let p = counts.iter().sum::<f64>() / all;
    let shares: Vec<f64> = counts.iter().zip(of).map(|(count, of)| count / of.max(1.0)).collect();
    let (least, most) = ends(&shares);
    if p <= 0.0 || p >= 1.0 {
        // That it never came says that it comes less than once in all of them.
        let unseen = if runs > 1.0 { 1.0 / all } else { 0.0 };
        let near = interval(unseen, n);
        let range = Range::exactly(p);
        return Some(if p <= 0.0 { range.with(0.0, near.1) } else { range.with(1.0 - near.1, 1.0) });
    }
    let dispersion = if runs > 1.0 {
        let variance = shares.iter().map(|share| (share - p).powi(2)).sum::<f64>() / (runs - 1.0);
        (variance * n / (p * (1.0 - p))).max(1.0)
    } else {
        1.0
    };
    let error = (dispersion * p * (1.0 - p) / all).sqrt();
    let effective = n / dispersion;
    let low = interval((p - error).max(0.0), effective).0;
    let high = interval((p + error).min(1.0), effective).1;
    let expected = if runs > 1.0 { rounded(p, error) } else { p };
    Some(Range { expected, low, high }.with(least, most))
}

/// The range of the next value, told from those before; `None` without any.
pub(super) fn value(values: &[f64]) -> Option<Range> {
    let runs = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / runs;
    let (least, most) = ends(values);
    let range = Range::exactly(mean).with(least, most);
    if runs < 2.0 {
        return Some(range);
    }
    let freedom = runs - 1.0;
    let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom).sqrt();
    // Student's distribution, by the first terms of Cornish and Fisher.
    let width = WIDTH * (1.0 + (WIDTH * WIDTH + 1.0) / (4.0 * freedom)) * (1.0 + 1.0 / runs).sqrt() * deviation;
    let expected = rounded(mean, deviation / runs.sqrt());
    Some(Range { expected, ..range }.with(mean - width, mean + width))
}

fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// To as many digits as its error leaves.
fn rounded(value: f64, error: f64) -> f64 {
    if error <= 0.0 {
        return value;
    }
    let step = 10f64.powf(error.log10().ceil());
    let near = (value / step).round() * step;
    if near > 0.0 { near } else { value }
}

/// The shares that `n` packets show in all but [`CHANCE`] of trains where each has this `share`: from the binomial
/// distribution, its tails summed exactly.
fn interval(share: f64, n: f64) -> (f64, f64) {
    let n = n.round().max(1.0);
    if share <= 0.0 || share >= 1.0 {
        return (share.clamp(0.0, 1.0), share.clamp(0.0, 1.0));
    }
    let log_choose = |k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let chance = |k: f64| (log_choose(k) + k * share.ln() + (n - k) * (-share).ln_1p()).exp();
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
        // The exact sums: the 0.0005 and the 0.9995 quantile.
        let (low, high) = interval(0.1, 1000.0);
        assert_eq!(((low * 1000.0).round(), (high * 1000.0).round()), (70.0, 132.0));
        assert_eq!(interval(0.0, 1000.0), (0.0, 0.0));
    }

    #[test]
    fn bursts_widen_a_share() {
        let of = [1000.0; 40];
        let even: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i % 5)).collect();
        let bursts: Vec<f64> = (0..40).map(|i| if i % 10 == 0 { 1020.0 * 0.98 } else { 0.0 }).collect();
        let (even, bursts) = (share(&even, &of).expect("trains"), share(&bursts, &of).expect("trains"));
        assert!(even.high < 0.15 && bursts.high > 0.9 && bursts.low == 0.0, "{even:?} {bursts:?}");
    }

    #[test]
    fn what_is_told_has_the_digits_that_are_known() {
        let is = |value: f64, told: f64| (value - told).abs() < 1e-9;
        assert!(is(rounded(0.1003, 0.0005), 0.1) && is(rounded(0.124_73, 0.0005), 0.125));
        assert!(is(rounded(0.3, 1.0), 0.3), "nothing is known: as it is");
    }
}

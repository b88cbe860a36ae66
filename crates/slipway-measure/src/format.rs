//! Numbers as people read them.

use crate::stats::Estimate;

/// Between a number and its unit: they stay on one line.
const NO_BREAK_SPACE: char = '\u{a0}';

/// Decimals that give `reference` three significant digits; none from 100 on, at most 6.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to 0 ..= 6 before the cast
pub fn decimals(reference: f64) -> usize {
    if reference == 0.0 || !reference.is_finite() {
        return 0;
    }
    (2.0 - reference.abs().log10().floor()).clamp(0.0, 6.0) as usize
}

/// Three significant digits; whole numbers in full: `17.2`, `0.0423`, `58496`, `1.23e-9`.
#[must_use]
pub fn number(value: f64) -> String {
    with_decimals(value, if value.fract() == 0.0 { 0 } else { decimals(value) })
}

/// A number and its unit.
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{}{NO_BREAK_SPACE}{unit}", number(value)) }
}

/// `16.1 – 18.2`, both ends with the decimals of the median; none for whole numbers.
#[must_use]
pub fn interval(estimate: &Estimate) -> String {
    let reference = if estimate.median == 0.0 { estimate.high.abs().max(estimate.low.abs()) } else { estimate.median };
    let whole = [estimate.low, estimate.median, estimate.high].iter().all(|value| value.fract() == 0.0);
    let decimals = if whole { 0 } else { decimals(reference) };
    format!("{} – {}", with_decimals(estimate.low, decimals), with_decimals(estimate.high, decimals))
}

/// `2.12×`.
#[must_use]
pub fn ratio(value: f64) -> String {
    format!("{}×", number(value))
}

/// A percentage with two significant digits: `0.42 %`, `3.1 %`, `12 %`.
#[must_use]
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    format!("{}{NO_BREAK_SPACE}%", with_decimals(percent, decimals(percent).saturating_sub(1)))
}

/// Bytes with a binary prefix where it is exact: `1 B`, `64 KiB`, `1.5 MiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let shown = if value.fract() == 0.0 { format!("{value}") } else { number(value) };
    format!("{shown}{NO_BREAK_SPACE}{}", units[unit])
}

fn with_decimals(value: f64, decimals: usize) -> String {
    let huge = value.abs() >= 1e9;
    let tiny = value != 0.0 && value.abs() < 1e-5;
    if huge || tiny { format!("{value:.2e}") } else { format!("{value:.decimals$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept_and_whole_numbers_are_whole() {
        let shown = [17.234, 0.042_31, 8.0, 123.4, 58496.0, 0.0, -2.5, 1.234e-9, 3e12, 999.99].map(number);
        assert_eq!(shown, ["17.2", "0.0423", "8", "123", "58496", "0", "-2.50", "1.23e-9", "3.00e12", "1000"]);
    }

    #[test]
    fn an_interval_has_its_medians_decimals() {
        assert_eq!(interval(&Estimate { median: 17.2, low: 9.0, high: 118.26 }), "9.0 – 118.3");
        assert_eq!(interval(&Estimate { median: 0.0, low: 0.0, high: 0.25 }), "0.000 – 0.250");
    }

    #[test]
    fn small_things() {
        assert_eq!(percent(0.0312), "3.1\u{a0}%");
        assert_eq!(percent(0.124), "12\u{a0}%");
        assert_eq!(bytes(1.0), "1\u{a0}B");
        assert_eq!(bytes(1_572_864.0), "1.50\u{a0}MiB");
        assert_eq!(bytes(65536.0), "64\u{a0}KiB");
        assert_eq!(quantity(3.0, ""), "3");
    }
}

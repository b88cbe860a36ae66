//! Quantities as tc(8) reads them, for Distem hands them on.

use slipway_document::units::{Bytes, Fraction, Rate, Seconds};

/// Bits per second. `mbit` are bits, `mbps` bytes.
pub(super) fn rate(text: &str) -> Option<Rate> {
    let (number, unit) = split(text)?;
    let bits = unit.strip_suffix("bit").or(Some("").filter(|_| unit.is_empty()));
    let (prefix, scale) = match bits {
        Some(prefix) => (prefix, 1.0),
        None => (unit.strip_suffix("bps")?, 8.0),
    };
    let prefix = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" => 1024.0,
        "mi" => 1_048_576.0,
        "gi" => 1_073_741_824.0,
        _ => return None,
    };
    Some(Rate(whole(number * scale * prefix)))
}

/// A plain number is in microseconds.
pub(super) fn time(text: &str) -> Option<Seconds> {
    let (number, unit) = split(text)?;
    let per_second = match unit.as_str() {
        "" | "us" | "usec" | "usecs" => 1e6,
        "ms" | "msec" | "msecs" => 1e3,
        "s" | "sec" | "secs" => 1.0,
        "ns" | "nsec" | "nsecs" => 1e9,
        _ => return None,
    };
    Some(Seconds(number / per_second))
}

/// `10%`, or `10`.
pub(super) fn percent(text: &str) -> Option<Fraction> {
    format!("{}%", text.trim().trim_end_matches('%').trim()).parse().ok()
}

/// Megahertz; or a share of a core, where it is at most 1.
pub(super) fn frequency(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    match unit.as_str() {
        "" | "mhz" => Some(number),
        "ghz" => Some(number * 1e3),
        "%" => Some(number / 100.0),
        _ => None,
    }
}

/// As LXC takes it: a plain number is in MiB.
pub(super) fn memory(text: &str) -> Option<Bytes> {
    let (number, unit) = split(text)?;
    let scale = match unit.as_str() {
        "" | "m" | "mb" | "mo" => 1_048_576.0,
        "g" | "gb" | "go" => 1_073_741_824.0,
        "k" | "kb" | "ko" => 1024.0,
        _ => return None,
    };
    Some(Bytes(whole(number * scale)))
}

/// Bytes; units as for memory.
pub(super) fn bytes(text: &str) -> Option<u64> {
    match split(text)? {
        (number, unit) if unit.is_empty() || unit == "b" => Some(whole(number)),
        _ => memory(text).map(|bytes| bytes.0),
    }
}

fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok().filter(|number| *number < 1e18)?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is not negative")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_tc_reads_them() {
        assert_eq!(rate("20mbps"), Some(Rate(160_000_000)));
        assert_eq!(rate("100mbit"), Some(Rate(100_000_000)));
        assert_eq!(rate("1Gbit"), Some(Rate(1_000_000_000)));
        assert_eq!(rate("8000"), Some(Rate(8000)));
        assert_eq!(time("5ms"), Some(Seconds(0.005)));
        assert_eq!(time("250"), Some(Seconds(0.00025)));
        assert_eq!(percent("0.5%"), Some(Fraction(0.005)));
        assert_eq!(percent("10"), Some(Fraction(0.1)));
        assert_eq!(frequency("1000 MHz"), Some(1000.0));
        assert_eq!(memory("512"), Some(Bytes(512 << 20)));
        for text in ["", "-1", "fast", "1e9", "é"] {
            assert!(rate(text).is_none() && time(text).is_none() && percent(text).is_none(), "{text}");
        }
    }
}

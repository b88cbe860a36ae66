//! SimGrid's quantities: `98.095Mf`, `41.279125MBps`, `10Gbps`, `59.904us`. A plain number is in the first unit.

const SPEED: &[(&str, f64)] =
    &[("f", 1.0), ("flops", 1.0), ("kf", 1e3), ("Mf", 1e6), ("Gf", 1e9), ("Tf", 1e12), ("Pf", 1e15), ("Ef", 1e18)];
const BANDWIDTH: &[(&str, f64)] = &[
    ("Bps", 8.0),
    ("kBps", 8e3),
    ("MBps", 8e6),
    ("GBps", 8e9),
    ("TBps", 8e12),
    ("KiBps", 8.0 * 1024.0),
    ("MiBps", 8.0 * 1_048_576.0),
    ("GiBps", 8.0 * 1_073_741_824.0),
    ("bps", 1.0),
    ("kbps", 1e3),
    ("Mbps", 1e6),
    ("Gbps", 1e9),
    ("Tbps", 1e12),
    ("Kibps", 1024.0),
    ("Mibps", 1_048_576.0),
    ("Gibps", 1_073_741_824.0),
];
/// Of seconds, as a divisor or a factor: dividing by a power of ten rounds once.
const TIME: &[(&str, f64)] = &[
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("ns", 1e-9),
    ("ps", 1e-12),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
    ("w", 604_800.0),
];

/// Operations per second.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    quantity(text, SPEED, "`1Gf` or `98.095Mf`")
}

/// Bits per second.
pub(super) fn bandwidth(text: &str) -> Result<f64, String> {
    quantity(text, BANDWIDTH, "`125MBps` or `10Gbps`")
}

/// Seconds.
pub(super) fn time(text: &str) -> Result<f64, String> {
    quantity(text, TIME, "`100us` or `15ms`")
}

fn quantity(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let text = text.trim();
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    // `1Ef` is a number and a unit, and `1e9f` is too: the longest number is meant.
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).filter(|at| (1..=40).contains(at));
    let number = ends.rev().find_map(|end| Some((text[..end].parse::<f64>().ok()?, text[end..].trim_start())));
    let (number, unit) =
        number.filter(|_| begins).ok_or_else(|| format!("not a number with a unit; write for example {example}"))?;
    let unit = if unit.is_empty() { units[0].0 } else { unit };
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        let known: Vec<_> = units.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "not a number with a unit that is known; write for example {example} (units: {})",
            known.join(", ")
        ));
    };
    let value = if *scale < 1.0 { number / (1.0 / scale).round() } else { number * scale };
    if value.is_finite() { Ok(value) } else { Err(format!("too great; write for example {example}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_manual_shows() {
        assert_eq!(speed("98.095Mf"), Ok(98_095_000.0));
        assert_eq!(speed("1e9"), Ok(1e9));
        assert_eq!(speed("1Ef"), Ok(1e18));
        assert_eq!(bandwidth("125MBps"), Ok(1e9));
        assert_eq!(bandwidth("1.25E8"), Ok(1e9));
        assert_eq!(bandwidth("10Gbps"), Ok(1e10));
        assert_eq!(time("59.904us"), Ok(59.904e-6));
        assert_eq!(time("15 ms"), Ok(0.015));
        assert_eq!(time("0"), Ok(0.0));
    }

    #[test]
    fn what_is_none() {
        for text in ["", "-1", "inf", "NaN", "1 furlong", "1Gbit", "1e999", "é"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
    }
}

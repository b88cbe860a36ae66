//! Data and its rates: whole numbers, read without rounding.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{UnitError, split};
use crate::written;

/// An amount of memory or data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Bytes(pub u64);

/// A rate of transmission, in bits per second. Decimal units, as `tc(8)` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Rate(pub u64);

/// A rate of data, in bytes per second: what a disk reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct ByteRate(pub u64);

const BYTES: &str = "`512MiB` or `1.5GiB` (units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)";
pub(super) const BYTE_RATE: &str = "`20MB/s` or `512KiB/s` (units: those of data, such as kB, KiB, MB, MiB, then `/s`)";
const RATE: &str = "`10mbit` or `1.5gbit` (units: bit, kbit, mbit, gbit, tbit, bits per second)";

const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, BYTES)?;
        let Some((_, scale)) = BYTE_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(UnitError::UnknownUnit { unit: unit.into(), quantity: "memory", units: BYTES });
        };
        exact_product(number, *scale).map(Self).ok_or_else(|| UnitError::NotBytes { text: text.trim().into() })
    }
}

/// `number` × `scale` without rounding: memory limits are compared with what the kernel reports, byte by byte.
fn exact_product(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let ten = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(scale.into())?;
    (product % ten == 0).then_some(product / ten)?.try_into().ok()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, u64)| scale.is_power_of_two() && self.0.is_multiple_of(*scale) && self.0 > 0;
        let (unit, scale) = BYTE_UNITS.iter().find(fits).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl FromStr for ByteRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let unknown =
            |unit: &str| UnitError::UnknownUnit { unit: unit.into(), quantity: "a disk's speed", units: BYTE_RATE };
        let (number, unit) = split(text, BYTE_RATE)?;
        let Some(data) = unit.strip_suffix("/s") else {
            return Err(if BYTE_UNITS.iter().any(|(name, _)| *name == unit) {
                UnitError::NotPerSecond { text: text.trim().into() }
            } else {
                unknown(unit)
            });
        };
        let (_, scale) = BYTE_UNITS.iter().find(|(name, _)| *name == data).ok_or_else(|| unknown(unit))?;
        exact_product(number, *scale).map(Self).ok_or_else(|| UnitError::NotBytes { text: text.trim().into() })
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = BYTE_UNITS.iter().filter(|(_, scale)| self.0.is_multiple_of(*scale) && self.0 > 0);
        // The unit that leaves the smallest number.
        let (unit, scale) = whole.max_by_key(|(_, scale)| *scale).unwrap_or(&("B", 1));
        write!(f, "{}{unit}/s", self.0 / scale)
    }
}

const RATE_UNITS: [(&str, u64); 5] =
    [("tbit", 1_000_000_000_000), ("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, RATE)?;
        let Some((_, scale)) = RATE_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(UnitError::UnknownUnit { unit: unit.into(), quantity: "rate", units: RATE });
        };
        exact_product(number, *scale).map(Self).ok_or_else(|| UnitError::NotBits { text: text.trim().into() })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, u64)| self.0.is_multiple_of(*scale) && self.0 > 0;
        let (unit, scale) = RATE_UNITS.iter().find(fits).unwrap_or(&("bit", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

written!(
    Bytes,
    BYTES,
    "Memory. Binary units (KiB, MiB, GiB, TiB) or decimal ones (kB, MB, GB, TB).",
    r"^\d+(\.\d+)? *([KMGT]iB|[kMGT]B|B)$",
    ["512MiB", "1.5GiB"]
);
written!(
    ByteRate,
    BYTE_RATE,
    "A rate of data, per second. Binary units (KiB/s, MiB/s) or decimal ones (kB/s, MB/s).",
    r"^\d+(\.\d+)? *([KMGT]iB|[kMGT]B|B)/s$",
    ["20MB/s", "512KiB/s"]
);
written!(
    Rate,
    RATE,
    "A rate of transmission, in bits per second.",
    r"^\d+(\.\d+)? *[kmgt]?bit$",
    ["10mbit", "1.5gbit"]
);

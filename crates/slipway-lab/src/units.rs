//! Quantities with their unit: `50%`, `2 cores`, `1GiB`, `20ms`. A number without a unit is refused, and every value
//! prints as something that reads back as the same value.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Why a text is not a quantity. The message says which units there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A bare number.
    #[error("`{text}` has no unit; write {units}")]
    MissingUnit {
        /// As written.
        text: String,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// A number followed by something that is no unit of the quantity.
    #[error("`{unit}` is not a unit of {quantity}; write {units}")]
    UnknownUnit {
        /// As written.
        unit: String,
        /// What is measured.
        quantity: &'static str,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// Not a plain decimal number.
    #[error("`{text}` is not a plain decimal number with a unit; write {units}")]
    NotANumber {
        /// As written.
        text: String,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// A share greater than the whole.
    #[error("`{text}` is more than 100 %; write {FRACTION}")]
    MoreThanAll {
        /// As written.
        text: String,
    },
    /// A rate too large, or finer than a bit per second.
    #[error("`{text}` is not a whole number of bits per second below 2^64; write a smaller or rounder one")]
    NotBits {
        /// As written.
        text: String,
    },
    /// Data without a time.
    #[error("`{text}` is an amount, not a rate; write {BYTE_RATE}")]
    NotPerSecond {
        /// As written.
        text: String,
    },
    /// A number too large, or finer than the quantity's smallest step.
    #[error("`{text}` is not a whole number of bytes below 2^64; write a smaller or rounder one")]
    NotBytes {
        /// As written.
        text: String,
    },
}

/// Processor time per time, in cores: `50%` is half of one core, `2 cores` two whole ones.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Cores(pub f64);

/// An amount of memory or data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Bytes(pub u64);

/// A duration, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Seconds(pub f64);

/// A share, 0 to 1: a probability or a correlation. Written in percent, `0.05%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Fraction(pub f64);

/// A rate of transmission, in bits per second. Decimal units, as `tc(8)` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Rate(pub u64);

/// A rate of data, in bytes per second: what a disk reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct ByteRate(pub u64);

pub(crate) const CPU: &str = "`50%` of one core, `0.5 core`, `2 cores` or `1200 MHz`";
const BYTES: &str = "`512MiB` or `1.5GiB` (units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)";
const SECONDS: &str = "`20ms` or `1.5s` (units: us, ms, s, min, h)";

const BYTE_RATE: &str = "`20MB/s` or `512KiB/s` (units: those of data, such as kB, KiB, MB, MiB, then `/s`)";
const FRACTION: &str = "`0.5%` or `0.05%`";
const RATE: &str = "`10mbit` or `1.5gbit` (units: bit, kbit, mbit, gbit, tbit, bits per second)";

/// In characters. The smallest double, written out, is shorter.
const LONGEST_NUMBER: usize = 400;

/// Splits `1.5 GiB` into number and unit. No signs, no exponents: nothing that a reader has to decode.
pub(crate) fn split<'a>(text: &'a str, units: &'static str) -> Result<(&'a str, &'a str), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') || number.len() > LONGEST_NUMBER {
        return Err(UnitError::NotANumber { text: text.into(), units });
    }
    match unit.trim_start() {
        "" => Err(UnitError::MissingUnit { text: text.into(), units }),
        unit => Ok((number, unit)),
    }
}

pub(crate) fn decimal(number: &str, units: &'static str) -> Result<f64, UnitError> {
    // What is greater has no meaning for any quantity, and could not be multiplied.
    let sensible = number.parse().ok().filter(|value| *value < 1e30);
    sensible.ok_or_else(|| UnitError::NotANumber { text: number.into(), units })
}

impl FromStr for Cores {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, CPU)?;
        let value = decimal(number, CPU)?;
        match unit {
            "%" => Ok(Self(value / 100.0)),
            "core" | "cores" => Ok(Self(value)),
            _ => Err(UnitError::UnknownUnit { unit: unit.into(), quantity: "processor time", units: CPU }),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 > 1.0 { "cores" } else { "core" })
    }
}

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

impl FromStr for Fraction {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, FRACTION)?;
        // Rounded once; a division would round what was rounded already.
        let value = decimal(&format!("{number}e-2"), FRACTION)?;
        match unit {
            "%" if value <= 1.0 => Ok(Self(value)),
            "%" => Err(UnitError::MoreThanAll { text: text.trim().into() }),
            _ => Err(UnitError::UnknownUnit { unit: unit.into(), quantity: "a share", units: FRACTION }),
        }
    }
}

impl fmt::Display for Fraction {
    /// The decimal point moves; nothing is multiplied, so that every share reads back as itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let fraction = format!("{fraction:0<2}");
        let (hundredths, rest) = fraction.split_at(2);
        let percent = format!("{whole}{hundredths}");
        let percent = match percent.trim_start_matches('0') {
            "" => "0",
            percent => percent,
        };
        if rest.is_empty() { write!(f, "{percent}%") } else { write!(f, "{percent}.{rest}%") }
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

impl FromStr for Seconds {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, SECONDS)?;
        let value = decimal(number, SECONDS)?;
        // Dividing by a power of ten rounds once; multiplying by 0.001 would round twice and not print back.
        match unit {
            "us" | "µs" => Ok(Self(value / 1e6)),
            "ms" => Ok(Self(value / 1e3)),
            "s" => Ok(Self(value)),
            "min" => Ok(Self(value * 60.0)),
            "h" => Ok(Self(value * 3600.0)),
            _ => Err(UnitError::UnknownUnit { unit: unit.into(), quantity: "time", units: SECONDS }),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            s if s >= 1.0 || s == 0.0 => (1.0, "s"),
            s if s >= 1e-3 => (1e3, "ms"),
            _ => (1e6, "us"),
        };
        // The smaller unit is for reading: the shortest number that reads back exactly, and seconds where there is none.
        let scaled = self.0 * scale;
        #[expect(clippy::float_cmp, reason = "the question is whether the same value comes back")]
        let exact = |near: &f64| near / scale == self.0;
        let near = [scaled, scaled.next_down(), scaled.next_up()].into_iter().filter(exact);
        match near.min_by_key(|near| near.to_string().len()) {
            Some(shortest) => write!(f, "{shortest}{unit}"),
            None => write!(f, "{}s", self.0),
        }
    }
}

impl Seconds {
    /// As the standard library's duration; beyond its range, the longest there is.
    #[must_use]
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::try_from_secs_f64(self.0).unwrap_or(std::time::Duration::MAX)
    }
}

/// A value that a text may hold, wherever it stands: in a file or in a word `key=value`.
pub(crate) trait Value: Sized + fmt::Display {
    /// What to write.
    const EXPECTED: &'static str;

    /// `Err` says what is wrong, then `; write …`.
    fn read(text: &str) -> Result<Self, String>;
}

impl Value for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn read(text: &str) -> Result<Self, String> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| format!("`{}` does not fit here; write {}", shortened(text), Self::EXPECTED))
    }
}

/// Enough of a text to recognise it by.
pub(crate) fn shortened(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

/// The written form, in serde and in the JSON Schema.
macro_rules! written {
    ($type:ident, $units:ident, $description:literal, $pattern:literal, $examples:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($units)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl crate::units::Value for $type {
            const EXPECTED: &'static str = $units;

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error| ToString::to_string(&error))
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": $pattern,
                    "examples": $examples,
                })
            }
        }
    };
}

pub(crate) use written;

written!(
    Cores,
    CPU,
    "Processor time: a share of one core, or cores.",
    r"^\d+(\.\d+)? *(%|cores?)$",
    ["50%", "2 cores"]
);
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
written!(Fraction, FRACTION, "A share, in percent.", r"^\d+(\.\d+)? *%$", ["0.5%", "0.05%"]);
written!(
    Rate,
    RATE,
    "A rate of transmission, in bits per second.",
    r"^\d+(\.\d+)? *[kmgt]?bit$",
    ["10mbit", "1.5gbit"]
);
written!(Seconds, SECONDS, "A duration.", r"^\d+(\.\d+)? *(us|µs|ms|s|min|h)$", ["20ms", "1.5s", "10min"]);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!("50%".parse(), Ok(Cores(0.5)));
        assert_eq!("0.5 core".parse(), Ok(Cores(0.5)));
        assert_eq!(" 2 cores ".parse(), Ok(Cores(2.0)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("512 MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("1GB".parse(), Ok(Bytes(1_000_000_000)));
        assert_eq!("20ms".parse(), Ok(Seconds(0.02)));
        assert_eq!("10min".parse(), Ok(Seconds(600.0)));
    }

    #[test]
    fn prints_the_readable_unit() {
        assert_eq!(Cores(0.5).to_string(), "0.5 core");
        assert_eq!(Cores(2.0).to_string(), "2 cores");
        assert_eq!(Bytes(1 << 30).to_string(), "1GiB");
        assert_eq!(Bytes(1500).to_string(), "1500B");
        assert_eq!(Bytes(0).to_string(), "0B");
        assert_eq!(Seconds(0.02).to_string(), "20ms");
        assert_eq!(Seconds(90.0).to_string(), "90s");
        assert_eq!("0.05%".parse::<Fraction>().unwrap().to_string(), "0.05%");
        assert_eq!(Fraction(0.07).to_string(), "7%");
        assert_eq!(Rate(1_500_000_000).to_string(), "1500mbit");
    }

    #[test]
    fn a_bare_number_is_told_the_units() {
        let error = "20".parse::<Seconds>().unwrap_err();
        assert_eq!(error.to_string(), "`20` has no unit; write `20ms` or `1.5s` (units: us, ms, s, min, h)");
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for text in ["", "-1s", "1e3s", ".5s", "5.s", "1..2s", "s", "1sec", "１s", "infs", "NaNs"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        for text in ["0.5B", "99999999TiB", "1K", "1 gib", "0.0000001KiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert!("2".parse::<Cores>().is_err());
        assert!("2 core s".parse::<Cores>().is_err());
    }

    #[test]
    fn serde_uses_the_written_form() {
        assert_eq!(serde_json::to_string(&Bytes(1 << 20)).unwrap(), "\"1MiB\"");
        assert_eq!(serde_json::from_str::<Cores>("\"50%\"").unwrap(), Cores(0.5));
        assert!(serde_json::from_str::<Seconds>("\"5\"").is_err());
    }

    proptest! {
        #[test]
        fn cores_round_trip(value in 0.0..1e6) {
            prop_assert_eq!(Cores(value).to_string().parse(), Ok(Cores(value)));
        }

        #[test]
        fn bytes_round_trip(value: u64) {
            prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
        }

        #[test]
        fn seconds_round_trip(mantissa in 0.0..10.0, exponent in -7..6) {
            let value = mantissa * 10f64.powi(exponent);
            prop_assert_eq!(Seconds(value).to_string().parse(), Ok(Seconds(value)));
        }

        #[test]
        fn fractions_round_trip(percent in 0.0..=100.0) {
            let text = format!("{percent}%");
            let value: Fraction = text.parse().unwrap();
            prop_assert_eq!(value.to_string().parse(), Ok(value));
            let value = Fraction(percent / 100.0);
            prop_assert_eq!(value.to_string().parse(), Ok(value));
        }

        #[test]
        fn any_share_round_trips(share in 0.0..=1.0) {
            prop_assert_eq!(Fraction(share).to_string().parse(), Ok(Fraction(share)));
        }

        #[test]
        fn rates_round_trip(value: u64) {
            prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
        }

        #[test]
        fn byte_rates_round_trip(value: u64) {
            prop_assert_eq!(ByteRate(value).to_string().parse(), Ok(ByteRate(value)));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in ".{0,20}") {
            let _ = (text.parse::<Cores>(), text.parse::<Bytes>(), text.parse::<Seconds>());
            let _ = (text.parse::<Fraction>(), text.parse::<Rate>(), text.parse::<ByteRate>());
        }
    }
}

//! Quantities with their unit: `50%`, `2 cores`, `1GiB`, `20ms`. A number without a unit is refused, and every value
//! prints as something that reads back as the same value.

mod data;
mod written;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::written;
use data::BYTE_RATE;
pub use data::{ByteRate, Bytes, Rate};
pub use written::Value;

/// Why a text is not a quantity. The message says which units there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A bare number.
    #[error("`{text}` has no unit; write {units}")]
    MissingUnit {
        /// The text, as written.
        text: String,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// A number followed by something that is no unit of the quantity.
    #[error("`{unit}` is not a unit of {quantity}; write {units}")]
    UnknownUnit {
        /// The unit, as written.
        unit: String,
        /// The name of the quantity.
        quantity: &'static str,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// Not a plain decimal number.
    #[error("`{text}` is not a plain decimal number with a unit; write {units}")]
    NotANumber {
        /// The text, as written.
        text: String,
        /// The units of the quantity, with examples.
        units: &'static str,
    },
    /// A share greater than the whole.
    #[error("`{text}` is more than 100 %; write {FRACTION}")]
    MoreThanAll {
        /// The text, as written.
        text: String,
    },
    /// A rate too large, or finer than a bit per second.
    #[error("`{text}` is not a whole number of bits per second below 2^64; write a smaller or rounder one")]
    NotBits {
        /// The text, as written.
        text: String,
    },
    /// Data without a time.
    #[error("`{text}` is an amount, not a rate; write {BYTE_RATE}")]
    NotPerSecond {
        /// The text, as written.
        text: String,
    },
    /// A number too large, or finer than the quantity's smallest step.
    #[error("`{text}` is not a whole number of bytes below 2^64; write a smaller or rounder one")]
    NotBytes {
        /// The text, as written.
        text: String,
    },
}

/// Processor time per time, in cores: `50%` is half of one core, `2 cores` two whole ones.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Cores(pub f64);

/// A duration, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Seconds(pub f64);

/// A share, 0 to 1: a probability or a correlation. Written in percent, `0.05%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String")]
pub struct Fraction(pub f64);

/// Forms of processor time, for error messages.
pub const CPU: &str = "`50%` of one core, `0.5 core`, `2 cores` or `1200 MHz`";
const SECONDS: &str = "`20ms` or `1.5s` (units: us, ms, s, min, h)";

const FRACTION: &str = "`0.5%` or `0.05%`";
/// In characters. The smallest double, written out, is shorter.
const LONGEST_NUMBER: usize = 400;

/// Splits `1.5 GiB` into number and unit. No signs, no exponents: nothing that a reader has to decode. `units` are the
/// quantity's, for the message.
///
/// # Errors
/// There is no plain decimal number, or no unit.
pub fn split<'a>(text: &'a str, units: &'static str) -> Result<(&'a str, &'a str), UnitError> {
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

/// The value of a number that [`split`] gave. `units` are the quantity's, for the message.
///
/// # Errors
/// It is too large for any quantity.
pub fn decimal(number: &str, units: &'static str) -> Result<f64, UnitError> {
    // A greater number has no meaning for any quantity, and could not be multiplied.
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

/// Enough of a text to recognise it by.
#[must_use]
pub fn shortened(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

written!(
    Cores,
    CPU,
    "Processor time: a share of one core, or cores.",
    r"^\d+(\.\d+)? *(%|cores?)$",
    ["50%", "2 cores"]
);
written!(Fraction, FRACTION, "A share, in percent.", r"^\d+(\.\d+)? *%$", ["0.5%", "0.05%"]);
written!(Seconds, SECONDS, "A duration.", r"^\d+(\.\d+)? *(us|µs|ms|s|min|h)$", ["20ms", "1.5s", "10min"]);

#[cfg(test)]
mod tests;

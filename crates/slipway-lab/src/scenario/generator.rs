//! Generators: numbers from probability distributions, the same on every machine. Only `+ - * /`, square roots and
//! rounding, which IEEE 754 fixes to the last bit, and the functions of `libm`, which are the same code everywhere (those
//! of the standard library are the platform's own).

use std::f64::consts::PI;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::stream::Stream;
use crate::units::{ByteRate, Bytes, Cores, Fraction, Rate, Seconds};

/// Where numbers come from. They are in the base unit of what they measure: seconds for a duration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generator {
    /// A duration without an end.
    Always,
    /// The same each time.
    Constant(f64),
    /// Every number between the two is as likely.
    Uniform {
        /// None is smaller.
        least: f64,
        /// None is greater.
        most: f64,
    },
    /// Exponential: the time between events that do not depend on each other.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Weibull: times to failure; with a shape below 1 what has lasted goes on lasting, above 1 it wears out.
    Weibull {
        /// Shape, k.
        shape: f64,
        /// Scale, λ: 63 % are smaller.
        scale: f64,
    },
    /// Log-normal: its logarithm is normal.
    LogNormal {
        /// Half are smaller.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Pareto: few are great, and those are very great.
    Pareto {
        /// Shape, α. Without a mean where it is 1 or less.
        shape: f64,
        /// None is smaller.
        least: f64,
    },
    /// Normal; negative ones are drawn again.
    Normal {
        /// Mean, before the negative ones are taken out.
        mean: f64,
        /// Standard deviation, likewise.
        deviation: f64,
    },
    /// The numbers of a file, in their order, from the top again after the last.
    Trace(PathBuf),
}

impl Generator {
    /// Whether its numbers are drawn.
    pub(super) fn is_random(&self) -> bool {
        !matches!(self, Self::Always | Self::Constant(_) | Self::Trace(_))
    }

    /// The file that it reads.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Trace(path) => Some(path),
            _ => None,
        }
    }
}

/// A generator at work.
pub(super) struct Source<'a> {
    generator: &'a Generator,
    stream: Stream,
    /// What its file holds.
    recorded: std::iter::Cycle<std::slice::Iter<'a, f64>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(generator: &'a Generator, stream: Stream, recorded: &'a [f64]) -> Self {
        Self { generator, stream, recorded: recorded.iter().cycle() }
    }

    /// The next number. `None` where there is no end.
    ///
    /// By inversion of the distribution function, but for the normal ones: Box and Muller, "A Note on the Generation of
    /// Random Normal Deviates" (1958).
    pub(super) fn next(&mut self) -> Option<f64> {
        Some(match *self.generator {
            Generator::Always => return None,
            Generator::Constant(value) => value,
            Generator::Uniform { least, most } => least + (most - least) * self.stream.unit(),
            Generator::Exponential { mean } => mean * self.exponential(),
            Generator::Weibull { shape, scale } => scale * libm::pow(self.exponential(), 1.0 / shape),
            Generator::LogNormal { median, sigma } => median * libm::exp(sigma * self.normal()),
            Generator::Pareto { shape, least } => least * libm::exp(self.exponential() / shape),
            Generator::Normal { mean, deviation } => loop {
                let value = mean + deviation * self.normal();
                if value >= 0.0 {
                    break value;
                }
            },
            Generator::Trace(_) => *self.recorded.next()?,
        })
    }

    /// Of mean 1.
    fn exponential(&mut self) -> f64 {
        -libm::log(self.stream.unit())
    }

    /// Of mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * PI * self.stream.unit())
    }
}

/// What a drawn value measures: its unit, and how finely it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Seconds, in whole nanoseconds.
    Time,
    /// A share, in hundredths of a basis point, at most 1.
    Share,
    /// Bits per second, at least 1.
    Rate,
    /// Cores, in thousandths.
    Cpu,
    /// Bytes.
    Bytes,
    /// Bytes per second, at least 1.
    ByteRate,
    /// A number, at least 1.
    Count,
}

impl Quantity {
    /// Of a key of [`Keys::NAMES`](crate::change::Keys::NAMES). `None`: its values are no numbers.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Some(match key {
            "delay" | "jitter" | "cpu_period" => Self::Time,
            "loss" | "corrupt" | "duplicate" | "reorder" => Self::Share,
            "delay_correlation" | "loss_correlation" | "reorder_correlation" => Self::Share,
            "rate" => Self::Rate,
            "cpu" => Self::Cpu,
            "memory" | "memory_soft" | "swap" => Self::Bytes,
            "disk.read" | "disk.write" => Self::ByteRate,
            "gap" | "limit" | "pids" | "disk.read_iops" | "disk.write_iops" => Self::Count,
            _ => return None,
        })
    }

    /// A written value in the base unit.
    pub(crate) fn read(self, text: &str) -> Result<f64, String> {
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        match self {
            Self::Time => text.parse().map(|Seconds(value)| value).map_err(|error| wrong(&error)),
            Self::Share => text.parse().map(|Fraction(value)| value).map_err(|error| wrong(&error)),
            Self::Cpu => text.parse().map(|Cores(value)| value).map_err(|error| wrong(&error)),
            Self::Rate => text.parse().map(|Rate(value)| value as f64).map_err(|error| wrong(&error)),
            Self::Bytes => text.parse().map(|Bytes(value)| value as f64).map_err(|error| wrong(&error)),
            Self::ByteRate => text.parse().map(|ByteRate(value)| value as f64).map_err(|error| wrong(&error)),
            Self::Count => <u32 as crate::units::Value>::read(text).map(f64::from),
        }
    }

    /// A drawn number as the value is written.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they saturate, and none is negative")]
    pub(super) fn write(self, value: f64) -> String {
        match self {
            Self::Time => Seconds((value * 1e9).round() / 1e9).to_string(),
            Self::Share => Fraction((value.min(1.0) * 1e6).round() / 1e6).to_string(),
            Self::Cpu => Cores((value * 1e3).round() / 1e3).to_string(),
            Self::Rate => Rate(value.round().max(1.0) as u64).to_string(),
            Self::Bytes => Bytes(value.round() as u64).to_string(),
            Self::ByteRate => ByteRate(value.round().max(1.0) as u64).to_string(),
            Self::Count => (value.round().max(1.0) as u32).to_string(),
        }
    }
}

//! Generators: numbers from probability distributions, the same on every machine. It uses only `+ - * /`, square roots
//! and rounding, which IEEE 754 fixes to the last bit, and functions of `libm`. Those are the same code everywhere; the
//! standard library's are the platform's own.

use std::f64::consts::PI;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_document::units::{ByteRate, Bytes, Cores, Fraction, Rate, Seconds};

use super::stream::Stream;
use crate::condition::Cpu;

/// Where numbers come from. They are in the base unit of what they measure: seconds for a duration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generator {
    /// A duration without an end.
    Always,
    /// The same value each time.
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
    /// True where its numbers are random.
    pub(crate) fn is_random(&self) -> bool {
        !matches!(self, Self::Always | Self::Constant(_) | Self::Trace(_))
    }

    /// The file that it reads.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Trace(path) => Some(path),
            _ => None,
        }
    }
}

/// A generator at work.
pub(crate) struct Source<'a> {
    generator: &'a Generator,
    stream: Stream,
    /// The values of its file.
    recorded: std::iter::Cycle<std::slice::Iter<'a, f64>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(generator: &'a Generator, stream: Stream, recorded: &'a [f64]) -> Self {
        Self { generator, stream, recorded: recorded.iter().cycle() }
    }

    /// The next number. `None` where there is no end.
    ///
    /// By inversion of the distribution function, but for the normal ones: Box and Muller, "A Note on the Generation of
    /// Random Normal Deviates" (1958).
    pub(crate) fn next(&mut self) -> Option<f64> {
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

    /// A value of the exponential distribution with mean 1.
    fn exponential(&mut self) -> f64 {
        -libm::log(self.stream.unit())
    }

    /// Of mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * PI * self.stream.unit())
    }
}

/// The quantity of a random value: its unit, and its resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Seconds, in whole nanoseconds, at most an hour: what a link can delay.
    Time,
    /// A share, in hundredths of a basis point, at most 1.
    Share,
    /// Bits per second, at least 1.
    Rate,
    /// Cores, in thousandths, at least 1 %.
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
            "loss"
            | "corrupt"
            | "duplicate"
            | "reorder"
            | "delay_correlation"
            | "loss_correlation"
            | "reorder_correlation" => Self::Share,
            "rate" => Self::Rate,
            "cpu" => Self::Cpu,
            "memory" | "memory_soft" | "swap" => Self::Bytes,
            "disk.read" | "disk.write" => Self::ByteRate,
            "gap" | "limit" | "queue" | "pids" | "disk.read_iops" | "disk.write_iops" => Self::Count,
            _ => return None,
        })
    }

    /// A written value in the base unit.
    pub(crate) fn read(self, text: &str) -> Result<f64, String> {
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        match self {
            Self::Time => text.parse().map(|Seconds(value)| value).map_err(|error| wrong(&error)),
            Self::Share => text.parse().map(|Fraction(value)| value).map_err(|error| wrong(&error)),
            Self::Cpu => match text.parse() {
                Ok(Cpu::Cores(cores)) => Ok(cores.0),
                Ok(Cpu::Megahertz(_)) => {
                    Err("a frequency is not drawn; write shares of a core, such as `50%`".to_owned())
                }
                Err(error) => Err(wrong(&error)),
            },
            Self::Rate => text.parse().map(|Rate(value)| value as f64).map_err(|error| wrong(&error)),
            Self::Bytes => text.parse().map(|Bytes(value)| value as f64).map_err(|error| wrong(&error)),
            Self::ByteRate => text.parse().map(|ByteRate(value)| value as f64).map_err(|error| wrong(&error)),
            Self::Count => <u32 as slipway_document::units::Value>::read(text).map(f64::from),
        }
    }

    /// A drawn number as the value is written.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they saturate, and none is negative")]
    pub(crate) fn write(self, value: f64) -> String {
        match self {
            Self::Time => duration((value.min(3600.0) * 1e9).round() as u64),
            Self::Share => Fraction((value.min(1.0) * 1e6).round() / 1e6).to_string(),
            Self::Cpu => Cores((value.max(0.01) * 1e3).round() / 1e3).to_string(),
            Self::Rate => Rate(value.round().max(1.0) as u64).to_string(),
            Self::Bytes => Bytes(value.round() as u64).to_string(),
            Self::ByteRate => ByteRate(value.round().max(1.0) as u64).to_string(),
            Self::Count => (value.round().max(1.0) as u32).to_string(),
        }
    }
}

/// Whole nanoseconds, in digits: a fraction of seconds in binary is not quite what it says in milliseconds.
fn duration(nanoseconds: u64) -> String {
    let (unit, digits) = match nanoseconds {
        1_000_000_000.. => ("s", 9),
        1_000_000.. => ("ms", 6),
        _ => ("us", 3),
    };
    let scale = 10u64.pow(digits);
    format!("{}.{:0width$}{unit}", nanoseconds / scale, nanoseconds % scale, width = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers drawn for a test; enough to tell a distribution from its neighbours.
    const DRAWS: usize = 20_000;

    fn draw(generator: &Generator) -> Vec<f64> {
        let mut source = Source::new(generator, Stream::new(1, &["test"]), &[]);
        (0..DRAWS).map(|_| source.next().unwrap()).collect()
    }

    /// Kolmogorov and Smirnov: how far the drawn numbers' distribution is from `cdf` at most, times √n. Above 1.95 once in
    /// a thousand seeds; the seed is fixed, so that it is below or the generator is wrong.
    fn distance(generator: &Generator, cdf: impl Fn(f64) -> f64) -> f64 {
        let mut drawn = draw(generator);
        drawn.sort_by(f64::total_cmp);
        let n = DRAWS as f64;
        let apart = |(i, x): (usize, &f64)| {
            let expected = cdf(*x);
            (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
        };
        drawn.iter().enumerate().map(apart).fold(0.0, f64::max) * n.sqrt()
    }

    /// Distribution function of the standard normal.
    fn normal(x: f64) -> f64 {
        0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
    }

    #[test]
    fn generators_draw_their_distribution() {
        type Cdf = fn(f64) -> f64;
        let cases: [(Generator, Cdf); 9] = [
            (Generator::Uniform { least: 2.0, most: 5.0 }, |x| (x - 2.0) / 3.0),
            (Generator::Exponential { mean: 60.0 }, |x| 1.0 - (-x / 60.0).exp()),
            (Generator::Weibull { shape: 0.7, scale: 10.0 }, |x| 1.0 - (-(x / 10.0).powf(0.7)).exp()),
            (Generator::Weibull { shape: 3.0, scale: 0.5 }, |x| 1.0 - (-(x / 0.5).powi(3)).exp()),
            (Generator::LogNormal { median: 0.02, sigma: 0.5 }, |x| normal((x / 0.02).ln() / 0.5)),
            (Generator::Pareto { shape: 1.5, least: 5.0 }, |x| 1.0 - (5.0 / x).powf(1.5)),
            (Generator::Normal { mean: 10.0, deviation: 2.0 }, |x| normal((x - 10.0) / 2.0)),
            // Without what lies below 0: a sixth of it.
            (Generator::Normal { mean: 1.0, deviation: 1.0 }, |x| (normal(x - 1.0) - normal(-1.0)) / normal(1.0)),
            (Generator::Normal { mean: 0.0, deviation: 3.0 }, |x| 2.0 * normal(x / 3.0) - 1.0),
        ];
        for (generator, cdf) in cases {
            let distance = distance(&generator, cdf);
            assert!(distance < 1.95, "{generator:?}: {distance}");
        }
    }

    #[test]
    fn a_wrong_distribution_would_be_noticed() {
        let wrong = distance(&Generator::Exponential { mean: 60.0 }, |x| 1.0 - (-x / 64.0).exp());
        assert!(wrong > 1.95, "{wrong}");
    }

    #[test]
    fn nothing_is_negative_or_infinite() {
        let extremes = [
            Generator::Weibull { shape: 0.01, scale: 1.0 },
            Generator::Pareto { shape: 0.01, least: 1.0 },
            Generator::LogNormal { median: 1.0, sigma: 300.0 },
            Generator::Normal { mean: 0.0, deviation: 0.0 },
        ];
        for generator in extremes {
            assert!(draw(&generator).iter().all(|x| *x >= 0.0 && !x.is_nan()), "{generator:?}");
        }
    }

    #[test]
    fn constants_and_recorded_numbers_come_as_they_are() {
        let stream = || Stream::new(1, &["test"]);
        let take = |mut source: Source| (0..4).map(|_| source.next()).collect::<Vec<_>>();
        assert_eq!(take(Source::new(&Generator::Constant(2.5), stream(), &[])), [Some(2.5); 4]);
        assert_eq!(take(Source::new(&Generator::Always, stream(), &[])), [None; 4]);
        let file = Generator::Trace("/gaps".into());
        assert_eq!(take(Source::new(&file, stream(), &[1.0, 2.0, 3.0])), [1.0, 2.0, 3.0, 1.0].map(Some));
    }

    /// The first numbers of a stream, fixed for ever: experiments are repeated with them.
    #[test]
    fn streams_are_what_they_were() {
        let words = |name: &[&str]| {
            let mut stream = Stream::new(7, name);
            [stream.word(), stream.word()]
        };
        let of_n1 = words(&["scenario", "1", "at", "n1"]);
        // As another implementation of SHA-256 and ChaCha8 has them.
        assert_eq!(of_n1, [3_537_819_024_916_469_744, 18_132_046_699_704_969_548]);
        assert_ne!(of_n1, words(&["scenario", "1", "at", "n2"]));
        assert_ne!(words(&["a", "bc"]), words(&["ab", "c"]), "parts are apart");
    }

    #[test]
    fn what_is_drawn_is_written_as_its_key_reads_it() {
        let cases = [
            (Quantity::Time, 0.025_647_628_4, "25.647628ms"),
            (Quantity::Time, 1.5, "1.500000000s"),
            (Quantity::Time, 0.0, "0.000us"),
            (Quantity::Time, f64::INFINITY, "3600.000000000s"),
            (Quantity::Cpu, 0.0, "0.01 core"),
            (Quantity::Share, 0.012_345_678, "1.2346%"),
            (Quantity::Share, 7.0, "100%"),
            (Quantity::Rate, 0.0, "1bit"),
            (Quantity::Rate, 1.5e6, "1500kbit"),
            (Quantity::Cpu, 0.333_333, "0.333 core"),
            (Quantity::Bytes, 1e30, "18446744073709551615B"),
            (Quantity::Count, 0.2, "1"),
        ];
        for (quantity, value, written) in cases {
            assert_eq!(quantity.write(value), written);
            assert!(quantity.read(written).is_ok(), "{written}");
        }
    }
}

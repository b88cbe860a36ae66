//! Search curves of the extended Fourier amplitude sensitivity test.

use std::f64::consts::{PI, TAU};

use super::cube::Cube;
use crate::hash::{hash, unit};

/// One curve for each coordinate. Along it, that coordinate swings at a high frequency, and the others at low ones.
///
/// Saltelli, Tarantola, Chan, "A Quantitative Model-Independent Method for Global Sensitivity Analysis of Model Output"
/// (1999). Frequencies are those of SALib.
#[derive(Debug)]
pub struct Fast {
    /// The high frequency, then the low ones.
    frequencies: Vec<f64>,
    /// Phase of each curve, in radians.
    phases: Vec<f64>,
    samples: u64,
}

impl Fast {
    /// A curve of `samples` points for each phase.
    ///
    /// # Panics
    /// Unless there are more than 4 `harmonics`² samples, and a harmonic.
    #[must_use]
    pub fn new(phases: Vec<f64>, samples: u64, harmonics: u32) -> Self {
        assert!(samples > fewest(harmonics) && harmonics > 0, "the caller checks samples");
        let high = high_frequency(samples, harmonics);
        let most = high / (2 * u64::from(harmonics));
        let others = phases.len().saturating_sub(1) as u64;
        let low = |number: u64| match number {
            _ if most < others => number % most + 1,
            0 => 1,
            _ if number == others - 1 => most,
            // As numpy.floor(numpy.linspace(1, most, others)) has it.
            _ => whole(number as f64 * ((most - 1) as f64 / (others - 1) as f64) + 1.0),
        };
        let frequencies = std::iter::once(high).chain((0..others).map(low)).map(|each| each as f64).collect();
        Self { frequencies, phases, samples }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a frequency is a positive number")]
fn whole(frequency: f64) -> u64 {
    frequency as u64
}

/// Phases that follow from a seed, in radians.
#[must_use]
pub fn phases(seed: u64, dimensions: usize) -> Vec<f64> {
    (0..dimensions as u64).map(|curve| TAU * unit(hash(&[seed, curve]))).collect()
}

/// More samples of a curve than this many keep the harmonics of its frequencies apart.
#[must_use]
pub fn fewest(harmonics: u32) -> u64 {
    4 * u64::from(harmonics).pow(2)
}

/// The frequency of a curve's own coordinate.
#[must_use]
pub fn high_frequency(samples: u64, harmonics: u32) -> u64 {
    (samples - 1) / (2 * u64::from(harmonics))
}

impl Cube for Fast {
    fn count(&self) -> u64 {
        self.samples * self.phases.len() as u64
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let curve = usize::try_from(index / self.samples).expect("a curve");
        let along = TAU / self.samples as f64 * (index % self.samples) as f64;
        let coordinate = |dimension: usize| {
            let frequency = self.frequencies[match dimension {
                _ if dimension < curve => dimension + 1,
                _ if dimension > curve => dimension,
                _ => 0,
            }];
            0.5 + libm::asin(libm::sin(frequency * along + self.phases[curve])) / PI
        };
        (0..self.phases.len()).map(coordinate).collect()
    }
}

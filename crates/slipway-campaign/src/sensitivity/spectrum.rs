//! Power at frequencies of a series.

use std::f64::consts::TAU;

/// A series, prepared for its power at single frequencies.
pub(super) struct Spectrum<'a> {
    series: &'a [f64],
    /// Cosine and sine of each part of a turn.
    turn: Vec<(f64, f64)>,
}

impl<'a> Spectrum<'a> {
    pub(super) fn new(series: &'a [f64]) -> Self {
        let angle = |part: usize| TAU * part as f64 / series.len() as f64;
        let turn = (0..series.len()).map(angle).map(|angle| (libm::cos(angle), libm::sin(angle))).collect();
        Self { series, turn }
    }

    /// The part of the variance at a frequency, in turns over the whole series: half of it, as the other half is at the
    /// negative frequency.
    pub(super) fn power(&self, frequency: usize) -> f64 {
        let n = self.series.len();
        let mut part = 0;
        let (mut real, mut imaginary) = (0.0, 0.0);
        for value in self.series {
            let (cosine, sine) = self.turn[part];
            real += value * cosine;
            imaginary += value * sine;
            part = (part + frequency) % n;
        }
        (real * real + imaginary * imaginary) / (n * n) as f64
    }
}
